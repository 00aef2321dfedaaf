// The host side of a plan on a GPU: checks a step's inputs, writes its upload, keeps two steps in flight and returns
// their outputs. A backend derives its plan, which prepares step classes and submits the kernels of a step.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/class_preparer.h"
#include "backend/gpu/layout_backend.h"
#include "backend/gpu/plan_memory.h"

namespace zinc::gpu {

class StepPlan : public Plan {
 public:
  ~StepPlan() override { ZINC_CHECK(!preparer_); }
  void start(const StepInputs& inputs) final;
  Result<StepOutput> wait() final;
  std::span<const float> value(Value v) const final;
  std::span<const KernelTime> kernel_times() const final { return kernel_times_; }
  size_t device_bytes() const override { return memory_->device_bytes(); }
  Status wait_until_prepared() final { return preparer_->wait_for_requested(); }

 protected:
  static constexpr size_t kMaxInFlight = PlanMemory::kMaxInFlight;
  struct InFlightStep {
    size_t step_class = 0;
    size_t n_tokens = 0, n_outputs = 0, n_logits = 0, n_hidden = 0;
    size_t upload_ints = 0;      // used of the upload
    std::optional<Error> error;  // why it could not be started
    KernelTime::Time started;
  };

  StepPlan(const Graph& graph, const Weights& weights, Cache& cache, Device& device, const Bucket& bucket)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), bucket_(bucket) {}

  Status allocate(const LayoutOptions& options);
  // Prepares all step classes on a thread; returns when those of one token and of the largest step are ready: they
  // contain all ops, and every step fits one of them. `on_demand`: none; a step waits until its class is prepared.
  Status start_preparing(bool on_demand);
  // REQUIRED in the destructor of a derived class: the thread calls prepare_class().
  void stop_preparing() { preparer_.reset(); }
  bool times_kernels() const { return bucket_.time_kernels; }
  const std::vector<StepClass>& classes() const { return memory_->classes(); }
  const Workspace& workspace(size_t step_class) const { return memory_->workspace(step_class); }
  const InFlightStep& in_flight(size_t index) const { return in_flight_[index]; }
  const PlanMemory::StepBuffers& buffers(size_t index) const { return memory_->step(index); }
  int* upload_of(size_t index) const { return buffers(index).upload.host_ptr<int>(); }
  // The next kernel of a class: its name and the nodes that it computes; nullptr: it prepares the step.
  void add_timed_kernel(size_t step_class, std::string name, const FusedCall* call);

  // Compiles and records a class. On the preparing thread, once per class.
  virtual Status prepare_class(size_t step_class) = 0;
  // Queues the step's kernels and the copies of its outputs. The upload is complete but for the backend's own arrays,
  // and the step's class is prepared.
  virtual Status submit(const StepInputs& in, size_t index) = 0;
  virtual Status wait_for(size_t index) = 0;
  // With Bucket::time_kernels, after wait_for(index): when the step's first kernel started and when each one ended, in
  // nanoseconds of the device's clock since the former. Empty: the device has no clock.
  virtual Result<std::vector<double>> read_kernel_marks(size_t index) = 0;

  const Graph& graph_;
  const Weights& weights_;
  Cache& cache_;

 private:
  void check(const StepInputs& in) const;
  Result<size_t> ready_class(const StepClass& step);
  Status queue(const StepInputs& in, InFlightStep& step, size_t index);
  void measure_outputs(const StepInputs& in, InFlightStep& step) const;
  Status keep_values(const InFlightStep& step);
  Status keep_kernel_times(size_t index);

  struct TimedKernel {
    std::string name;
    std::vector<int32_t> nodes;  // that it computes
  };
  Device& device_;
  Bucket bucket_;
  std::unique_ptr<PlanMemory> memory_;
  std::array<InFlightStep, kMaxInFlight> in_flight_;  // step k uses entry k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::optional<Error> error_;      // the device is lost: every later step fails with it
  std::vector<float> kept_values_;  // with Bucket::keep_values: all activations of the last finished step
  InFlightStep kept_step_;
  std::vector<std::vector<TimedKernel>> timed_kernels_;  // with Bucket::time_kernels: per class
  std::vector<KernelTime> kernel_times_;                 // of the last finished step
  KernelTime::Time last_done_;
  bool on_demand_ = false;
  std::unique_ptr<ClassPreparer> preparer_;
};

}  // namespace zinc::gpu
