#include "backend/reference/reference_plan.h"

#include <algorithm>

#include "graph/memory_plan.h"

namespace zinc::reference {

Result<std::unique_ptr<Plan>> ReferencePlan::compile(const Graph& graph, ReferenceCache& cache, ThreadPool& threads,
                                                     AllocateBuffer allocate_buffer, const Bucket& bucket) {
  std::unique_ptr<ReferencePlan> plan(new ReferencePlan(graph, cache, threads, bucket));
  if (Status s = plan->prepare(allocate_buffer); !s.ok()) return s.error();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status ReferencePlan::prepare(AllocateBuffer allocate_buffer) {
  const MemoryPlan plan = plan_memory(graph_, bucket_.max_tokens, bucket_.max_outputs, bucket_.keep_values);
  const size_t n_bytes = std::max<size_t>(1, plan.n_elems) * sizeof(float);
  const ReferencePlan* const other = static_cast<const ReferencePlan*>(bucket_.shares_memory_with);
  if (other && other->arena_->size() >= n_bytes) {
    arena_ = other->arena_;
  } else {
    arena_ = std::make_shared<AlignedBuffer>(allocate_buffer(n_bytes));
    own_arena_bytes_ = arena_->size();
  }
  if (arena_->size() < n_bytes) {
    return fail(ErrorCode::out_of_memory, "out of memory: cannot allocate {} bytes for activations", n_bytes);
  }
  for (int i = 0; i < graph_.n_values(); ++i) {
    const bool is_weight = graph_.info(Value{i}).is_weight();
    data_.push_back(is_weight ? nullptr : arena_->as<float>() + plan.offsets[static_cast<size_t>(i)]);
  }
  for (const Node& node : graph_.nodes()) kernels_.push_back(find_kernel(node.op));
  const size_t n_tokens = static_cast<size_t>(bucket_.max_tokens), n_outputs = static_cast<size_t>(bucket_.max_outputs);
  const auto floats_of = [&](Value v) { return v ? static_cast<size_t>(graph_.info(v).shape.elems()) : 0; };
  tokens_.reserve(n_tokens);
  seq_of_token_.reserve(n_tokens);
  for (StepResult& result : results_) {
    result.sampled.reserve(n_outputs);
    result.logits.reserve(n_outputs * floats_of(graph_.logits()));
    result.hidden.reserve(n_tokens * floats_of(graph_.hidden()));
  }
  return ok_status();
}

size_t ReferencePlan::device_bytes() const {
  const auto bytes_of = [](const auto& vector) { return vector.capacity() * sizeof(vector[0]); };
  size_t n = own_arena_bytes_ + bytes_of(data_) + bytes_of(kernels_) + bytes_of(tokens_) + bytes_of(seq_of_token_);
  for (const StepResult& result : results_) {
    n += bytes_of(result.sampled) + bytes_of(result.logits) + bytes_of(result.hidden);
  }
  return n;
}

void ReferencePlan::check(const StepInputs& in) const {
  const size_t n_tokens = in.tokens.size(), n_seqs = in.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && in.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(in.positions.size() == n_tokens && in.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(static_cast<size_t>(in.seq_begin[n_seqs]) == n_tokens && in.seq_begin[0] == 0);
  ZINC_CHECK(n_started_ - n_waited_ < results_.size());
  check_row_slots(in);
  check_rope_scalings(in, bucket_.n_rope_scalings);
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
  store_result(resolved);
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

void ReferencePlan::store_result(const StepInputs& in) {
  StepResult& result = results_[n_started_++ % results_.size()];
  result.logits.clear();
  result.hidden.clear();
  result.sampled.clear();
  const StepState step{graph_, in, cache_, threads_, data_, seq_of_token_};
  if (n_outputs_ > 0) {
    const std::span<const int32_t> sampled = step.i32(graph_.nodes().back().out[0]);
    result.sampled.assign(sampled.begin(), sampled.end());
  }
  for (int32_t r : in.logit_rows) {
    const std::span<const float> row = step.row(graph_.logits(), r);
    result.logits.insert(result.logits.end(), row.begin(), row.end());
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    const std::span<const float> hidden = step.f32(graph_.hidden());
    result.hidden.assign(hidden.begin(), hidden.end());
  }
  for (size_t r = 0; r < n_outputs_; ++r) {
    const size_t seq = static_cast<size_t>(seq_of_token_[static_cast<size_t>(in.output_rows[r])]);
    cache_.last_sampled(in.slots[seq]) = result.sampled[r];
  }
}

Result<StepOutput> ReferencePlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  StepResult& result = results_[n_waited_++ % results_.size()];
  return StepOutput{result.sampled, result.logits, result.hidden};
}

std::span<const float> ReferencePlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? n_outputs_ : n_tokens_;
  return {data_[static_cast<size_t>(v.id)], n_rows * static_cast<size_t>(info.shape.elems())};
}

}  // namespace zinc::reference
