// All device memory of one plan, taken when it is compiled: activations, their rounded forms, tables of rotations,
// partial results of attention, the step's upload and what is sampled.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/device.h"
#include "backend/cuda/weights.h"
#include "backend/fusion.h"
#include "backend/plan.h"
#include "graph/memory_plan.h"

namespace zinc::cuda {

// Steps of up to this many tokens spread each row's chunks of keys over many blocks.
inline constexpr int kMaxSplitTokens = 8;

// Where the parts of a step's upload begin, in ints.
struct UploadLayout {
  size_t tokens, positions, seq_of_token, seq_begin, slots, output_rows, draws, first_column, entries, n_ints;
  UploadLayout(const Bucket& bucket, const CudaCache& cache);
};

struct RopeTable {
  std::vector<double> frequencies;
  float amplitude = 1;
  Buffer device_frequencies, table;
};

class Room {
 public:
  static Result<std::unique_ptr<Room>> take(const Graph& graph, const CudaWeights& weights, const CudaCache& cache,
                                            Device& device, const Bucket& bucket);

  float* floats(Value v) const { return arena_.as<float>() + plan_.offsets[static_cast<size_t>(v.id)]; }
  int* ints(Value v) const { return reinterpret_cast<int*>(floats(v)); }
  const MemoryPlan& plan() const { return plan_; }
  const Buffer& arena() const { return arena_; }
  const Fusion& fusion() const { return fusion_; }
  simt::Rounded rounded(const RoundedForm& form) const;
  const RopeTable& rope_table(int node) const;
  const std::vector<RopeTable>& rope_tables() const { return rope_tables_; }
  float* attention_partial() const { return partial_.as<float>(); }
  float* delta_prepared() const { return delta_prepared_.as<float>(); }  // of the gated delta rule's chunks
  int* attention_counts() const { return attention_counts_.as<int>(); }  // one per head, zero between kernels
  int n_chunks(int layer) const;                                         // of keys, at most, of one row of this layer
  const simt::Step& step() const { return step_; }
  const UploadLayout& layout() const { return layout_; }
  // Tiles that n_pairs of rows and experts are cut into at most.
  static int64_t max_expert_tiles(int64_t n_pairs, int64_t n_experts) {
    return n_pairs / simt::kTileColumns + std::min(n_pairs, n_experts);
  }
  simt::ExpertTiles expert_tiles() const;
  // Sums of the segments of a router's logits, and of the shared expert's gate.
  float* router_partial() const { return router_partial_.as<float>(); }
  float* gate_partial() const { return router_partial() + n_router_floats_; }
  // Words of units of products on their way from block to block, zero between kernels; none where no step needs them.
  std::span<unsigned> left_units() const { return {left_units_.as<unsigned>(), n_left_units_}; }
  int max_seqs() const { return bucket_.max_seqs; }
  const Buffer& upload() const { return upload_; }
  const Buffer& hidden_in() const { return hidden_in_; }  // where the step's hidden states arrive
  const Buffer& sampled() const { return sampled_; }
  float* best() const { return best_.as<float>(); }
  int* best_id() const { return best_id_.as<int>(); }
  // Of rows whose token is drawn: up to one of each sequence.
  const int* draws() const { return upload_.as<const int>() + layout_.draws; }
  float* chunk_best() const { return chunk_best_.as<float>(); }
  int* draw_chunks() const { return draw_chunks_.as<int>(); }
  unsigned long long* chunk_masses() const { return chunk_masses_.as<unsigned long long>(); }

 private:
  Room(const Graph& graph, const CudaWeights& weights, const CudaCache& cache, const Bucket& bucket);
  Status place_rounded(Device& device);
  Status make_rope_tables(const CudaWeights& weights, Device& device);
  Status take_buffers(Device& device);
  Status take_sampling_buffers(Device& device);

  const Graph& graph_;
  const CudaCache& cache_;
  Bucket bucket_;
  Fusion fusion_;
  MemoryPlan plan_;
  UploadLayout layout_;
  simt::Step step_{};
  std::vector<size_t> rounded_offsets_;  // per form
  bool is_wide_ = false;                 // gemm_wide.cu multiplies them
  size_t n_router_floats_ = 0, n_left_units_ = 0;
  size_t n_pairs_ = 0, n_tiles_ = 0;  // of experts, at most
  std::vector<RopeTable> rope_tables_;
  std::vector<int> rope_table_of_;  // per node
  Buffer arena_, rounded_, partial_, attention_counts_, router_partial_, left_units_, delta_prepared_, upload_,
      hidden_in_, expert_tiles_, sampled_, best_, best_id_, chunk_best_, draw_chunks_, chunk_masses_;
};

}  // namespace zinc::cuda
