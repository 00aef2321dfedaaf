// All device memory of one plan, allocated when it is compiled: activations, quantized activations, RoPE tables,
// split-KV partial results, step inputs and sampled tokens.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/device.h"
#include "backend/cuda/weights.h"
#include "backend/fusion.h"
#include "backend/plan.h"
#include "graph/memory_plan.h"

namespace zinc::cuda {

// Steps of up to this many tokens use split-KV attention: the KV chunks of a row run on many blocks.
inline constexpr int kMaxSplitTokens = 8;

// Offsets of the arrays in a step's upload, in ints.
struct UploadLayout {
  size_t tokens, positions, seq_of_token, seq_begin, slots, output_rows, sampling, first_column, page_tables, n_ints;
  UploadLayout(const Bucket& bucket, const CudaCache& cache);
};

struct RopeTable {
  std::vector<double> frequencies;
  float amplitude = 1;
  Buffer device_frequencies, table;
};

class Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> allocate(const Graph& graph, const CudaWeights& weights,
                                                     const CudaCache& cache, Device& device, const Bucket& bucket);

  float* floats(Value v) const { return arena_.as<float>() + plan_.offsets[static_cast<size_t>(v.id)]; }
  int* ints(Value v) const { return reinterpret_cast<int*>(floats(v)); }
  const MemoryPlan& plan() const { return plan_; }
  const Buffer& arena() const { return arena_; }
  const Fusion& fusion() const { return fusion_; }
  simt::Q8Activation quantized(const QuantizedActivation& activation) const;
  const RopeTable& rope_table(int node) const;
  const std::vector<RopeTable>& rope_tables() const { return rope_tables_; }
  float* attention_partial() const { return partial_.as<float>(); }
  float* delta_prepared() const { return delta_prepared_.as<float>(); }  // scratch of the chunked scan
  int* attention_done_counters() const {
    return attention_done_counters_.as<int>();
  }                               // one per head, zero between launches
  int n_chunks(int layer) const;  // KV chunks of one row of this layer, at most
  const simt::Step& step() const { return step_; }
  const UploadLayout& layout() const { return layout_; }
  // Upper bound of the tiles for n_pairs (row, expert) pairs.
  static int64_t max_expert_tiles(int64_t n_pairs, int64_t n_experts) {
    return n_pairs / simt::kTileTokens + std::min(n_pairs, n_experts);
  }
  simt::ExpertTiles expert_tiles() const;
  // Split-K partial sums of the router logits and of the shared expert's gate.
  float* router_partial() const { return router_partial_.as<float>(); }
  float* gate_partial() const { return router_partial() + n_router_floats_; }
  int max_seqs() const { return bucket_.max_seqs; }
  const Buffer& upload() const { return upload_; }
  const Buffer& hidden_in() const { return hidden_in_; }  // input hidden states of the step
  const Buffer& sampled() const { return sampled_; }
  float* best() const { return best_.as<float>(); }
  int* best_id() const { return best_id_.as<int>(); }
  // For rows sampled with a temperature: at most one row per sequence.
  const int* sampling_params() const { return upload_.as<const int>() + layout_.sampling; }
  float* chunk_best() const { return chunk_best_.as<float>(); }
  int* sample_chunks() const { return sample_chunks_.as<int>(); }
  unsigned long long* chunk_masses() const { return chunk_masses_.as<unsigned long long>(); }

 private:
  Workspace(const Graph& graph, const CudaWeights& weights, const CudaCache& cache, const Bucket& bucket);
  Status place_quantized(Device& device);
  Status make_rope_tables(const CudaWeights& weights, Device& device);
  Status allocate_buffers(Device& device);
  Status allocate_sampling_buffers(Device& device);

  const Graph& graph_;
  const CudaCache& cache_;
  Bucket bucket_;
  Fusion fusion_;
  MemoryPlan plan_;
  UploadLayout layout_;
  simt::Step step_{};
  std::vector<size_t> quantized_offsets_;  // per quantized activation
  bool has_wgmma_aux_ = false;             // Q8Activation::wgmma_aux is allocated
  size_t n_router_floats_ = 0;
  size_t n_pairs_ = 0, n_tiles_ = 0;  // (row, expert) pairs and their tiles, at most
  std::vector<RopeTable> rope_tables_;
  std::vector<int> rope_table_of_;  // per node
  Buffer arena_, quantized_, partial_, attention_done_counters_, router_partial_, delta_prepared_, upload_, hidden_in_,
      expert_tiles_, sampled_, best_, best_id_, chunk_best_, sample_chunks_, chunk_masses_;
};

}  // namespace zinc::cuda
