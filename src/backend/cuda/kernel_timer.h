// The graphs of a plan with Bucket::time_kernels: an event before the first and after each launch. Launches do not
// overlap (no programmatic dependent launch), so that each time is one kernel's; a step is slower than without.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/gpu/kernel_times.h"

namespace zinc::cuda {

class KernelTimer {
 public:
  KernelTimer(const Graph& graph, const Device& device, size_t max_in_flight)
      : graph_(graph), device_(device), running_(max_in_flight) {}
  ~KernelTimer();
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;

  Status add_class(std::span<const KernelCall> calls, const std::vector<Launch>& launches);
  // The graph of a step that is about to be launched: each in-flight step has its own events.
  GraphExec graph(size_t step_class, size_t index);
  Result<std::vector<gpu::DeviceTime>> read(size_t index) const;  // after the step

 private:
  struct TimedGraph {
    std::vector<Event> events;
    GraphExec exec = nullptr;
  };
  struct StepClass {
    std::vector<gpu::KernelName> kernels;
    std::vector<TimedGraph> graphs;  // per in-flight step
  };
  const Graph& graph_;
  const Device& device_;
  std::vector<StepClass> classes_;
  std::vector<size_t> running_;  // the class of each in-flight step
};

}  // namespace zinc::cuda
