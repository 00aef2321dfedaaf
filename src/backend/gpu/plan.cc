#include "backend/gpu/plan.h"

#include <algorithm>
#include <cstring>

namespace zinc::gpu {

Status StepPlan::allocate(const LayoutOptions& options) {
  const auto make_workspace = [&](Device& device, const Bucket& bucket) {
    return options.make_workspace({graph_, weights_, cache_}, device, bucket);
  };
  const StepPlan* const other = static_cast<const StepPlan*>(bucket_.shares_memory_with);
  ZINC_TRY(memory, PlanMemory::allocate(graph_, bucket_, device_, make_workspace, options.has_batch_classes,
                                        other ? other->memory_.get() : nullptr));
  memory_ = std::move(memory);
  timed_kernels_.resize(classes().size());
  return ok_status();
}

Status StepPlan::start_preparing(bool on_demand) {
  on_demand_ = on_demand;
  preparer_ = std::make_unique<ClassPreparer>(classes().size(), [this](size_t c) { return prepare_class(c); });
  if (on_demand) return ok_status();
  const size_t one_token = 0, largest = classes().size() - 1;
  preparer_->request(one_token);
  preparer_->request(largest);
  for (size_t i = 0; i < classes().size(); ++i) preparer_->request(i);
  if (Status s = preparer_->wait_for(one_token); !s.ok()) return s;
  return preparer_->wait_for(largest);
}

// The smallest class that is ready: a step does not wait for its own class, because every class computes the same bits
// (ADR 0010), but it is prepared next. The largest is ready: start_preparing() waited for it.
Result<size_t> StepPlan::ready_class(const StepClass& step) {
  const size_t smallest = find_step_class(classes(), step);
  if (on_demand_) {
    if (Status s = preparer_->wait_for(smallest); !s.ok()) return s.error();
    return smallest;
  }
  const auto is_ready = [&](size_t i) {
    const Status* const prepared = preparer_->result(i);
    return prepared && prepared->ok() && classes()[i].fits(step);
  };
  if (!preparer_->result(smallest)) preparer_->prepare_next(smallest);
  size_t i = smallest;
  while (!is_ready(i)) ++i;
  return i;
}

void StepPlan::check(const StepInputs& in) const {
  const size_t n_tokens = in.tokens.size(), n_seqs = in.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && in.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(n_seqs <= n_tokens);
  ZINC_CHECK(in.positions.size() == n_tokens && in.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(in.logit_rows.size() <= in.output_rows.size());
  ZINC_CHECK(static_cast<size_t>(in.seq_begin[n_seqs]) == n_tokens && in.seq_begin[0] == 0);
  ZINC_CHECK(cache_.has_position(std::ranges::max(in.positions)));
  ZINC_CHECK(in.sampling.empty() || in.sampling.size() == in.output_rows.size());
  check_row_slots(in);
  check_rope_scalings(in, bucket_.n_rope_scalings);
  const size_t n_hidden = workspace(0).hidden_in_floats() * n_tokens;
  ZINC_CHECK(n_hidden == 0 || in.hidden.size() == n_hidden);
  ZINC_CHECK(n_started_ - n_waited_ < kMaxInFlight);
}

void StepPlan::measure_outputs(const StepInputs& in, InFlightStep& step) const {
  step.n_tokens = in.tokens.size();
  step.n_outputs = in.output_rows.size();
  step.n_logits = step.n_hidden = 0;
  if (!in.logit_rows.empty()) {
    step.n_logits = static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) * in.logit_rows.size();
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    step.n_hidden = step.n_tokens * static_cast<size_t>(graph_.info(graph_.hidden()).shape.elems());
  }
}

Status StepPlan::queue(const StepInputs& in, InFlightStep& step, size_t index) {
  if (cache_.failed_copy()) return *cache_.failed_copy();
  measure_outputs(in, step);
  ZINC_TRY(step_class, ready_class(class_of(in)));
  step.step_class = step_class;
  const Workspace& workspace = this->workspace(step.step_class);
  step.upload_ints = fill_upload(in, workspace.layout(), cache_, workspace.max_seqs(), upload_of(index));
  if (workspace.hidden_in_floats() > 0) {
    std::memcpy(buffers(index).hidden_in.host_ptr<float>(), in.hidden.data(), in.hidden.size_bytes());
  }
  return submit(in, index);
}

void StepPlan::start(const StepInputs& inputs) {
  check(inputs);
  const size_t index = n_started_++ % kMaxInFlight;
  InFlightStep& step = in_flight_[index];
  step.error.reset();
  if (bucket_.time_kernels) step.started = std::chrono::steady_clock::now();
  if (error_) return;
  const Status queued = queue(inputs, step, index);
  if (queued.ok()) return;
  step.error = queued.error();
  if (queued.error().code == ErrorCode::device_lost) error_ = queued.error();
}

Result<StepOutput> StepPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const size_t index = n_waited_++ % kMaxInFlight;
  const InFlightStep& step = in_flight_[index];
  if (error_) return *error_;
  if (step.error) return *step.error;
  if (Status s = wait_for(index); !s.ok()) {
    error_ = s.error();
    return *error_;
  }
  if (bucket_.keep_values) {
    if (Status s = keep_values(step); !s.ok()) return s.error();
  }
  if (bucket_.time_kernels) {
    if (Status s = keep_kernel_times(index); !s.ok()) return s.error();
  }
  const PlanMemory::StepBuffers& host = buffers(index);
  return StepOutput{{host.sampled.host_ptr<const int>(), step.n_outputs},
                    {host.logits.host_ptr<float>(), step.n_logits},
                    {host.hidden.host_ptr<const float>(), step.n_hidden}};
}

Status StepPlan::keep_values(const InFlightStep& step) {
  kept_values_.resize(workspace(step.step_class).arena().size() / sizeof(float));
  kept_step_ = step;
  return device_.read(workspace(step.step_class).arena(), 0, std::as_writable_bytes(std::span(kept_values_)));
}

// A step starts on the device when it is submitted, or when the one before it has ended.
Status StepPlan::keep_kernel_times(size_t index) {
  const KernelTime::Time begin = std::max(in_flight_[index].started, last_done_);
  last_done_ = std::chrono::steady_clock::now();
  ZINC_TRY(marks, read_kernel_marks(index));
  const auto at = [&](double ns) { return begin + std::chrono::nanoseconds(static_cast<int64_t>(ns)); };
  const std::vector<TimedKernel>& kernels = timed_kernels_[in_flight_[index].step_class];
  kernel_times_.clear();
  double begin_ns = 0;  // marks of kernels without a barrier between them may be out of order
  for (size_t i = 0; i + 1 < marks.size(); ++i) {
    const double end_ns = std::max(begin_ns, marks[i + 1]);
    kernel_times_.push_back({kernels[i].name, kernels[i].nodes, at(begin_ns), at(end_ns)});
    begin_ns = end_ns;
  }
  return ok_status();
}

void StepPlan::add_timed_kernel(size_t step_class, std::string name, const FusedCall* call) {
  TimedKernel kernel{std::move(name), {}};
  for (const Node* node : call ? call->nodes : std::vector<const Node*>()) {
    kernel.nodes.push_back(static_cast<int32_t>(node - graph_.nodes().data()));
  }
  timed_kernels_[step_class].push_back(std::move(kernel));
}

std::span<const float> StepPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? kept_step_.n_outputs : kept_step_.n_tokens;
  return std::span(kept_values_)
      .subspan(workspace(kept_step_.step_class).offset(v), n_rows * static_cast<size_t>(info.shape.elems()));
}

}  // namespace zinc::gpu
