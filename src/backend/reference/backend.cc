// The reference backend: interprets the graph node by node. Slow, obvious, and right.
#include "backend/backend.h"

#include <array>

#include "backend/reference/kernels.h"
#include "backend/reference/reference_cache.h"
#include "base/memory_info.h"
#include "base/thread_pool.h"
#include "graph/memory_plan.h"

namespace zinc {
namespace reference {
namespace {

class ReferenceWeights final : public DeviceWeights {
 public:
  size_t device_bytes() const override { return 0; }  // used where they are, in the mapped file
};

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(const Graph& graph, ReferenceCache& cache, ThreadPool& threads, const Bucket& bucket);
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;

 private:
  struct Outcome {
    std::vector<TokenId> sampled;
    std::vector<float> logits, hidden;
  };
  void check(const StepInputs& inputs) const;
  void run_nodes(const StepInputs& inputs);
  void keep_outcome(const StepInputs& inputs);

  const Graph& graph_;
  ReferenceCache& cache_;
  ThreadPool& threads_;
  Bucket bucket_;
  std::vector<float> arena_;
  std::vector<float*> data_;
  std::vector<Kernel> kernels_;
  std::vector<TokenId> tokens_;  // of the step, kFromDevice resolved
  std::vector<int32_t> seq_of_token_;
  size_t n_tokens_ = 0, n_outputs_ = 0;  // of the last step
  std::array<Outcome, 2> outcomes_;      // step k's is [k % 2]: it stays until step k + 2 starts
  int64_t n_started_ = 0, n_waited_ = 0;
};

ReferencePlan::ReferencePlan(const Graph& graph, ReferenceCache& cache, ThreadPool& threads, const Bucket& bucket)
    : graph_(graph), cache_(cache), threads_(threads), bucket_(bucket) {
  const MemoryPlan plan = plan_memory(graph, bucket.max_tokens, bucket.max_outputs, bucket.keep_values);
  arena_.resize(plan.n_elems);
  for (int i = 0; i < graph.n_values(); ++i) {
    const bool is_weight = graph.info(Value{i}).is_weight();
    data_.push_back(is_weight ? nullptr : arena_.data() + plan.offsets[static_cast<size_t>(i)]);
  }
  for (const Node& node : graph.nodes()) kernels_.push_back(find_kernel(node.op));
}

void ReferencePlan::check(const StepInputs& in) const {
  const size_t n_tokens = in.tokens.size(), n_seqs = in.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && in.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(in.positions.size() == n_tokens && in.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(static_cast<size_t>(in.seq_begin[n_seqs]) == n_tokens && in.seq_begin[0] == 0);
  ZINC_CHECK(n_started_ - n_waited_ < 2);
}

void ReferencePlan::start(const StepInputs& inputs) {
  check(inputs);
  tokens_.assign(inputs.tokens.begin(), inputs.tokens.end());
  seq_of_token_.resize(inputs.tokens.size());
  for (size_t s = 0; s < inputs.slots.size(); ++s) {
    for (size_t t = static_cast<size_t>(inputs.seq_begin[s]); t < static_cast<size_t>(inputs.seq_begin[s + 1]); ++t) {
      seq_of_token_[t] = static_cast<int32_t>(s);
      if (tokens_[t] == kFromDevice) tokens_[t] = cache_.last_sampled(inputs.slots[s]);
    }
  }
  StepInputs resolved = inputs;
  resolved.tokens = tokens_;
  run_nodes(resolved);
  keep_outcome(resolved);
}

void ReferencePlan::run_nodes(const StepInputs& inputs) {
  const StepState step{graph_, inputs, cache_, threads_, data_, seq_of_token_};
  n_tokens_ = inputs.tokens.size();
  n_outputs_ = inputs.output_rows.size();
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (graph_.info(node.out[0]).rows == Rows::outputs && n_outputs_ == 0) continue;
    kernels_[i](node, step);
  }
}

void ReferencePlan::keep_outcome(const StepInputs& in) {
  Outcome& outcome = outcomes_[static_cast<size_t>(n_started_++ % 2)];
  outcome = {};
  const StepState step{graph_, in, cache_, threads_, data_, seq_of_token_};
  if (n_outputs_ > 0) {
    const std::span<const int32_t> sampled = step.i32(graph_.nodes().back().out[0]);
    outcome.sampled.assign(sampled.begin(), sampled.end());
  }
  for (int32_t r : in.logit_rows) {
    const std::span<const float> row = step.row(graph_.logits(), r);
    outcome.logits.insert(outcome.logits.end(), row.begin(), row.end());
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    const std::span<const float> hidden = step.f32(graph_.hidden());
    outcome.hidden.assign(hidden.begin(), hidden.end());
  }
  for (size_t r = 0; r < n_outputs_; ++r) {
    const size_t seq = static_cast<size_t>(seq_of_token_[static_cast<size_t>(in.output_rows[r])]);
    cache_.last_sampled(in.slots[seq]) = outcome.sampled[r];
  }
}

Result<StepOutput> ReferencePlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const Outcome& outcome = outcomes_[static_cast<size_t>(n_waited_++ % 2)];
  return StepOutput{outcome.sampled, outcome.logits, outcome.hidden};
}

std::span<const float> ReferencePlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? n_outputs_ : n_tokens_;
  return {data_[static_cast<size_t>(v.id)], n_rows * static_cast<size_t>(info.shape.elems())};
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(int n_threads) : threads_(n_threads > 0 ? n_threads : default_thread_count()) {}

  DeviceInfo info() const override { return {"reference interpreter", physical_memory_bytes()}; }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const>) override {
    return std::unique_ptr<DeviceWeights>(std::make_unique<ReferenceWeights>());
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    if (sizes.kv_format == nullptr || sizes.kv_format->encode == nullptr) {
      return fail(ErrorCode::unsupported, "the reference backend cannot keep keys and values as '{}'",
                  sizes.kv_format ? sizes.kv_format->name : "(none)");
    }
    for (const LayerCache& layer : layers) {
      const AttentionCache& kv = layer.attention;
      if (kv.k_dim % sizes.kv_format->block_elems != 0 || kv.v_dim % sizes.kv_format->block_elems != 0) {
        return fail(ErrorCode::unsupported, "KV format {} holds blocks of {}, but a head has {} keys and {} values",
                    sizes.kv_format->name, sizes.kv_format->block_elems, kv.k_dim, kv.v_dim);
      }
    }
    return std::unique_ptr<CacheMemory>(std::make_unique<ReferenceCache>(layers, sizes));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights&, CacheMemory& cache,
                                        const Bucket& bucket) override {
    for (const Node& node : graph.nodes()) {
      if (find_kernel(node.op)) continue;
      return fail(ErrorCode::unsupported, "the reference backend has no kernel for {}", op_name(node.op));
    }
    return std::unique_ptr<Plan>(
        std::make_unique<ReferencePlan>(graph, static_cast<ReferenceCache&>(cache), threads_, bucket));
  }

 private:
  ThreadPool threads_;
};

Result<std::unique_ptr<Backend>> open(int n_threads) {
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>(n_threads));
}

}  // namespace
}  // namespace reference

extern const BackendInfo k_reference = {
    .name = "reference", .summary = "float32 interpreter: slow, the oracle of the others", .open = reference::open};

}  // namespace zinc
