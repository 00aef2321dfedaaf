// `zinc graph`: the compute graph of a model, as JSON, DOT or a cost table, or the kernels of a step on a GPU. Reads
// only metadata and shapes; costs are relative to the default device's measured peaks, unless --bandwidth and --flops
// give others.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "base/sanitize_for_terminal.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/kernel_report.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "gguf/gguf_file.h"
#include "graph/cost_table.h"
#include "graph/graph_export.h"
#include "model/model.h"

namespace zinc::command_graph {
namespace {

constexpr int64_t kMaxCount = 1 << 30;  // tokens, sequences and positions
constexpr size_t kMaxTitleBytes = 4096;

struct Options {
  std::string model;
  bool json = false, dot = false, cost = false, kernels = false, draft = false, weights = false;
  BatchShape step;
  std::optional<double> bandwidth_gb, gflops;  // unset: measured
  std::string kv_format = "f16";
  std::string device = "cuda:h200";  // of --kernels
};

// The given peaks; others are measured on the default backend's device.
RooflinePeaks peaks_of(const Options& options) {
  RooflinePeaks peaks;
  if (!options.bandwidth_gb || !options.gflops) {
    if (const Result<std::unique_ptr<Backend>> backend = default_backend().open(default_thread_count()); backend.ok()) {
      const DevicePeaks measured = backend.value()->measure_peaks();
      if (measured.read_bytes_per_s > 0) peaks.bytes_per_s = measured.read_bytes_per_s;
      if (measured.flops_per_s > 0) peaks.flops_per_s = measured.flops_per_s;
    }
  }
  if (options.bandwidth_gb) peaks.bytes_per_s = *options.bandwidth_gb * 1e9;
  if (options.gflops) peaks.flops_per_s = *options.gflops * 1e9;
  return peaks;
}

// The kernels of a step on a GPU that need not be present.
Result<std::string> describe_kernels(const Options& options, const Graph& graph, const BatchShape& step,
                                     const std::string& title) {
  ZINC_TRY(backend, find_backend(options.device));
  if (!backend->step_kernels) {
    return fail(ErrorCode::invalid_input, "the {} backend is not for GPUs; use --device cuda:h200 or vulkan:h200",
                backend->name);
  }
  const size_t colon = options.device.find(':');
  const std::string gpu = colon == std::string::npos ? "" : options.device.substr(colon + 1);
  ZINC_TRY(kernels, backend->step_kernels(gpu, graph, step));
  if (options.bandwidth_gb) kernels.peaks.bytes_per_s = *options.bandwidth_gb * 1e9;
  if (options.gflops) kernels.peaks.flops_per_s = *options.gflops * 1e9;
  return options.json ? to_pretty_json(kernels_to_json(kernels, title)) + "\n" : kernel_table(kernels, title);
}

Result<std::string> describe(const Options& options) {
  ZINC_TRY(path, model_file(options.model));
  const std::string name = options.model.empty() ? path.string() : options.model;
  ZINC_TRY(file, GgufFile::open(path));
  ZINC_TRY(model, read_model(file, options.draft ? Draft::load : Draft::skip));
  if (options.draft && !model.draft) {
    return fail(ErrorCode::not_found, "{}: the file has no draft (MTP) block; omit --draft", name);
  }
  const Graph& graph = options.draft ? *model.draft : model.graph;
  const std::string title = fmt::format("{} ({}{})", sanitize_for_terminal(name, kMaxTitleBytes),
                                        model.architecture->gguf_name, options.draft ? ", draft" : "");
  if (options.dot) return graph_to_dot(graph, title, {.weights = options.weights});
  if (options.step.n_tokens < options.step.n_seqs) {
    return fail(ErrorCode::invalid_input, "--tokens {} is less than --sequences {}; each sequence needs a token",
                options.step.n_tokens, options.step.n_seqs);
  }
  BatchShape step = options.step;
  step.kv_format = find_format(options.kv_format);
  if (Status fits = check_kv_blocks(*step.kv_format, graph.caches()); !fits.ok()) return fits.error();
  if (options.kernels) return describe_kernels(options, graph, step, title);
  const GraphCost cost = cost_graph(graph, step, peaks_of(options));
  if (options.json) return to_pretty_json(graph_to_json(graph, cost, title)) + "\n";
  return title + "\n" + cost_table(graph, cost);
}

std::function<Status()> declare(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("model", options->model, kOptionalModelHelp);
  const auto format = [&app](const char* name, bool& flag, const char* help) {
    return app.add_flag(name, flag, help)->group("Output format");
  };
  CLI::Option* const json = format("--json", options->json, "every node, edge and cost, as JSON");
  CLI::Option* const dot = format("--dot", options->dot, "the graph for Graphviz: dot -Tsvg")->excludes(json);
  format("--cost", options->cost, "costs per op and per layer (default)")->excludes(json)->excludes(dot);
  format("--kernels", options->kernels, "the kernels of a step on a GPU; with --json as JSON")->excludes(dot);
  app.add_option("--device", options->device,
                 "with --kernels: cuda:h200 (default), cuda:a100, cuda:rtx4090 or vulkan:h200; it need not be present");
  app.add_option("--tokens,--rows", options->step.n_tokens, "tokens in the step: its rows (default 1)")
      ->check(number_in_range(int64_t{1}, kMaxCount));
  app.add_option("--sequences", options->step.n_seqs, "sequences that share the tokens (default 1)")
      ->check(number_in_range(int64_t{1}, kMaxCount));
  app.add_option("--depth", options->step.depth, "tokens already in the KV cache (default 0)")
      ->check(number_in_range(int64_t{0}, kMaxCount));
  app.add_option("--bandwidth", options->bandwidth_gb, "memory bandwidth in GB/s (default: measured on this machine)")
      ->check(number_in_range(1e-3, 1e9));
  app.add_option("--flops", options->gflops, "compute throughput in GFLOP/s (default: measured)")
      ->check(number_in_range(1e-3, 1e12));
  declare_kv_option(app, options->kv_format, "f16");
  app.add_flag("--draft", options->draft, "the draft (MTP) graph instead of the main one");
  app.add_flag("--weights", options->weights, "with --dot: a box for each weight");
  return [options]() -> Status {
    ZINC_TRY(text, describe(*options));
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      return fail(ErrorCode::io, "writing the graph to standard output failed");
    }
    return ok_status();
  };
}

}  // namespace

extern const Command k_command_graph = {
    .path = "graph", .summary = "show a model's compute graph and its cost", .declare = declare};

}  // namespace zinc::command_graph
