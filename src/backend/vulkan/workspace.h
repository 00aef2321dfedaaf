// All device memory of one plan, allocated when it is compiled: activations, quantized activations, RoPE tables,
// split-KV partial results. Memory that changes between steps belongs to InFlightStep (plan.h).
#pragma once

#include <algorithm>
#include <vector>

#include "backend/fusion.h"
#include "backend/plan.h"
#include "backend/vulkan/cache.h"
#include "backend/vulkan/weights.h"
#include "graph/memory_plan.h"

namespace zinc::vulkan {

// Steps of up to this many tokens use split-KV attention (a row's KV chunks run on many workgroups) and split-K matmuls
// (the warps of a workgroup share a row's K segments).
inline constexpr int kMaxSplitTokens = 8;

// Longest input row that a workgroup can stage in shared memory: as q8, and as floats if shared memory suffices.
inline constexpr int kMaxQuantizedInputs = 16384;
int max_float_inputs(const Capabilities& device);

// Rows of one expert per tile on cooperative matrices.
inline constexpr int kMatrixExpertRows = 64;

// Offsets of the arrays in a step's upload, in ints.
struct UploadLayout {
  size_t tokens, positions, seq_of_token, seq_begin, slots, output_rows, logit_rows, first_column, entries, n_ints;
  UploadLayout(const Bucket& bucket, const VulkanCache& cache);
};

struct RopeBuffers {
  std::vector<double> frequencies;
  float amplitude = 1;
  Buffer coarse, fine;
};

// (row, expert) pairs, sorted by expert and cut into tiles.
struct ExpertTiles {
  Address sorted_pairs = 0, tiles = 0, n_tiles = 0;
  size_t n_bytes = 0;  // of all three arrays, from `order` on
};

inline constexpr size_t kCounterBytes = 64;  // one counter per cache line

class Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> allocate(const Graph& graph, const VulkanWeights& weights,
                                                     const VulkanCache& cache, Device& device, const Bucket& bucket);

  size_t offset(Value v) const { return plan_.offsets[static_cast<size_t>(v.id)]; }  // in the arena, in floats
  Address address(Value v) const { return arena_.address() + offset(v) * sizeof(float); }
  const Buffer& arena() const { return arena_; }
  const Fusion& fusion() const { return fusion_; }
  Q8Activation q8(const QuantizedActivation& activation) const;
  size_t q8_bytes(const QuantizedActivation& activation) const;  // of all three arrays, from q on
  const RopeBuffers& rope_buffers(int node) const;
  const Buffer& attention_partial() const { return partial_; }
  const Buffer& done_counters() const { return done_counters_; }
  const Buffer& sync_counters() const { return sync_counters_; }  // kCounterBytes per dispatch batch
  int n_chunks(int layer) const;                                  // KV chunks of one row of this layer, at most
  const UploadLayout& layout() const { return layout_; }
  ExpertTiles expert_tiles() const;
  int tile_rows() const { return tile_rows_; }  // rows of one expert per workgroup in prefill
  int64_t max_expert_tiles(int64_t n_pairs, int64_t n_experts) const {
    return n_pairs / tile_rows_ + std::min(n_pairs, n_experts);
  }
  int max_seqs() const { return bucket_.max_seqs; }
  size_t hidden_in_floats() const { return hidden_in_floats_; }     // per token; 0: the graph has no hidden-state input
  const Buffer& delta_prepared() const { return delta_prepared_; }  // scratch of the chunked scan
  const Buffer& best() const { return best_; }
  const Buffer& best_id() const { return best_id_; }

 private:
  Workspace(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache, const Bucket& bucket,
            const Device& device);
  Status allocate_quantized(Device& device);
  Status make_rope_buffers(const VulkanWeights& weights, Device& device);
  Status allocate_buffers(Device& device);

  const Graph& graph_;
  const VulkanCache& cache_;
  Bucket bucket_;
  int tile_rows_;
  Fusion fusion_;
  MemoryPlan plan_;
  UploadLayout layout_;
  std::vector<size_t> q8_offsets_;    // per quantized activation
  size_t n_pairs_ = 0, n_tiles_ = 0;  // upper bounds for the MoE layers
  size_t hidden_in_floats_ = 0;
  std::vector<RopeBuffers> rope_buffers_;
  std::vector<int> rope_buffers_of_;  // per node
  Buffer arena_, q8_, partial_, done_counters_, sync_counters_, expert_tiles_, best_, best_id_, delta_prepared_;
};

}  // namespace zinc::vulkan
