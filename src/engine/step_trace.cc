#include "engine/step_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/pluralize.h"

namespace zinc {
namespace {

// Weights of the nodes: "blk.3.attn_q.weight q4_k [4096, 4096]".
json::array weights_of(const Graph& graph, std::span<const int32_t> nodes) {
  json::array weights;
  for (const int32_t i : nodes) {
    for (const Value v : graph.nodes()[static_cast<size_t>(i)].in) {
      if (!v || !graph.info(v).is_weight()) continue;
      const ValueInfo& info = graph.info(v);
      weights.emplace_back(fmt::format("{} {} {}", info.name, info.weight.format->name, info.shape.to_string()));
    }
  }
  return weights;
}

}  // namespace

StepTrace::StepTrace(const TraceOptions& options, const Graph& graph)
    : trace_(*options.trace),
      graph_(graph),
      times_kernels_(options.time_kernels),
      host_(trace_.add_track(options.name, kHostTrack)),
      device_(trace_.add_track(options.name, "device")) {}

const StepTrace::Label& StepTrace::label_of(const KernelTime& kernel) {
  const void* const key = kernel.nodes.empty() ? static_cast<const void*>(kernel.name.data()) : kernel.nodes.data();
  if (const auto known = labels_.find(key); known != labels_.end()) return known->second;
  std::string name(kernel.name);
  json::object args;
  if (!kernel.nodes.empty()) {
    const Node& first = graph_.nodes()[static_cast<size_t>(kernel.nodes.front())];
    const Value weight = first.in[1];
    const bool is_matmul = first.op == Op::linear || first.op == Op::moe_linear;
    if (name == op_name(first.op) && is_matmul) name += fmt::format(" {}", graph_.info(weight).weight.format->name);
    args["op"] = op_name(first.op);
    if (first.layer >= 0) args["layer"] = first.layer;
    args["nodes"] = json::array(kernel.nodes.begin(), kernel.nodes.end());
    args["weights"] = weights_of(graph_, kernel.nodes);
  }
  const Label label{trace_.intern(name), trace_.intern(args.empty() ? "" : to_json(args))};
  return labels_.emplace(key, label).first->second;
}

void StepTrace::add_step(const Step& step, std::span<const KernelTime> kernels) {
  const Time begin = kernels.empty() ? step.begin : kernels.front().begin;
  const Time end = kernels.empty() ? step.end : kernels.back().end;
  trace_.add_span(device_, fmt::format("step {}: {}", step.number, pluralize(step.n_tokens, "token")), begin, end);
  for (const KernelTime& kernel : kernels) {
    const Label& label = label_of(kernel);
    trace_.add_kernel(device_, label.name, kernel.begin, kernel.end, label.args);
  }
}

Trace::Track RequestTrace::find_track(Trace::Time begin, Trace::Time end) {
  auto found = std::ranges::find_if(tracks_, [&](const auto& entry) { return entry.second <= begin; });
  if (found == tracks_.end()) {
    tracks_.emplace_back(trace_.add_track(group_, fmt::format("row {}", tracks_.size())), end);
    return tracks_.back().first;
  }
  found->second = end;
  return found->first;
}

void RequestTrace::add(uint64_t id, const RequestTimes& times, std::string_view reason, std::string_view args) {
  const Trace::Time none;
  const Trace::Track track = find_track(times.submitted, times.ended);
  const auto or_end = [&](Trace::Time at) { return at == none ? times.ended : at; };
  trace_.add_span(track, fmt::format("request {}: {}", id, reason), times.submitted, times.ended, args);
  if (or_end(times.admitted) > times.submitted) {
    trace_.add_span(track, "queued", times.submitted, or_end(times.admitted));
  }
  if (times.admitted != none) trace_.add_span(track, "prefill", times.admitted, or_end(times.first_token));
  if (times.first_token != none) trace_.add_span(track, "decode", times.first_token, times.ended);
  trace_.add_instant(track, fmt::format("finish: {}", reason), times.ended);
}

}  // namespace zinc
