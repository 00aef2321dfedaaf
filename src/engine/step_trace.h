// Writes the steps of one model to a Trace: a track for the host's work (upload, wait, sampling) and one for the
// device, with its steps and, inside them, their kernels. Used by the thread that runs the steps.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/plan.h"
#include "base/trace.h"

namespace zinc {

struct TraceOptions {
  Trace* trace = nullptr;    // nullptr: off. Must outlive the engine or sequence
  std::string name = {};     // of the tracks' group
  bool time_kernels = true;  // else steps only: on a GPU, timed kernels do not overlap, so that steps are slower
};

inline constexpr std::string_view kHostTrack = "host";

class StepTrace {
 public:
  using Time = Trace::Time;
  StepTrace(const TraceOptions& options, const Graph& graph);  // REQUIRES: options.trace is set

  void add_host_work(std::string_view what, Time begin, Time end) { trace_.add_span(host_, what, begin, end); }
  struct Step {
    uint64_t number = 0;  // from 1
    int n_tokens = 0;
    Time begin, end;  // if the times of the kernels are not known
  };
  void add_step(const Step& step, std::span<const KernelTime> kernels);
  bool times_kernels() const { return times_kernels_; }

 private:
  struct Label {
    Trace::TextId name, args;
  };
  const Label& label_of(const KernelTime& kernel);

  Trace& trace_;
  const Graph& graph_;
  bool times_kernels_;
  Trace::Track host_, device_;
  std::unordered_map<const void*, Label> labels_;  // by KernelTime::nodes, or its name if it has none
};

// Times of a request; Time() for a phase that it did not reach.
struct RequestTimes {
  Trace::Time submitted, admitted, first_token, ended;
};

// Requests of one model: a span each, with its phases (queued, prefill, decode) inside. A request gets the first track
// that is free for its whole duration.
class RequestTrace {
 public:
  explicit RequestTrace(const TraceOptions& options) : trace_(*options.trace), group_(options.name + " requests") {}
  void add(uint64_t id, const RequestTimes& times, std::string_view reason, std::string_view args);

 private:
  Trace::Track find_track(Trace::Time begin, Trace::Time end);

  Trace& trace_;
  std::string group_;
  std::vector<std::pair<Trace::Track, Trace::Time>> tracks_;  // and when they are free
};

}  // namespace zinc
