#include "engine/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/model_runner.h"

namespace zinc {
namespace {

double seconds_of(const KernelTime& kernel) { return std::chrono::duration<double>(kernel.end - kernel.begin).count(); }

// "q8_0 1024x3072", "q8_0 1024x(2048+1024+1024)"; empty: no matrix.
std::string matrices_of(const Graph& graph, std::span<const int32_t> nodes) {
  std::string format, n_in, n_out;
  for (const int32_t i : nodes) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    if (node.op != Op::linear && node.op != Op::moe_linear) continue;
    const ValueInfo& weight = graph.info(node.in[1]);
    const std::string name(weight.weight.format->name);
    if (format.find(name) == std::string::npos) format += (format.empty() ? "" : "+") + name;
    n_in = fmt::format("{}", weight.shape.inner());
    n_out += fmt::format("{}{}", n_out.empty() ? "" : "+", weight.shape.elems() / weight.shape.inner());
  }
  if (format.empty()) return "";
  const bool is_sum = n_out.find('+') != std::string::npos;
  return fmt::format("{} {}x{}{}{}", format, n_in, is_sum ? "(" : "", n_out, is_sum ? ")" : "");
}

// Kernels at the same nodes (prepare_heads, attention_units) count as one call.
class KernelTable {
 public:
  KernelTable(const Graph& graph, const BatchShape& shape) : graph_(graph), cost_(cost_graph(graph, shape, {})) {}

  void add_step(std::span<const KernelTime> times) {
    struct Sum {
      double seconds = 0, bytes = 0;
      int n_calls = 0;
    };
    std::map<std::string, Sum> sums;  // by name: attention of windows and of whole contexts may share one
    for (size_t i = 0; i < times.size();) {
      size_t end = i;
      double seconds = 0;
      std::string name;
      for (; end < times.size() && is_same_call(times[i], times[end]); ++end) {
        seconds += seconds_of(times[end]);
        if (name.find(times[end].name) == std::string::npos)
          name += (name.empty() ? "" : " + ") + std::string(times[end].name);
      }
      if (const std::string matrices = matrices_of(graph_, times[i].nodes); !matrices.empty()) name += " " + matrices;
      Sum& sum = sums[name];
      sum.seconds += seconds;
      sum.bytes += bytes_of(times[i].nodes);
      ++sum.n_calls;
      i = end;
    }
    for (const auto& [name, sum] : sums) {
      KernelFigures& figures = figures_[name];
      figures.n_calls = sum.n_calls;
      figures.bytes_per_call = sum.bytes / sum.n_calls;
      figures.seconds_per_call.values.push_back(sum.seconds / sum.n_calls);
    }
    result_.step_seconds.values.push_back(
        std::chrono::duration<double>(times.back().end - times.front().begin).count());
  }

  KernelBenchResult finish() {
    double total = 0;
    for (auto& [name, figures] : figures_) {
      figures.name = name;
      figures.step_share = figures.seconds_per_call.median() * figures.n_calls;
      total += figures.step_share;
    }
    for (auto& [name, figures] : figures_) {
      if (total > 0) figures.step_share /= total;
      result_.kernels.push_back(figures);
    }
    std::ranges::sort(result_.kernels, std::greater(), &KernelFigures::step_share);
    return std::move(result_);
  }

 private:
  static bool is_same_call(const KernelTime& a, const KernelTime& b) {
    return &a == &b || (!a.nodes.empty() && std::ranges::equal(a.nodes, b.nodes));
  }
  double bytes_of(std::span<const int32_t> nodes) const {
    double bytes = 0;
    for (const int32_t i : nodes) bytes += cost_.nodes[static_cast<size_t>(i)].cost.weight_and_cache_bytes();
    return bytes;
  }

  const Graph& graph_;
  GraphCost cost_;
  std::map<std::string, KernelFigures> figures_;
  KernelBenchResult result_;
};

}  // namespace

Result<KernelBenchResult> measure_kernels(const ModelInstance& model, const KernelBenchOptions& options) {
  const int n_step = std::max(options.n_tokens, std::min(options.depth, model.backend_info().step_tokens));
  ZINC_TRY(runner,
           ModelRunner::create(
               model, {.context = options.depth + options.n_tokens, .step_tokens = n_step, .time_kernels = true}));
  if (Status s = runner.wait_until_prepared(); !s.ok()) return s.error();
  std::minstd_rand random(1);  // equal tokens would be routed to the same experts
  const auto n_vocab = static_cast<unsigned>(model.model().config.vocab_size);
  std::vector<TokenId> tokens(static_cast<size_t>(n_step));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % n_vocab);
  const auto feed = [&](int n) -> Status {
    if (options.cancelled && options.cancelled()) return fail(ErrorCode::cancelled, "interrupted");
    const Result<std::span<float>> fed = runner.feed(std::span(tokens).first(static_cast<size_t>(n)));
    return fed.ok() ? ok_status() : Status(fed.error());
  };
  while (runner.position() < options.depth) {
    if (Status s = feed(std::min(n_step, options.depth - runner.position())); !s.ok()) return s.error();
  }
  KernelTable table(model.model().graph,
                    {.n_tokens = options.n_tokens, .depth = options.depth, .kv_format = &model.kv_format()});
  for (int i = 0; i < options.n_warm_up + options.n_steps; ++i) {
    runner.move_to(options.depth);
    if (Status s = feed(options.n_tokens); !s.ok()) return s.error();
    const std::span<const KernelTime> times = runner.plan().kernel_times();
    if (times.empty()) {
      return fail(ErrorCode::unsupported, "the {} backend does not measure the times of its kernels",
                  model.backend_name());
    }
    if (i >= options.n_warm_up) table.add_step(times);
  }
  return table.finish();
}

}  // namespace zinc
