#include "backend/gpu/plan.h"

#include <algorithm>
#include <cstring>

namespace zinc::gpu {

Status StepPlan::allocate_host_buffers(const Workspace& workspace) {
  workspace_ = &workspace;
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  const size_t hidden = workspace.hidden_in_floats() * static_cast<size_t>(bucket_.max_tokens);
  for (size_t i = 0; i < kMaxInFlight; ++i) {
    InFlightStep& step = in_flight_[i];
    if (Status s = grow(step.upload, workspace.layout().n_ints * sizeof(int), Memory::upload, i); !s.ok()) return s;
    if (Status s = grow(step.hidden_in, hidden * sizeof(float), Memory::upload, i); !s.ok()) return s;
    if (Status s = grow(step.sampled, n_outputs * sizeof(int), Memory::readback, i); !s.ok()) return s;
    // One row; grows when more are requested.
    if (Status s = grow(step.logits, vocab * sizeof(float), Memory::readback, i); !s.ok()) return s;
  }
  return ok_status();
}

// REQUIRES: the step is not in flight.
Status StepPlan::grow(Buffer& buffer, size_t n_bytes, Memory kind, size_t index) {
  if (n_bytes <= buffer.size()) return ok_status();
  ZINC_TRY(larger, device_.allocate(n_bytes, "step inputs and outputs", kind));
  buffer = std::move(larger);
  on_reallocated(index);
  return ok_status();
}

void StepPlan::check(const StepInputs& in) const {
  const size_t n_tokens = in.tokens.size(), n_seqs = in.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && in.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(in.positions.size() == n_tokens && in.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(static_cast<size_t>(in.seq_begin[n_seqs]) == n_tokens && in.seq_begin[0] == 0);
  ZINC_CHECK(cache_.has_position(std::ranges::max(in.positions)));
  ZINC_CHECK(in.sampling.empty() || (in.sampling.size() == in.output_rows.size() && in.sampling.size() <= n_seqs));
  const size_t n_hidden = workspace_->hidden_in_floats() * n_tokens;
  ZINC_CHECK(n_hidden == 0 || in.hidden.size() == n_hidden);
  ZINC_CHECK(n_started_ - n_waited_ < kMaxInFlight);
}

// Called before any work is queued, so that a step that runs out of memory has no effect.
Status StepPlan::reserve_outputs(const StepInputs& in, size_t index) {
  InFlightStep& step = in_flight_[index];
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
  if (Status s = grow(step.logits, step.n_logits * sizeof(float), Memory::readback, index); !s.ok()) return s;
  return grow(step.hidden, step.n_hidden * sizeof(float), Memory::readback, index);
}

Status StepPlan::queue(const StepInputs& in, size_t index) {
  if (cache_.failed_copy()) return *cache_.failed_copy();
  if (Status s = reserve_outputs(in, index); !s.ok()) return s;
  InFlightStep& step = in_flight_[index];
  step.upload_ints = fill_upload(in, workspace_->layout(), cache_, bucket_.max_seqs, upload_of(index));
  if (workspace_->hidden_in_floats() > 0) {
    std::memcpy(step.hidden_in.host_ptr<float>(), in.hidden.data(), in.hidden.size_bytes());
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
  const Status queued = queue(inputs, index);
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
  return StepOutput{{step.sampled.host_ptr<const int>(), step.n_outputs},
                    {step.logits.host_ptr<float>(), step.n_logits},
                    {step.hidden.host_ptr<const float>(), step.n_hidden}};
}

Status StepPlan::keep_values(const InFlightStep& step) {
  kept_values_.resize(workspace_->arena().size() / sizeof(float));
  kept_tokens_ = step.n_tokens;
  kept_outputs_ = step.n_outputs;
  return device_.read(workspace_->arena(), 0, std::as_writable_bytes(std::span(kept_values_)));
}

// A step starts on the device when it is submitted, or when the one before it has ended.
Status StepPlan::keep_kernel_times(size_t index) {
  const KernelTime::Time begin = std::max(in_flight_[index].started, last_done_);
  last_done_ = std::chrono::steady_clock::now();
  ZINC_TRY(times, read_device_times(index));
  const auto at = [&](double ns) { return begin + std::chrono::nanoseconds(static_cast<int64_t>(ns)); };
  kernel_times_.clear();
  for (const DeviceTime& time : times) {
    kernel_times_.push_back({time.kernel->name, time.kernel->nodes, at(time.begin_ns), at(time.end_ns)});
  }
  return ok_status();
}

std::span<const float> StepPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? kept_outputs_ : kept_tokens_;
  return std::span(kept_values_).subspan(workspace_->offset(v), n_rows * static_cast<size_t>(info.shape.elems()));
}

}  // namespace zinc::gpu
