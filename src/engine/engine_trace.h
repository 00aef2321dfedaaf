// Writes an engine's work to a Trace: requests, scheduler decisions, cache use, steps and kernels. Engine thread only.
#pragma once

#include <map>

#include "engine/engine_stats.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "engine/step_trace.h"

namespace zinc {

class EngineTrace {
 public:
  using Time = Trace::Time;
  EngineTrace(const TraceOptions& options, const Graph& graph);

  void add_admission(const RequestState& request);  // the first time
  void add_preemption(const RequestState& request);
  void add_resumption(const RequestState& request);
  enum class Deferral : uint8_t { memory, shared_prefix };
  void add_deferral(RequestId id, Deferral why);  // once per request and reason
  // What the scheduler put into a step: prefill chunks and decode rows of which requests.
  void add_decision(uint64_t step, std::span<const ScheduledSequence> sequences, const Scheduler& scheduler);
  void add_host_work(std::string_view what, Time begin, Time end) { steps_.add_host_work(what, begin, end); }
  void add_step(const StepTrace::Step& step, std::span<const KernelTime> kernels) { steps_.add_step(step, kernels); }
  bool times_kernels() const { return steps_.times_kernels(); }
  void add_end(const RequestState& request, const Outcome& outcome);
  void add_stats(const EngineStats& stats);  // after a step: counters, evictions

 private:
  Trace& trace_;
  StepTrace steps_;
  RequestTrace requests_;
  Trace::Track scheduler_;
  std::map<RequestId, Deferral> deferred_;  // waiting requests
  uint64_t n_evicted_pages_ = 0;
};

}  // namespace zinc
