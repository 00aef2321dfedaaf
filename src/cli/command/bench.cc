// `zinc bench MODEL...`: prefill and decode speed, against the device's peaks and optionally another engine; with
// --batch, of sequences decoded together by the serving engine; with --kernels, the kernels of a step.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/memory_info.h"
#include "base/thread_pool.h"
#include "cli/batch_report.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/peer_bench.h"
#include "cli/print_config.h"
#include "cli/sanitize_line.h"
#include "cli/sigint_watch.h"
#include "cli/speculation_option.h"
#include "cli/speculation_report.h"
#include "cli/trace_file.h"
#include "engine/kernel_bench.h"
#include "engine/model_fingerprint.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc::command_bench {
namespace {

constexpr int kMaxTokens = 1 << 20;
constexpr int kMaxBatch = 4096;
constexpr int kScenarioRounds = 3;
constexpr int kPrefillWarmUp = 2, kPrefillSteps = 10;  // of --kernels: a prefill step is long

struct Options {
  ModelOptions model;  // path and n_threads change from run to run
  std::vector<std::string> models;
  std::vector<int> n_prompts = {512}, n_gens = {128}, depths = {0}, n_threads = {0};
  int n_rounds = 5;
  std::string against;
  bool json = false, markdown = false;
  std::vector<std::string> scenarios;
  bool kernels = false;
  std::vector<int> batches;         // sequences decoded together; empty: one after the other
  std::vector<double> acceptances;  // of drafted tokens; not empty: speculative decoding is measured
  SpeculationOptions speculation;
  CLI::Option* speculation_option = nullptr;
  CLI::Option *prompts_option = nullptr, *depths_option = nullptr, *rounds_option = nullptr;
  TraceArguments trace;
};

const BenchScenario* find_scenario(std::string_view name) {
  const auto found = std::ranges::find(bench_scenarios(), name, &BenchScenario::name);
  return found == bench_scenarios().end() ? nullptr : &*found;
}

std::vector<BenchTest> tests_of(const Options& options) {
  std::vector<BenchTest> tests;
  for (const std::string& name : options.scenarios) {
    for (const BenchScenario& scenario : bench_scenarios()) {
      if (name != "all" && name != scenario.name) continue;
      for (const BenchTest& test : scenario.tests()) tests.push_back(test);
    }
  }
  if (!options.scenarios.empty()) return tests;
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

std::vector<BatchTest> batch_tests_of(const Options& options) {
  std::vector<BatchTest> tests;
  for (const int n_prompt : options.n_prompts) {
    for (const int n_gen : options.n_gens) {
      for (const int n : options.batches) tests.push_back({.n_prompt = n_prompt, .n_gen = n_gen, .n_sequences = n});
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

std::string file_name(const ModelOptions& model) {
  return sanitize_line(std::filesystem::path(model.path).filename().string());
}

Result<BenchConditions> conditions_of(const ModelOptions& model, const ModelInstance& instance) {
  ZINC_TRY(hash, fingerprint_of(instance.file()));
  return BenchConditions{.model = model.path,
                         .backend = std::string(instance.backend_name()),
                         .device = instance.backend().info().name,
                         .kv_format = std::string(instance.kv_format().name),
                         .n_threads = model.n_threads > 0 ? model.n_threads : default_thread_count(),
                         .model_hash = to_hex(hash),
                         .driver = instance.backend().info().driver};
}

void add_clock(Backend& backend, BenchConditions& conditions) {
  if (const double mhz = backend.clock_mhz(); mhz > 0) conditions.clocks_mhz.values.push_back(mhz);
}

// Runs `measure` for each round, and reads the device's clock before the first one and after each.
Status measure_rounds(const Options& options, const ModelOptions& model, Backend& backend, BenchConditions& conditions,
                      const std::function<Status()>& measure) {
  add_clock(backend, conditions);
  for (int round = 0; round < options.n_rounds; ++round) {
    fmt::print(stderr, "{}: round {} of {}\n", file_name(model), round + 1, options.n_rounds);
    if (Status measured = measure(); !measured.ok()) return measured;
    add_clock(backend, conditions);
  }
  return ok_status();
}

Result<BenchRun> measure_model(const Options& options, const ModelOptions& model, const std::optional<PeerBench>& peer,
                               const TraceFile& trace) {
  const std::vector<BenchTest> tests = tests_of(options);
  ZINC_TRY(opened, open_model(model));
  ZINC_TRY(bench,
           ModelBench::prepare(std::move(opened), tests, trace.options(file_name(model)), SigintWatch::is_interrupted));
  const ModelInstance& instance = bench.engine().model();
  ZINC_TRY(conditions, conditions_of(model, instance));
  BenchRun run{std::move(conditions)};
  for (const BenchTest& test : tests) {
    if (Status warm = bench.warm_up(test); !warm.ok()) return warm.error();
    run.rows.push_back({.test = test, .cost_per_token = bench.cost_per_token(test)});
  }
  const Status measured = measure_rounds(options, model, instance.backend(), run,
                                         [&] { return measure_round(run, bench, instance.backend(), peer); });
  if (!measured.ok()) return measured.error();
  run.file_bytes = instance.file().file_bytes();
  run.cache_bytes = bench.engine().limits().cache_bytes;
  run.activation_bytes = bench.engine().limits().activation_bytes;
  run.resident_bytes = resident_memory_bytes();
  return run;
}

// As measure_round.
Status measure_batch_round(BatchRun& run, BatchBench& bench, const std::optional<PeerBench>& peer) {
  for (BatchRow& row : run.rows) {
    ZINC_TRY(times, bench.measure(row.test));
    row.rounds.push_back(times);
    if (!peer) continue;
    ZINC_TRY(peer_times, peer->batch_times(run.model, row.test, run.n_threads));
    row.peer_rounds.push_back(peer_times);
  }
  return ok_status();
}

Result<BatchRun> measure_batches(const Options& options, const ModelOptions& model,
                                 const std::optional<PeerBench>& peer, const TraceFile& trace) {
  const std::vector<BatchTest> tests = batch_tests_of(options);
  ZINC_TRY(opened, open_model(model));
  ZINC_TRY(bench,
           BatchBench::prepare(std::move(opened), tests, trace.options(file_name(model)), SigintWatch::is_interrupted));
  const ModelInstance& instance = bench.engine().model();
  ZINC_TRY(conditions, conditions_of(model, instance));
  BatchRun run{std::move(conditions)};
  for (const BatchTest& test : tests) {
    if (Status warm = bench.warm_up(test); !warm.ok()) return warm.error();
    run.rows.push_back({.test = test});
  }
  const Status measured =
      measure_rounds(options, model, instance.backend(), run, [&] { return measure_batch_round(run, bench, peer); });
  if (!measured.ok()) return measured.error();
  run.weight_bytes = bench.engine().limits().weight_bytes;
  run.cache_bytes = bench.engine().limits().cache_bytes;
  return run;
}

std::vector<SpeculationTest> speculation_tests_of(const Options& options) {
  std::vector<SpeculationTest> tests;
  const std::vector<int> one = {1};
  for (const int n_prompt : options.n_prompts) {
    for (const int n_gen : options.n_gens) {
      for (const int n : options.batches.empty() ? one : options.batches) {
        for (const double acceptance : options.acceptances) tests.push_back({n_prompt, n_gen, n, acceptance});
      }
    }
  }
  return tests;
}

Result<SpeculationRun> measure_speculation(const Options& options, const ModelOptions& model) {
  const std::vector<SpeculationTest> tests = speculation_tests_of(options);
  SpeculationOptions speculation = options.speculation;
  const bool runs_model = speculation.mode == SpeculationMode::mtp || speculation.mode == SpeculationMode::draft;
  const std::string drafter(runs_model ? speculation_mode_name(speculation.mode) : "lookup");
  if (!speculation.draft_model.empty()) {
    ZINC_TRY(draft_file, model_file(speculation.draft_model.string()));
    speculation.draft_model = draft_file;
  }
  ZINC_TRY(opened, open_model(model, speculation.mode == SpeculationMode::mtp ? Draft::load : Draft::skip));
  ZINC_TRY(bench,
           SpeculationBench::prepare(std::move(opened), tests, std::move(speculation), SigintWatch::is_interrupted));
  const ModelInstance& instance = bench.engine().model();
  ZINC_TRY(conditions, conditions_of(model, instance));
  SpeculationRun run{std::move(conditions), drafter};
  for (const SpeculationTest& test : tests) {
    ZINC_TRY(warm_up, bench.measure(test));  // also measures the steps for the cost model
    run.rows.push_back({.test = test});
  }
  const Status measured = measure_rounds(options, model, instance.backend(), run, [&]() -> Status {
    for (SpeculationRow& row : run.rows) {
      ZINC_TRY(times, bench.measure(row.test));
      row.rounds.push_back(times);
    }
    return ok_status();
  });
  if (!measured.ok()) return measured.error();
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

// The functions that write the report of several runs.
template <class Run>
struct Report {
  json::array (*to_json)(std::span<const Run>);
  std::string (*to_table)(std::span<const Run>);
  std::string (*to_markdown)(std::span<const Run>);
};

// Text for a terminal, else Markdown or JSON.
template <class Run>
Status write_report(const Options& options, std::span<const Run> runs, const Report<Run>& report) {
  if (options.json) return write_output(to_pretty_json(report.to_json(runs)) + "\n");
  const bool is_aligned = !options.markdown && ::isatty(STDOUT_FILENO);
  return write_output(is_aligned ? report.to_table(runs) : report.to_markdown(runs));
}

// One decode step at each depth, and one prefill step for each -p.
Result<std::vector<KernelBenchRun>> measure_kernels_of(const Options& options, const ModelOptions& model) {
  ZINC_TRY(instance, load_model(model));
  std::vector<KernelBenchRun> runs;
  const auto measure = [&](KernelBenchOptions step) -> Status {
    step.cancelled = SigintWatch::is_interrupted;
    const double before = instance.backend().measure_peaks().read_bytes_per_s;
    ZINC_TRY(result, measure_kernels(instance, step));
    const double peak = std::max(before, instance.backend().measure_peaks().read_bytes_per_s);
    runs.push_back({.model = model.path,
                    .backend = std::string(instance.backend_name()),
                    .device = instance.backend().info().name,
                    .n_tokens = step.n_tokens,
                    .depth = step.depth,
                    .read_bytes_per_s = peak,
                    .result = std::move(result)});
    return ok_status();
  };
  for (const int depth : options.depths) {
    if (Status s = measure({.n_tokens = 1, .depth = depth}); !s.ok()) return s.error();
    for (const int n : options.n_prompts) {
      if (n < 2 || options.prompts_option->count() == 0) continue;
      const KernelBenchOptions prefill{
          .n_tokens = n, .depth = depth, .n_warm_up = kPrefillWarmUp, .n_steps = kPrefillSteps};
      if (Status s = measure(prefill); !s.ok()) return s.error();
    }
  }
  return runs;
}

Status run_kernels(const Options& options) {
  ZINC_TRY(models, models_of(options));
  std::vector<KernelBenchRun> all;
  for (const ModelOptions& model : models) {
    ZINC_TRY(runs, measure_kernels_of(options, model));
    all.insert(all.end(), runs.begin(), runs.end());
  }
  return write_report<KernelBenchRun>(options, all, {kernels_json, kernels_table, kernels_markdown});
}

// Measures every model and reports those that were measured, also if a later one failed.
template <class Run>
Status run_models(const Options& options, const std::function<Result<Run>(const ModelOptions&)>& measure,
                  const Report<Run>& report, std::vector<std::string> (*to_warnings)(const Run&)) {
  ZINC_TRY(models, models_of(options));
  std::vector<Run> runs;
  Status done = ok_status();
  for (size_t i = 0; i < models.size() && done.ok(); ++i) {
    Result<Run> measured = measure(models[i]);
    if (measured.ok()) {
      runs.push_back(std::move(measured.value()));
    } else {
      done = measured.error();
    }
  }
  if (runs.empty()) return done;
  const Status printed = write_report<Run>(options, runs, report);
  for (const Run& measured : runs) {
    for (const std::string& warning : to_warnings(measured)) print_stderr(fmt::format("zinc: warning: {}", warning));
  }
  return printed.ok() ? done : printed;
}

Status run_tests(const Options& options, const TraceFile& trace) {
  if (!options.acceptances.empty()) {
    return run_models<SpeculationRun>(
        options, [&](const ModelOptions& model) { return measure_speculation(options, model); },
        {speculation_json, speculation_table, speculation_markdown}, speculation_warnings);
  }
  const bool is_batched = !options.batches.empty();
  std::optional<PeerBench> peer;
  if (!options.against.empty()) {
    ZINC_TRY(found, PeerBench::find(options.against, is_batched ? "llama-batched-bench" : "llama-bench"));
    peer = std::move(found);
  }
  if (is_batched) {
    return run_models<BatchRun>(
        options, [&](const ModelOptions& model) { return measure_batches(options, model, peer, trace); },
        {batch_json, batch_table, batch_markdown}, batch_warnings);
  }
  return run_models<BenchRun>(
      options, [&](const ModelOptions& model) { return measure_model(options, model, peer, trace); },
      {bench_json, bench_table, bench_markdown}, bench_warnings);
}

Status run(Options& options) {
  if (!options.scenarios.empty() && options.rounds_option->count() == 0) options.n_rounds = kScenarioRounds;
  const SigintWatch watch;
  if (options.kernels) return run_kernels(options);
  ZINC_TRY(trace, TraceFile::open(options.trace));
  return trace.finish(run_tests(options, trace));
}

CLI::Option* declare_list(CLI::App& app, const char* names, std::vector<int>& list, const char* help,
                          const CLI::Validator& range) {
  return app.add_option(names, list, help)
      ->delimiter(',')
      ->allow_extra_args(false)  // the next word is not one of them
      ->check(range)
      ->capture_default_str();
}

void declare_scenarios(CLI::App& app, Options& options, std::initializer_list<CLI::Option*> replaced) {
  std::string help = "named workloads:";
  for (const BenchScenario& s : bench_scenarios())
    help += fmt::format(" {} ({} + {} tokens),", s.name, s.n_prompt, s.n_gen);
  CLI::Option* const scenario = app.add_option("--scenario", options.scenarios, help + " or all")
                                    ->delimiter(',')
                                    ->allow_extra_args(false)
                                    ->option_text("NAME")
                                    ->check(
                                        [](const std::string& name) {
                                          if (name == "all" || find_scenario(name)) return std::string();
                                          return fmt::format("'{}' is not a scenario", name);
                                        },
                                        "");
  for (CLI::Option* option : replaced) scenario->excludes(option);
  app.add_flag("--kernels", options.kernels,
               "measure each kernel of a decode step (and of prefill steps, if -p is given) instead")
      ->excludes(scenario);
}

Status check_batch(const Options& options) {
  if (options.kernels || !options.scenarios.empty()) {
    return fail(ErrorCode::invalid_input, "--{} cannot be combined with --{}; set the lengths with -p and -n",
                options.acceptances.empty() ? "batch" : "acceptance", options.kernels ? "kernels" : "scenario");
  }
  if (options.depths_option->count() > 0) {
    return fail(ErrorCode::invalid_input,
                "--{} cannot be combined with -d: the sequences decode after their prompts; set their length with -p",
                options.acceptances.empty() ? "batch" : "acceptance");
  }
  const auto is_zero = [](int n) { return n == 0; };
  if (std::ranges::none_of(options.n_prompts, is_zero) && std::ranges::none_of(options.n_gens, is_zero)) {
    return ok_status();
  }
  return fail(ErrorCode::invalid_input, "--{} measures prefill and decode: set -p and -n to at least 1",
              options.acceptances.empty() ? "batch" : "acceptance");
}

Status check_speculation(const Options& options) {
  if (options.speculation.mode == SpeculationMode::off) {
    return fail(ErrorCode::invalid_input, "--acceptance measures drafts: --speculate off has none");
  }
  if (options.against.empty() && options.trace.path.empty()) return check_batch(options);
  return fail(ErrorCode::invalid_input, "--acceptance cannot be combined with --trace or --against");
}

Status check_combination(const Options& options) {
  if (!options.acceptances.empty()) return check_speculation(options);
  if (options.speculation_option->count() > 0) {
    return fail(ErrorCode::invalid_input, "--speculate needs --acceptance: which part of the drafted tokens is right");
  }
  if (!options.batches.empty()) return check_batch(options);
  if (options.kernels && !(options.trace.path.empty() && options.against.empty())) {
    return fail(ErrorCode::invalid_input, "--kernels cannot be combined with --trace or --against");
  }
  if (options.kernels || !tests_of(options).empty()) return ok_status();
  return fail(ErrorCode::invalid_input, "nothing to measure: -p and -n are both 0; set at least one");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->models, kOptionalModelHelp);
  const CLI::Validator n_tokens = number_in_range(0, kMaxTokens);
  CLI::Option* const prompts =
      declare_list(app, "-p,--n-prompt", options->n_prompts, "prompt lengths in tokens, prefill (0: none)", n_tokens);
  CLI::Option* const gens =
      declare_list(app, "-n,--n-gen", options->n_gens, "tokens to generate, decode (0: none)", n_tokens);
  CLI::Option* const depths =
      declare_list(app, "-d,--n-depth", options->depths, "tokens already in the KV cache", n_tokens);
  options->prompts_option = prompts;
  options->depths_option = depths;
  declare_scenarios(app, *options, {prompts, gens, depths});
  declare_list(app, "--batch", options->batches,
               "sequences decoded together by the engine of `zinc serve`, each after its own prompt (-p): 1,8,32",
               number_in_range(1, kMaxBatch));
  app.add_option("--acceptance", options->acceptances,
                 "measure speculative decoding against plain decoding, with drafted tokens that are right with this "
                 "probability: 0.8,0.2")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 1.0));
  options->speculation_option = declare_speculation_option(app, options->speculation);
  declare_list(app, "-t,--threads", options->n_threads, "CPU threads (0: one per core)", number_in_range(0, 1024));
  options->rounds_option =
      app.add_option("-r,--repetitions", options->n_rounds, "measurements per test, after a warm-up (scenarios: 3)")
          ->check(number_in_range(1, 1000))
          ->capture_default_str();
  app.add_option("--against", options->against,
                 "another engine's benchmark with the options of llama-bench (with --batch: llama-batched-bench), run "
                 "alternately: 'llama-bench -fa 1'");
  CLI::Option* const table =
      app.add_flag("--markdown", options->markdown, "a Markdown table (default, unless standard output is a terminal)");
  CLI::Option* const list = app.add_flag("--json", options->json, "JSON with every sample")->excludes(table);
  for (CLI::Option* format : {table, list}) format->group("Output format");
  declare_backend_options(app, options->model);
  declare_split_hosts_option(app, options->model);
  declare_trace_options(app, options->trace);
  check_usage(app, [options] { return check_combination(*options); });
  app.footer(
      "-p, -n, -d and -t accept lists: -d 0,4096. Figures are medians of the repetitions; spread is (max - min) / "
      "median. GB/s counts the weights (as stored in the file) and the KV cache, each read once per step; peaks are "
      "measured in the same run. The columns of --batch are those of llama-batched-bench: prompt and generated tokens "
      "per sequence (PP, TG), sequences (B), time and speed of prefill, decode and both; spread is that of S.");
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
