// Device memory of the steps of one class, allocated when a plan is compiled: activations, quantized activations,
// split-KV partial results, experts sorted by tile, candidates of sampling. A backend derives its own workspace, which
// adds what only its kernels need.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "backend/gpu/cache.h"
#include "backend/gpu/kernel_table.h"
#include "backend/gpu/step_upload.h"
#include "backend/gpu/weights.h"
#include "graph/memory_plan.h"
#include "graph/rope.h"

namespace zinc::gpu {

// What the kernels of a backend determine.
struct WorkspaceOptions {
  KernelLimits kernels;
  UploadOptions upload = {};
  int expert_tile_rows;  // (row, expert) pairs of one expert per tile
  int sample_splits;     // parts of a row of logits searched in parallel
  // Bytes that the backend's matmuls need beside q, scale and sum of a quantized activation (Q8Buffers::aux); empty: 0.
  std::function<size_t(const QuantizedActivation&, size_t n_rows)> q8_aux_bytes = {};
  bool counts_rows = false;  // attention without units counts finished chunks of each head per row, not only per head
};

// Addresses of a quantized activation's arrays.
struct Q8Buffers {
  Address q, scale, sum;
  Address aux;     // WorkspaceOptions::q8_aux_bytes; 0: none
  int stride;      // elements from row to row
  size_t n_rows;   // at most
  size_t n_bytes;  // of all arrays, from q on
};

struct ExpertTiles {  // (row, expert) pairs, sorted by expert and cut into tiles
  Address sorted_pairs, tiles, n_tiles;
  size_t n_bytes;  // of all three arrays, from sorted_pairs on
};

class Workspace {
 public:
  virtual ~Workspace() = default;
  size_t offset(Value v) const { return plan_.offsets[static_cast<size_t>(v.id)]; }  // in the arena, in floats
  Address address(Value v) const { return arena_.address() + offset(v) * sizeof(float); }
  const Buffer& arena() const { return arena_; }
  const GraphUses& uses() const { return uses_; }
  StepClass sizes() const { return class_of(bucket_); }
  const std::vector<FusedCall>& calls() const { return calls_; }
  const UploadLayout& layout() const { return layout_; }
  int max_seqs() const { return bucket_.max_seqs; }
  Q8Buffers q8_buffers(const QuantizedActivation& activation) const;
  // By RoPE scaling, of each set of rotations that nodes of the graph share.
  const std::vector<std::vector<RopeRotation>>& rope_rotations() const { return rope_rotations_; }
  size_t rope_index(const Node& rope) const;  // in rope_rotations()
  const Buffer& attention_partial() const { return partial_; }
  const Buffer& attention_done_counters() const { return done_counters_; }  // zero between launches
  const Buffer& delta_prepared() const { return delta_prepared_; }          // scratch of the chunked scan
  int n_chunks(int layer) const { return cache_.max_chunks(cache_.kv_layer(layer).group); }
  ExpertTiles expert_tiles() const;
  int expert_tile_rows() const { return options_.expert_tile_rows; }
  // Upper bound of the tiles for n_pairs (row, expert) pairs.
  int64_t max_expert_tiles(int64_t n_pairs, int64_t n_experts) const {
    return n_pairs / options_.expert_tile_rows + std::min(n_pairs, n_experts);
  }
  size_t hidden_in_floats() const { return hidden_in_floats_; }  // per token; 0: the graph has no hidden-state input
  // Sampling on the device: the best token of each part of a row, and per chunk of a row that is not sampled greedily
  // its maximum, then the chunks with tokens that can be sampled.
  const Buffer& best() const { return best_; }
  const Buffer& best_id() const { return best_id_; }
  const Buffer& chunk_best() const { return chunk_best_; }
  const Buffer& sample_chunks() const { return sample_chunks_; }

 protected:
  Workspace(const Graph& graph, const Weights& weights, const Cache& cache, const Bucket& bucket,
            const WorkspaceOptions& options);
  Status allocate_buffers(Device& device);
  static Status allocate_buffer(Device& device, Buffer& buffer, size_t n_bytes, std::string_view what);

  const Graph& graph_;
  const Cache& cache_;
  Bucket bucket_;

 private:
  struct Sizes {
    size_t partial_floats = 0, n_done_counters = 0, delta_floats = 0;
  };
  // Memory of a quantized activation, from its producer to its last use.
  struct PlacedActivation {
    QuantizedActivation activation;
    int first_node, last_node;
    size_t offset = 0;
  };
  std::vector<ExtendedUse> extended_uses() const;
  void find_quantized();
  void add_use(const std::optional<QuantizedActivation>& activation, int node);
  void measure_moe(const Node& route);
  void measure_delta(const Node& delta, Sizes& sizes) const;
  void measure_attention(const Node& attention, Sizes& sizes) const;
  size_t place_quantized();  // returns the bytes
  void find_rope_rotations(const Weights& weights);

  WorkspaceOptions options_;
  GraphUses uses_;
  std::vector<FusedCall> calls_;
  MemoryPlan plan_;
  UploadLayout layout_;
  std::vector<PlacedActivation> quantized_;
  size_t n_pairs_ = 0, n_tiles_ = 0;  // (row, expert) pairs and their tiles, at most
  size_t hidden_in_floats_ = 0;
  std::vector<std::vector<RopeRotation>> rope_rotations_;
  std::vector<size_t> rope_index_;  // per node
  Buffer arena_, q8_, partial_, done_counters_, expert_tiles_, delta_prepared_;
  Buffer best_, best_id_, chunk_best_, sample_chunks_;
};

}  // namespace zinc::gpu
