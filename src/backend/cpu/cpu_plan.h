// A graph compiled for the CPU: each node bound to its kernel, weights and memory once; a step only walks the list.
// Nothing is allocated in a step.
#pragma once

#include <array>
#include <vector>

#include "backend/cpu/cpu_cache.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/weights.h"
#include "backend/plan.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace zinc::cpu {

class CpuPlan final : public Plan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const CpuWeights& weights, CpuCache& cache,
                                               const Kernels& kernels, ThreadPool& threads, const Bucket& bucket);
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;

 private:
  static constexpr size_t kMaxTaps = 16;  // of a convolution
  using Run = void (CpuPlan::*)(size_t node);
  struct Bound {  // what a node needs, looked up once
    Run run = nullptr;
    const Matrix* matrix = nullptr;
    std::vector<size_t>
        together;  // linear: the nodes computed with it, itself the first; empty: done by an earlier one
    std::array<const std::vector<float>*, Node::kMaxInputs> vectors{};  // weights other than matrices
    int rope_table = -1;
    std::vector<float> conv_weight;  // [taps][channels]
  };
  struct RopeTable {  // cos and sin of every rotated pair at every token of the step
    RopeParams params;
    std::vector<double> frequencies;
    std::vector<float> cos, sin;  // [max_tokens][pairs]
  };
  struct ColumnSet {  // an activation's rows as columns of a product
    int32_t of = -1;  // value id, -1: none
    size_t n_in = 0;
    std::vector<Column> columns;
    AlignedBuffer storage;
  };
  struct ThreadScratch {  // a thread's own room: a decoded row; a decoded page, sums of all pages and of a segment
    AlignedBuffer row, page, whole, part;
  };
  struct Outcome {
    std::vector<TokenId> sampled;
    std::span<float> logits;  // where they were computed, until another step is started
    std::vector<float> kept_logits, hidden;
  };
  struct AttentionTile {
    int seq, first_token, n_tokens;
  };
  struct Heads {  // of an attention node
    const AttentionParams& params;
    const AttentionCache& kv;
    size_t n = 0, per_kv = 0, per_task = 0, n_splits = 0;  // splits: tasks that a kv head's query heads fill
  };
  struct QueryRows {  // of one task
    AttentionTile tile;
    size_t kv_head = 0;
    int n = 0;
    size_t index[kMaxAttentionRows];  // token * heads + head
    const float* q[kMaxAttentionRows];
    float* out[kMaxAttentionRows];
    int32_t positions[kMaxAttentionRows];
    const float* sinks[kMaxAttentionRows];
  };
  struct Segments {  // what a tile sees
    int begin, end, first_page, end_page;
    size_t size() const { return static_cast<size_t>(end - begin); }
  };

  CpuPlan(const Graph& graph, const CpuWeights& weights, CpuCache& cache, const Kernels& kernels, ThreadPool& threads,
          const Bucket& bucket)
      : graph_(graph), weights_(weights), cache_(cache), kernels_(kernels), threads_(threads), bucket_(bucket) {}
  Status prepare();
  static Run find_run(Op op);
  Status check_taps() const;
  static Status take(AlignedBuffer& buffer, size_t n_bytes, std::string_view what);
  void bind();
  void join_linears();
  int rope_table_for(const RopeParams& params, std::span<const float> factors);
  Status reserve_columns();
  void read_inputs(const StepInputs& inputs);
  void fill_rope_tables();
  void keep_outcome();
  static void save_logits(Outcome& outcome);

  const Node& node(size_t i) const { return graph_.nodes()[i]; }
  size_t n_rows(Value v) const;
  size_t width(Value v) const { return static_cast<size_t>(graph_.info(v).shape.elems()); }
  size_t inner(Value v) const { return static_cast<size_t>(graph_.info(v).shape.inner()); }
  float* data(Value v) const { return data_[static_cast<size_t>(v.id)]; }
  int32_t* ids(Value v) const { return reinterpret_cast<int32_t*>(data(v)); }
  std::span<const Column> columns_of(Value x, ColumnKind kind, size_t n_in);
  template <class Fn>
  void for_each_row(size_t n, const Fn& fn);  // fn(row), rows shared among the threads
  void multiply(const Matrix& matrix, size_t stack, std::span<const Column> columns, float* const* outs, size_t first,
                size_t end) const;
  void multiply_linear(size_t node, std::span<float* const> outs, size_t first, size_t end) const;
  template <class Fn>
  void for_each_sequence(const Fn& fn) const;  // fn(seq, slot, first token, end token, starts at position 0)
  void group_by_expert(std::span<const int32_t> chosen, size_t n_experts);
  const ThreadScratch& own_scratch() const { return scratch_[ThreadPool::current_thread()]; }
  PageId page_at(int group, size_t seq, int32_t position) const;
  void write_keys_and_values(const Node& node, int layer);
  Status reserve_attention();
  Heads heads_of(const Node& node) const;
  Segments segments_of(const Heads& heads, const AttentionTile& tile) const;
  QueryRows rows_of(size_t node, const Heads& heads, size_t task) const;
  void attend(const Heads& heads, const QueryRows& rows, const Segments& segments, int segment, float* const* acc,
              AttentionRow* softmax) const;
  void attend_all(const Heads& heads, const QueryRows& rows, const Segments& segments) const;
  void attend_segment(const Heads& heads, const QueryRows& rows, const Segments& segments, size_t segment);
  void merge_segments(size_t node, const Heads& heads, size_t n_tasks);

  void run_embed(size_t);
  void run_hidden_in(size_t);
  void run_linear(size_t);
  void run_norm(size_t);
  void run_rope(size_t);
  void run_attention(size_t);
  void run_gated_act(size_t);
  void run_moe_route(size_t);
  void run_moe_linear(size_t);
  void run_moe_combine(size_t);
  void run_short_conv(size_t);
  void run_delta_net(size_t);
  void run_add(size_t);
  void run_mul(size_t);
  void run_scale(size_t);
  void run_softcap(size_t);
  void run_view(size_t);
  void run_slice(size_t);
  void run_concat(size_t);
  void run_rows(size_t);
  void run_sample(size_t);

  const Graph& graph_;
  const CpuWeights& weights_;
  CpuCache& cache_;
  const Kernels& kernels_;
  ThreadPool& threads_;
  Bucket bucket_;
  AlignedBuffer arena_;
  std::vector<float*> data_;
  std::vector<Bound> bound_;
  std::vector<RopeTable> rope_tables_;
  std::array<ColumnSet, 3> column_sets_;  // by ColumnKind
  std::vector<ThreadScratch> scratch_;    // by thread
  std::vector<float*> out_rows_;          // of the product being computed
  // Expert products: pairs (token, use) sorted by expert.
  std::vector<int32_t> pair_order_, expert_begin_, active_experts_;
  std::vector<Column> sorted_columns_;
  std::vector<float*> sorted_outs_;
  std::vector<AttentionTile> tiles_;
  std::vector<AttentionRow> segment_rows_;  // [tokens * heads][segments]
  AlignedBuffer segment_sums_;              // the same, v_dim floats each
  std::vector<int32_t> route_order_;
  std::vector<float> route_scores_;

  // The step being computed.
  StepInputs in_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> seq_of_token_;
  std::array<Outcome, 2> outcomes_;  // of step k at k % 2
  size_t n_started_ = 0, n_waited_ = 0;
};

}  // namespace zinc::cpu
