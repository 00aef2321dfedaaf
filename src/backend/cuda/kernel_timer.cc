#include "backend/cuda/kernel_timer.h"

namespace zinc::cuda {

KernelTimer::~KernelTimer() {
  for (const StepClass& step_class : classes_) {
    for (const TimedGraph& graph : step_class.graphs) {
      if (graph.exec) device_.api().destroy_exec(graph.exec);
      for (const Event event : graph.events) device_.api().destroy_event(event);
    }
  }
}

Status KernelTimer::add_class(std::span<const KernelCall> calls, const std::vector<Launch>& launches) {
  StepClass& added = classes_.emplace_back();
  for (const KernelCall& call : calls) {
    const std::string& format = call.program.format;
    added.kernels.push_back(
        {format.empty() ? call.kernel : call.kernel + " " + format, gpu::node_indices(graph_, call.call)});
  }
  for (size_t index = 0; index < running_.size(); ++index) {
    TimedGraph& graph = added.graphs.emplace_back();
    for (size_t i = 0; i <= launches.size(); ++i) {
      Event event = nullptr;
      if (Status s = device_.check(device_.api().create_event(&event, 0), "creating an event"); !s.ok()) return s;
      graph.events.push_back(event);
    }
    ZINC_TRY(exec, device_.capture(launches, graph.events));
    graph.exec = exec;
  }
  return ok_status();
}

GraphExec KernelTimer::graph(size_t step_class, size_t index) {
  running_[index] = step_class;
  return classes_[step_class].graphs[index].exec;
}

Result<std::vector<gpu::DeviceTime>> KernelTimer::read(size_t index) const {
  constexpr double kNsPerMs = 1e6;
  const StepClass& step_class = classes_[running_[index]];
  const std::vector<Event>& events = step_class.graphs[index].events;
  std::vector<gpu::DeviceTime> times;
  double begin_ns = 0;
  for (size_t i = 0; i < step_class.kernels.size(); ++i) {
    float ms = 0;
    if (Status s = device_.check(device_.api().elapsed_ms(&ms, events[0], events[i + 1]), "timing a kernel"); !s.ok()) {
      return s.error();
    }
    times.push_back({&step_class.kernels[i], begin_ns, ms * kNsPerMs});
    begin_ns = times.back().end_ns;
  }
  return times;
}

}  // namespace zinc::cuda
