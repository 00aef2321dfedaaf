// A graph compiled for the CPU: each node is bound to its kernel, weights and memory once; a step only runs the list
// and allocates nothing.
#pragma once

#include <array>
#include <vector>

#include "backend/cpu/cpu_cache.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/weights.h"
#include "backend/plan.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "graph/output_tail.h"
#include "graph/rope.h"

namespace zinc::cpu {

class CpuPlan final : public Plan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const CpuWeights& weights, CpuCache& cache,
                                               const Kernels& kernels, ThreadPool& threads,
                                               AllocateBuffer allocate_buffer, const Bucket& bucket);
  size_t device_bytes() const override;
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;
  std::span<const KernelTime> kernel_times() const override;

 private:
  static constexpr size_t kMaxTaps = 16;  // of a convolution
  using Run = void (CpuPlan::*)(size_t node);
  struct BoundNode {  // the resources of a node, looked up once
    Run run = nullptr;
    const Matrix* matrix = nullptr;
    std::vector<size_t>
        joined;  // linear: the nodes of one parallel loop, this one first; empty: an earlier node runs it
    std::array<const std::vector<float>*, Node::kMaxInputs> vectors{};  // weights other than matrices
    int rope_table = -1;
    std::vector<float> conv_weight;  // [taps][channels]
    std::vector<int32_t> computes;   // the nodes that it runs: for kernel_times()
  };
  struct RopeTable {  // cos and sin of every rotated pair at every token of the step
    RopePairs pairs;
    std::vector<RopeRotation> rotations;  // by RoPE scaling
    std::vector<float> cos, sin;          // [max_tokens][pairs]
    size_t n_pairs() const { return rotations[0].frequencies.size(); }
  };
  struct ActivationSet {    // inputs of a matmul, by token
    int32_t value_id = -1;  // value id; -1: none
    size_t n_in = 0;
    std::vector<TokenActivation> activations;
    std::shared_ptr<AlignedBuffer> storage;
  };
  struct ThreadScratch {  // a dequantized row, a dequantized page, attention sums of all chunks and of one
    AlignedBuffer row, page, total, partial;
  };
  struct StepResult {
    std::vector<TokenId> sampled;
    std::span<float> logits;  // in the activation arena, until another step is started
    std::vector<float> kept_logits, hidden;
    std::vector<KernelTime> kernel_times;
  };
  struct AttentionTile {
    int seq, first_token, n_tokens;
  };
  struct AttentionHeads {  // of an attention node
    const AttentionParams& params;
    const AttentionCache& kv;
    size_t n_heads = 0, heads_per_kv_head = 0, heads_per_task = 0, tasks_per_kv_head = 0;
  };
  struct QueryRows {  // of one task
    AttentionTile tile;
    size_t kv_head = 0;
    int n_rows = 0;
    size_t index[kMaxAttentionRows];  // token * heads + head
    const float* q[kMaxAttentionRows];
    float* out[kMaxAttentionRows];
    int32_t positions[kMaxAttentionRows];
    const float* sinks[kMaxAttentionRows];
  };
  struct KvChunks {  // KV chunks that a tile attends to
    int begin, end, first_page, end_page;
    size_t size() const { return static_cast<size_t>(end - begin); }
  };

  CpuPlan(const Graph& graph, const CpuWeights& weights, CpuCache& cache, const Kernels& kernels, ThreadPool& threads,
          AllocateBuffer allocate_buffer, const Bucket& bucket)
      : graph_(graph),
        weights_(weights),
        cache_(cache),
        kernels_(kernels),
        threads_(threads),
        allocate_buffer_(allocate_buffer),
        bucket_(bucket) {}
  Status prepare();
  static Run find_run(Op op);
  Status check_taps() const;
  Status allocate(AlignedBuffer& buffer, size_t n_bytes, std::string_view what) const;
  // As large as is needed; `other`, of Bucket::shares_memory_with, if it is.
  Status allocate_shared(std::shared_ptr<AlignedBuffer>& buffer, const std::shared_ptr<AlignedBuffer>* other,
                         size_t n_bytes, std::string_view what);
  void bind();
  void join_matmuls();
  int rope_table_for(RopePairs pairs, std::vector<RopeRotation> rotations);
  Status reserve_activations();
  void reserve_results();
  void read_inputs(const StepInputs& inputs);
  void fill_rope_tables();
  void run_nodes();
  bool begin_node(size_t i);  // false: nothing to compute
  void find_tail();
  void drop_rows();
  void run_timed_nodes(std::vector<KernelTime>& times);
  void store_result();
  static void save_logits(StepResult& result);

  const Node& node(size_t i) const { return graph_.nodes()[i]; }
  size_t n_rows(Value v) const;
  size_t width(Value v) const { return static_cast<size_t>(graph_.info(v).shape.elems()); }
  size_t inner(Value v) const { return static_cast<size_t>(graph_.info(v).shape.inner()); }
  float* data(Value v) const { return data_[static_cast<size_t>(v.id)]; }
  int32_t* ids(Value v) const { return reinterpret_cast<int32_t*>(data(v)); }
  std::span<const TokenActivation> activations_of(Value x, ActivationFormat format, size_t n_in);
  template <class Fn>
  void for_each_row(size_t n, const Fn& fn);  // fn(row), in parallel
  void multiply(const Matrix& matrix, size_t stack, std::span<const TokenActivation> activations, float* const* outs,
                size_t first, size_t end) const;
  void multiply_linear(size_t node, std::span<float* const> outs, size_t first, size_t end) const;
  template <class Fn>
  void for_each_sequence(const Fn& fn) const;  // fn(seq, first token, end token, starts at position 0)
  void group_by_expert(std::span<const int32_t> selected, size_t n_experts);
  const ThreadScratch& thread_scratch() const { return scratch_[ThreadPool::current_thread()]; }
  PageId page_at(int group, size_t seq, int32_t position) const;
  void write_kv(const Node& node, int layer);
  Status reserve_attention();
  AttentionHeads heads_of(const Node& node) const;
  int attention_tile_tokens(const AttentionHeads& heads) const;
  KvChunks kv_chunks_of(const AttentionHeads& heads, const AttentionTile& tile) const;
  QueryRows rows_of(size_t node, const AttentionHeads& heads, size_t task) const;
  void attend(const AttentionHeads& heads, const QueryRows& rows, const KvChunks& kv_chunks, int chunk,
              float* const* acc, SoftmaxState* softmax) const;
  void attend_all(const AttentionHeads& heads, const QueryRows& rows, const KvChunks& kv_chunks) const;
  void attend_chunk(const AttentionHeads& heads, const QueryRows& rows, const KvChunks& kv_chunks, size_t chunk);
  void merge_chunks(size_t node, const AttentionHeads& heads, size_t n_tasks);

  // The function of op `name` is run_name(), for the node of that index.
  void run_unary(size_t);
#define OP(name) void run_##name(size_t);
#define UNARY_OP(name)
#include "graph/op_list.h"
#undef OP

  const Graph& graph_;
  const CpuWeights& weights_;
  CpuCache& cache_;
  const Kernels& kernels_;
  ThreadPool& threads_;
  AllocateBuffer allocate_buffer_;
  Bucket bucket_;
  std::shared_ptr<AlignedBuffer> arena_;
  size_t own_shared_bytes_ = 0;  // of arena_ and ActivationSet::storage, without those of another plan
  std::vector<float*> data_;
  std::vector<BoundNode> bound_;
  OutputTail tail_;  // its inputs without views of each other
  std::vector<RopeTable> rope_tables_;
  std::array<ActivationSet, 3> activation_sets_;  // by ActivationFormat
  std::vector<ThreadScratch> scratch_;            // by thread
  std::vector<float*> out_rows_;                  // of the matmul being computed
  // Expert matmuls: (token, selected expert) pairs sorted by expert.
  std::vector<int32_t> sorted_pairs_, expert_begin_, active_experts_;
  std::vector<TokenActivation> sorted_activations_;
  std::vector<float*> sorted_outs_;
  std::vector<AttentionTile> tiles_;
  std::vector<SoftmaxState> chunk_states_;  // [tokens * heads][chunks]
  AlignedBuffer chunk_sums_;                // partial sums of the same rows and chunks, v_dim floats each
  std::vector<int32_t> route_order_;
  std::vector<float> route_scores_;

  // The step being computed.
  StepInputs in_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> seq_of_token_;
  size_t n_token_rows_ = 0;            // of values with a row per token: in the tail only the output rows, if
  bool has_dropped_rows_ = false;      // the others were dropped
  std::array<StepResult, 2> results_;  // step k uses entry k % 2
  size_t n_started_ = 0, n_waited_ = 0;
};

}  // namespace zinc::cpu
