// `zinc bench MODEL...`: prefill and decode speed, against the device's peaks and optionally another engine.
#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "base/memory_info.h"
#include "base/thread_pool.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/peer_bench.h"
#include "cli/print_config.h"
#include "cli/sanitize_line.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc::command_bench {
namespace {

constexpr int kMaxTokens = 1 << 20;

struct Options {
  ModelOptions model;  // path and n_threads change from run to run
  std::vector<std::string> models;
  std::vector<int> n_prompts = {512}, n_gens = {128}, depths = {0}, n_threads = {0};
  int n_rounds = 5;
  std::string against;
  bool json = false, markdown = false;
};

std::vector<BenchTest> tests_of(const Options& options) {
  std::vector<BenchTest> tests;
  for (const int depth : options.depths) {
    for (const int n : options.n_prompts) {
      if (n > 0) tests.push_back({.n_prompt = n, .n_gen = 0, .depth = depth});
    }
    for (const int n : options.n_gens) {
      if (n > 0) tests.push_back({.n_prompt = 0, .n_gen = n, .depth = depth});
    }
  }
  return tests;
}

// Runs every test once, each followed by the peer's, so that a temporary slowdown affects both. Peaks are measured in
// every round for the same reason.
Status measure_round(BenchRun& run, ModelBench& bench, Backend& backend, const std::optional<PeerBench>& peer) {
  const DevicePeaks peaks = backend.measure_peaks();
  run.arithmetic = peaks.arithmetic;
  run.read_bytes_per_s.values.push_back(peaks.read_bytes_per_s);
  run.flops_per_s.values.push_back(peaks.flops_per_s);
  for (BenchRow& row : run.rows) {
    ZINC_TRY(rate, bench.tokens_per_s(row.test));
    row.rates.values.push_back(rate);
    if (!peer) continue;
    ZINC_TRY(peer_rate, peer->tokens_per_s(run.model, row.test, run.n_threads));
    row.peer_rates.values.push_back(peer_rate);
  }
  return ok_status();
}

Result<BenchRun> measure_model(const Options& options, const ModelOptions& model,
                               const std::optional<PeerBench>& peer) {
  const std::vector<BenchTest> tests = tests_of(options);
  ZINC_TRY(instance, load_model(model));
  ZINC_TRY(bench, ModelBench::prepare(instance, tests));
  BenchRun run{.model = model.path,
               .backend = std::string(instance.backend_name()),
               .device = instance.backend().info().name,
               .arithmetic = {},
               .kv_format = std::string(instance.kv_format().name),
               .n_threads = model.n_threads > 0 ? model.n_threads : default_thread_count()};
  for (const BenchTest& test : tests) {
    if (Status warm = bench.warm_up(test); !warm.ok()) return warm.error();
    run.rows.push_back({.test = test, .cost_per_token = bench.cost_per_token(test)});
  }
  for (int round = 0; round < options.n_rounds; ++round) {
    const std::string name = std::filesystem::path(model.path).filename().string();
    fmt::print(stderr, "{}: round {} of {}\n", sanitize_line(name), round + 1, options.n_rounds);
    if (Status measured = measure_round(run, bench, instance.backend(), peer); !measured.ok()) return measured.error();
  }
  run.file_bytes = instance.file().file_bytes();
  run.cache_bytes = bench.sequence().cache_bytes();
  run.activation_bytes = bench.sequence().activation_bytes();
  run.resident_bytes = resident_memory_bytes();
  return run;
}

// The models to measure, in order. An invalid file is reported here, before anything is measured.
Result<std::vector<ModelOptions>> models_of(const Options& options) {
  std::vector<ModelOptions> models;
  for (const std::string& name : options.models) {
    ZINC_TRY(path, model_file(name));
    ZINC_TRY(file, GgufFile::open(path));
    ZINC_TRY(read, read_model(file));
    for (const int n_threads : options.n_threads) {
      models.push_back(options.model);
      models.back().path = path.string();
      models.back().n_threads = n_threads;
    }
  }
  return models;
}

Status run(const Options& options) {
  std::optional<PeerBench> peer;
  if (!options.against.empty()) {
    ZINC_TRY(found, PeerBench::find(options.against));
    peer = std::move(found);
  }
  ZINC_TRY(models, models_of(options));
  std::vector<BenchRun> runs;
  Status done = ok_status();
  for (size_t i = 0; i < models.size() && done.ok(); ++i) {
    Result<BenchRun> measured = measure_model(options, models[i], peer);
    if (measured.ok()) {
      runs.push_back(std::move(measured.value()));
    } else {
      done = measured.error();
    }
  }
  if (runs.empty()) return done;
  const bool is_aligned = !options.markdown && ::isatty(STDOUT_FILENO);
  const Status printed = write_output(options.json ? to_pretty_json(bench_json(runs)) + "\n"
                                      : is_aligned ? bench_table(runs)
                                                   : bench_markdown(runs));
  return printed.ok() ? done : printed;
}

void declare_list(CLI::App& app, const char* names, std::vector<int>& list, const char* help, int max) {
  app.add_option(names, list, help)
      ->delimiter(',')
      ->allow_extra_args(false)  // the next word is not one of them
      ->check(number_in_range(0, max))
      ->capture_default_str();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->models, kOptionalModelHelp);
  declare_list(app, "-p,--n-prompt", options->n_prompts, "prompt lengths in tokens, prefill (0: none)", kMaxTokens);
  declare_list(app, "-n,--n-gen", options->n_gens, "tokens to generate, decode (0: none)", kMaxTokens);
  declare_list(app, "-d,--n-depth", options->depths, "tokens already in the KV cache", kMaxTokens);
  declare_list(app, "-t,--threads", options->n_threads, "CPU threads (0: one per core)", 1024);
  app.add_option("-r,--repetitions", options->n_rounds, "measurements per test, after a warm-up")
      ->check(number_in_range(1, 1000))
      ->capture_default_str();
  app.add_option("--against", options->against,
                 "another engine's benchmark with llama-bench's options, run alternately: 'llama-bench -fa 1'");
  CLI::Option* const table =
      app.add_flag("--markdown", options->markdown, "a Markdown table (default, unless standard output is a terminal)");
  CLI::Option* const list = app.add_flag("--json", options->json, "JSON with every sample")->excludes(table);
  for (CLI::Option* format : {table, list}) format->group("Output format");
  declare_backend_options(app, options->model);
  check_usage(app, [options]() -> Status {
    if (!tests_of(*options).empty()) return ok_status();
    return fail(ErrorCode::invalid_input, "nothing to measure: -p and -n are both 0; set at least one");
  });
  app.footer(
      "-p, -n, -d and -t accept lists: -d 0,4096. Figures are medians of the repetitions; spread is (max - min) / "
      "median. GB/s counts the weights (as stored in the file) and the KV cache, each read once per step; peaks are "
      "measured in the same run.");
  auto print_config = std::make_shared<bool>(false);
  declare_print_config(app, *print_config);
  return [options, print_config, &app] {
    if (options->models.empty()) options->models.emplace_back();  // the default one
    if (!*print_config) return run(*options);
    ModelOptions first = options->model;
    first.path = options->models.front();
    return write_output(config_text(app, resolved_model(first)));
  };
}

}  // namespace

extern const Command k_command_bench = {
    .path = "bench", .summary = "measure prefill and decode speed against the device's peaks", .declare = declare};

}  // namespace zinc::command_bench
