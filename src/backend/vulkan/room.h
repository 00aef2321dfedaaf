// All device memory of one plan, taken when it is compiled: activations, their rounded forms, tables of rotations,
// partial results of attention. What changes from step to step is a Flight's (plan.h).
#pragma once

#include <algorithm>
#include <vector>

#include "backend/fusion.h"
#include "backend/plan.h"
#include "backend/vulkan/cache.h"
#include "backend/vulkan/weights.h"
#include "graph/memory_plan.h"

namespace zinc::vulkan {

// Steps of up to this many tokens spread each row's chunks of keys over many workgroups, and the segments of each
// product over a workgroup's warps.
inline constexpr int kMaxSplitTokens = 8;

// Inputs of one row that workgroups make ready in their shared memory: 8-bit ones, and floats where there is room.
inline constexpr int kMaxRoundedInputs = 16384;
int max_float_inputs(const Capabilities& device);

// Rows of an expert that a workgroup multiplies on cooperative matrices.
inline constexpr int kMatrixExpertRows = 64;

// Where the parts of a step's upload begin, in ints.
struct UploadLayout {
  size_t tokens, positions, seq_of_token, seq_begin, slots, output_rows, logit_rows, first_column, entries, n_ints;
  UploadLayout(const Bucket& bucket, const VulkanCache& cache);
};

struct RopeTable {
  std::vector<double> frequencies;
  float amplitude = 1;
  Buffer coarse, fine;
};

// Pairs of a row and an expert it uses, brought together by expert and cut into tiles.
struct ExpertTiles {
  Address order = 0, tiles = 0, n_tiles = 0;
  size_t n_bytes = 0;  // of all three, from `order` on
};

inline constexpr size_t kCounterBytes = 64;  // a counter alone in its line

class Room {
 public:
  static Result<std::unique_ptr<Room>> take(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache,
                                            Device& device, const Bucket& bucket);

  size_t offset(Value v) const { return plan_.offsets[static_cast<size_t>(v.id)]; }  // in the arena, in floats
  Address at(Value v) const { return arena_.address() + offset(v) * sizeof(float); }
  const Buffer& arena() const { return arena_; }
  const Fusion& fusion() const { return fusion_; }
  Rounded rounded(const RoundedForm& form) const;
  size_t rounded_bytes(const RoundedForm& form) const;  // from q on
  const RopeTable& rope_table(int node) const;
  const Buffer& attention_partial() const { return partial_; }
  const Buffer& attention_counters() const { return counters_; }
  const Buffer& chain_counters() const { return chain_counters_; }  // kCounterBytes for each group of dispatches
  int n_chunks(int layer) const;                                    // of keys, at most, of one row of this layer
  const UploadLayout& layout() const { return layout_; }
  ExpertTiles expert_tiles() const;
  int tile_rows() const { return tile_rows_; }  // of an expert that a workgroup multiplies at once in prompts
  int64_t max_expert_tiles(int64_t n_pairs, int64_t n_experts) const {
    return n_pairs / tile_rows_ + std::min(n_pairs, n_experts);
  }
  int max_seqs() const { return bucket_.max_seqs; }
  size_t hidden_in_floats() const { return hidden_in_floats_; }     // of a token; 0: the graph takes none
  const Buffer& delta_prepared() const { return delta_prepared_; }  // of the gated delta rule's chunks
  const Buffer& best() const { return best_; }
  const Buffer& best_id() const { return best_id_; }

 private:
  Room(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache, const Bucket& bucket,
       const Device& device);
  Status place_rounded(Device& device);
  Status make_rope_tables(const VulkanWeights& weights, Device& device);
  Status take_buffers(Device& device);

  const Graph& graph_;
  const VulkanCache& cache_;
  Bucket bucket_;
  int tile_rows_;
  Fusion fusion_;
  MemoryPlan plan_;
  UploadLayout layout_;
  std::vector<size_t> rounded_offsets_;  // per form
  size_t n_pairs_ = 0, n_tiles_ = 0;     // of experts, at most
  size_t hidden_in_floats_ = 0;
  std::vector<RopeTable> rope_tables_;
  std::vector<int> rope_table_of_;  // per node
  Buffer arena_, rounded_, partial_, counters_, chain_counters_, expert_tiles_, best_, best_id_, delta_prepared_;
};

}  // namespace zinc::vulkan
