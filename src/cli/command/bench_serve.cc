// `zinc bench serve SERVER...`: latency and throughput of servers under concurrent requests. A server is the URL of an
// OpenAI-compatible API, or a MODEL, which is then served by this process.
#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "server/load/load_report.h"
#include "server/local_server.h"

namespace zinc::command_bench_serve {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> servers;
  LoadPlan load;
  EngineOptions engine;
  std::string mix_file;
  int n_prompt_words = 0;  // above 0: only inter-token gaps are measured
  bool alone = false;
  bool json = false, markdown = false;
};

Result<RequestMix> load_mix(const std::string& path) {
  if (path.empty()) return RequestMix::standard();
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return fail(ErrorCode::io, "{}: cannot read the file: {}", path, std::strerror(errno));
  return RequestMix::parse(text.view(), path);
}

// Where to send requests, and the server behind it if this process runs it.
struct Target {
  std::unique_ptr<LocalServer> own;
  std::string url;
};

Result<Target> target_of(const Options& options, const std::string& server) {
  if (server.starts_with("http://") || server.starts_with("https://")) return Target{.own = nullptr, .url = server};
  ModelOptions model_options = options.model;
  model_options.path = server;
  ZINC_TRY(model, open_model(model_options));
  EngineOptions engine_options = options.engine;
  engine_options.max_sequences = options.load.n_streams + 1;  // plus the arriving prompt
  ZINC_TRY(engine, Engine::create(std::move(model), engine_options));
  if (Status s = engine->wait_until_prepared(); !s.ok()) return s.error();
  ZINC_TRY(own, LocalServer::start(std::move(engine), "model"));
  std::string url = own->url();
  return Target{.own = std::move(own), .url = std::move(url)};
}

template <class Figures, class Measure>
Result<std::vector<Figures>> measure_all(const Options& options, Measure measure) {
  std::vector<Figures> out;
  for (const std::string& server : options.servers) {
    print_stderr(fmt::format("zinc: {}", server));
    ZINC_TRY(target, target_of(options, server));
    LoadPlan plan = options.load;
    plan.url = plan.baseline_url = target.url;
    Target second;
    if (options.alone && target.own) {
      ZINC_TRY(started, target_of(options, server));
      second = std::move(started);
      plan.baseline_url = second.url;
    }
    if (!options.alone) plan.baseline_url.clear();
    ZINC_TRY(figures, measure(plan));
    figures.target = server;
    out.push_back(std::move(figures));
  }
  return out;
}

Status print(const Options& options, const json::array& data, const std::string& table) {
  return write_output(options.json ? to_pretty_json(data) + "\n" : table);
}

Status run(const Options& options) {
  if (options.n_prompt_words > 0) {
    ZINC_TRY(gaps, measure_all<StallResult>(
                       options, [&](const LoadPlan& plan) { return measure_stall(plan, options.n_prompt_words); }));
    return print(options, stall_json(gaps), stall_markdown(gaps));
  }
  ZINC_TRY(mix, load_mix(options.mix_file));
  ZINC_TRY(runs, measure_all<LoadResult>(
                     options, [&](const LoadPlan& plan) -> Result<LoadResult> { return run_load(plan, mix); }));
  Status done = ok_status();
  for (const LoadResult& figures : runs) {
    if (figures.n_failed == 0 || !done.ok()) continue;
    done = fail(ErrorCode::unavailable, "{}: {} of {} requests failed, the first with: {}", figures.target,
                figures.n_failed, figures.n_requests, figures.first_error);
  }
  std::erase_if(runs, [](const LoadResult& figures) { return figures.n_failed == figures.n_requests; });
  if (runs.empty()) return done;
  const Status printed = print(options, load_json(runs), load_markdown(runs));
  return printed.ok() ? done : printed;
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("servers", options->servers, fmt::format("a URL, or a model to serve here: {}", kModelHelp))
      ->option_text("URL|MODEL...")
      ->required();
  LoadPlan& load = options->load;
  CLI::Option* streams = app.add_option("--streams", load.n_streams, "concurrent requests (closed loop)")
                             ->check(number_in_range(1, 4096))
                             ->capture_default_str();
  app.add_option("--rate", load.per_second, "arrival rate in requests per second (open loop), instead of --streams")
      ->check(number_in_range(1e-3, 1e5))
      ->excludes(streams);
  app.add_option("--requests", load.n_requests, "total number of requests")
      ->check(number_in_range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--mix", options->mix_file,
                 "request mix as JSON lines: name, weight, shared_words, prompt_words, max_tokens, body")
      ->check(CLI::ExistingFile);
  app.add_flag("--alone", options->alone,
               "also run each request alone and compare outputs and speed (for a model served here: on a second server "
               "with an empty cache)");
  app.add_option("--arriving-words", options->n_prompt_words,
                 "instead: measure how long streams stall while a prompt of this many words is processed")
      ->check(number_in_range(1, 1 << 20));
  app.add_option("--api-key", load.key, "API key of the servers")->envname("ZINC_API_KEY");
  app.add_option("--model", load.model, "`model` field of every request, for servers that require one");
  app.add_option("-c,--context", options->engine.context,
                 "for a model served here: context length per request, in tokens")
      ->check(number_in_range(0, 1 << 30));
  app.add_option("--cache-bytes", options->engine.cache_bytes,
                 "for a model served here: KV cache size, such as 2G (0: automatic)")
      ->transform(CLI::AsSizeValue(false));
  CLI::Option* const table = app.add_flag("--markdown", options->markdown, "a table (default)");
  CLI::Option* const list = app.add_flag("--json", options->json, "JSON")->excludes(table);
  for (CLI::Option* format : {table, list}) format->group("Output format");
  declare_model_options(app, options->model);
  app.footer(
      "Requests are streamed chat completions. Request i is the same in every run, so all servers get the same load, "
      "one "
      "after another. tok/s counts output tokens over the whole run.");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_bench_serve = {
    .path = "bench serve", .summary = "measure latency and throughput of servers", .declare = declare};

}  // namespace zinc::command_bench_serve
