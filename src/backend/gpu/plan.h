// The host side of a plan on a GPU: checks a step's inputs, writes its upload, keeps two steps in flight and returns
// their outputs. A backend derives its plan, which submits the kernels of a step.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "backend/gpu/kernel_times.h"
#include "backend/gpu/step_class.h"
#include "backend/gpu/workspace.h"

namespace zinc::gpu {

class StepPlan : public Plan {
 public:
  void start(const StepInputs& inputs) final;
  Result<StepOutput> wait() final;
  std::span<const float> value(Value v) const final;
  std::span<const KernelTime> kernel_times() const final { return kernel_times_; }

 protected:
  static constexpr size_t kMaxInFlight = 2;
  // Host buffers and state of a step in flight.
  struct InFlightStep {
    Buffer upload, hidden_in, sampled, logits, hidden;
    size_t n_tokens = 0, n_outputs = 0, n_logits = 0, n_hidden = 0;
    size_t upload_ints = 0;      // used of the upload
    std::optional<Error> error;  // why it could not be started
    KernelTime::Time started;
  };

  StepPlan(const Graph& graph, Cache& cache, Device& device, const Bucket& bucket)
      : graph_(graph), cache_(cache), device_(device), bucket_(bucket), classes_(step_classes(bucket)) {}

  Status allocate_host_buffers(const Workspace& workspace);  // REQUIRES: the workspace outlives the plan
  const InFlightStep& in_flight(size_t index) const { return in_flight_[index]; }
  int* upload_of(size_t index) const { return in_flight_[index].upload.host_ptr<int>(); }
  const std::vector<StepClass>& classes() const { return classes_; }

  // Queues the step's kernels and the copies of its outputs. The upload is complete but for the backend's own arrays.
  virtual Status submit(const StepInputs& in, size_t index) = 0;
  virtual Status wait_for(size_t index) = 0;
  virtual void on_reallocated([[maybe_unused]] size_t index) {}  // buffers of in_flight(index) have moved
  // With Bucket::time_kernels, after wait_for(index): the times of the step's kernels.
  virtual Result<std::vector<DeviceTime>> read_device_times(size_t index) = 0;

  const Graph& graph_;
  Cache& cache_;

 private:
  void check(const StepInputs& in) const;
  Status queue(const StepInputs& in, size_t index);
  Status reserve_outputs(const StepInputs& in, size_t index);
  Status grow(Buffer& buffer, size_t n_bytes, Memory kind, size_t index);
  Status keep_values(const InFlightStep& step);
  Status keep_kernel_times(size_t index);

  Device& device_;
  Bucket bucket_;
  std::vector<StepClass> classes_;
  const Workspace* workspace_ = nullptr;
  std::array<InFlightStep, kMaxInFlight> in_flight_;  // step k uses entry k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::optional<Error> error_;      // the device is lost: every later step fails with it
  std::vector<float> kept_values_;  // with Bucket::keep_values: all activations of the last finished step
  size_t kept_tokens_ = 0, kept_outputs_ = 0;
  std::vector<KernelTime> kernel_times_;  // with Bucket::time_kernels: of the last finished step
  KernelTime::Time last_done_;
};

}  // namespace zinc::gpu
