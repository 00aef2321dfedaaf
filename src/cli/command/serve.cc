// `zinc serve MODEL...`: an HTTP server with the APIs of OpenAI, Anthropic and Ollama and a web UI. Runs until SIGTERM
// or Ctrl-C, then drains running requests. Standard output has the address, standard error one line per request: text
// on a terminal, else JSON.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "backend/mpi/world.h"
#include "base/atomic_file.h"
#include "base/deferred_sigint.h"
#include "base/pluralize.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/hub_library.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/open_in_browser.h"
#include "cli/output.h"
#include "cli/print_config.h"
#include "cli/serve_console.h"
#include "cli/serve_web_ui.h"
#include "cli/server_client.h"
#include "cli/speculation_option.h"
#include "cli/trace_file.h"
#include "hub/resolve.h"
#include "server/api.h"
#include "server/http_server.h"
#include "server/otlp_exporter.h"

namespace zinc::command_serve {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> models;  // MODEL or NAME=MODEL
  EngineOptions engine;
  ListenOptions listen;
  ApiOptions api;
  std::string key_file, named_key_file;
  std::string otlp_endpoint;           // of a collector of traces; empty: none
  std::filesystem::path cache_folder;  // of saved prefix caches; empty: not saved
  bool force_public = false;
  bool opens_browser = false;
  std::string sampling_defaults = "model";
  std::optional<bool> swaps_models;  // empty: only if other machines cannot reach the server
  int drain_s = 30, drain_delay_s = 0;
  std::string log;  // "text" or "json"; empty: text on a terminal, else JSON
  TraceArguments trace;
  const TraceFile* trace_file = nullptr;  // while it serves
};

struct NamedModel {
  std::string name, path;
  std::vector<std::string> aliases = {};
};

// "tiny-00001-of-00003.gguf" is served as "tiny"; a catalog model under its own name.
std::string name_of(const std::filesystem::path& word) {
  std::string name = (word.extension() == ".gguf" ? word.stem() : word.filename()).string();
  const size_t shard = name.rfind("-of-");
  constexpr size_t kDigits = 5;
  if (shard != std::string::npos && shard > kDigits && name.size() == shard + 4 + kDigits &&
      name[shard - kDigits - 1] == '-') {
    name.resize(shard - kDigits - 1);
  }
  return name;
}

Result<std::vector<NamedModel>> name_models(const std::vector<std::string>& words) {
  std::vector<NamedModel> out;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const bool is_named = equals != std::string::npos && equals > 0 && word.find('/') > equals &&
                          !has_source_prefix(word);  // pip:PACKAGE==VERSION
    NamedModel model{.name = is_named ? word.substr(0, equals) : name_of(word),
                     .path = is_named ? word.substr(equals + 1) : word};
    for (const NamedModel& other : out) {
      if (other.name != model.name) continue;
      return fail(ErrorCode::invalid_input, "two models are named '{}'; give one a different name: NAME={}", model.name,
                  model.path);
    }
    out.push_back(std::move(model));
  }
  return out;
}

// Several names of one file are aliases of one model, which is loaded once.
std::vector<NamedModel> join_aliases(std::vector<NamedModel> named) {
  std::vector<NamedModel> out;
  for (NamedModel& model : named) {
    const auto same = std::ranges::find_if(out, [&](const NamedModel& other) {
      std::error_code ignored;
      return std::filesystem::equivalent(other.path, model.path, ignored);
    });
    if (same == out.end()) {
      out.push_back(std::move(model));
    } else {
      same->aliases.push_back(std::move(model.name));
    }
  }
  return out;
}

Status read_key_file(const std::string& path, std::vector<std::string>& keys) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !line.starts_with('#')) keys.push_back(line);
  }
  if (!file.eof()) return fail(ErrorCode::io, "{}: cannot be read", path);
  if (keys.empty()) return fail(ErrorCode::invalid_input, "{}: no API key found; expected one per line", path);
  return ok_status();
}

// It is a part of ids and of proxies' configurations: no character that either could take for a separator.
Status check_replica_name(const std::string& name) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
  constexpr size_t kMaxBytes = 63;  // of a host name
  if (name.size() <= kMaxBytes && name.find_first_not_of(kCharacters) == name.npos) return ok_status();
  return fail(ErrorCode::invalid_input, "--replica '{}' is not a name of at most {} letters, digits and '-'", name,
              kMaxBytes);
}

Status check_options(Options& options) {
  if (!options.key_file.empty()) {
    ZINC_TRY(keys, read_key_file(options.key_file, options.api.access.keys));
  }
  AccessOptions& access = options.api.access;
  for (const std::string& key : access.keys) {
    if (key.empty()) return fail(ErrorCode::invalid_input, "--api-key is empty");
  }
  if (!options.named_key_file.empty()) {
    ZINC_TRY(named_keys, read_api_keys(options.named_key_file));
    access.named_keys = named_keys;
  }
  if (options.listen.tls_certificate.empty() != options.listen.tls_key.empty()) {
    return fail(ErrorCode::invalid_input, "--tls-cert and --tls-key must be given together");
  }
  if (Status valid = check_listen_host(options.listen.host); !valid.ok()) return valid;
  const bool has_key = !access.keys.empty() || !access.named_keys.empty();
  access.trusts_local_apps = has_key || is_local_address(options.listen.host);
  if (!access.trusts_local_apps && !options.force_public) {
    return fail(ErrorCode::invalid_input,
                "--host {} is reachable from other machines, and without --api-key anyone there can use this server; "
                "set a key, or pass --force-public to allow it",
                options.listen.host);
  }
  options.api.limits.drain_time = std::chrono::seconds(options.drain_s);
  options.api.limits.drain_delay = std::chrono::seconds(options.drain_delay_s);
  return check_replica_name(options.api.replica);
}

constexpr std::string_view kCacheSuffix = ".cache";

// Adds what to do about a port that is in use, and whether zinc itself uses it.
Error listen_error(const ListenOptions& listen, const Error& error) {
  if (error.code != ErrorCode::unavailable) return error;
  const ServerAddress other{.url = fmt::format("http://{}:{}", listen.host, listen.port), .key = {}};
  const bool is_zinc = loaded_models(other, std::chrono::seconds(2)).ok();
  return fail(error.code, "{}{}; choose another port: --port {}", error.message,
              is_zinc ? " by another `zinc serve`, which `zinc ps` shows" : "", listen.port + 1);
}

// A name may be a source and contain slashes.
std::string cache_file_name(std::string_view name) {
  std::string file;
  for (const char c : name) file += c == '/' ? "%2F" : std::string(1, c);
  return file += kCacheSuffix;
}

Result<std::unique_ptr<EngineThread>> start_engine(const Options& options, const std::string& name,
                                                   const std::string& path) {
  ModelOptions model_options = options.model;
  model_options.path = path;
  EngineOptions engine_options = options.engine;
  if (!options.cache_folder.empty()) engine_options.cache_file = options.cache_folder / cache_file_name(name);
  engine_options.trace = options.trace_file->options(name);
  ZINC_TRY(engine, load_engine(model_options, std::move(engine_options)));
  print_stderr(fmt::format("zinc: {}: {}", name, device_text(model_options, engine->model())));
  print_placement(*engine);
  return std::make_unique<EngineThread>(std::move(engine));
}

void announce(const ServedModel& model) {
  const std::vector<int>& contexts = model.limits.rope_contexts;
  const std::string extended = contexts.size() > 1 ? fmt::format(" (extended above {})", contexts[0]) : "";
  print_stderr(fmt::format("zinc: {}: context {}{}, {} in parallel, queue of {}; {} of weights, {} of KV cache",
                           model.name, model.limits.context, extended, pluralize(model.limits.max_sequences, "request"),
                           model.limits.queue_limit, human_bytes(model.limits.weight_bytes),
                           human_bytes(model.limits.cache_bytes)));
  if (!model.limits.cache_load_error.empty())
    print_stderr(fmt::format("zinc: {}: {}", model.name, model.limits.cache_load_error));
}

// The files of the named models, downloaded if necessary; without a name the default model. If that cannot be
// downloaded, there is none: the user can choose one on the page.
Result<std::vector<NamedModel>> find_models(const Options& options, const HubSettings& settings) {
  const bool is_default = options.models.empty();
  std::vector<std::string> words = is_default ? std::vector{default_model_name(settings)} : options.models;
  for (std::string& word : words) word = full_model_name(settings, word);
  ZINC_TRY(named, name_models(words));
  for (NamedModel& model : named) {
    const Result<std::filesystem::path> path = model_file(model.path);
    if (!path.ok() && is_default && path.error().code != ErrorCode::cancelled) {
      print_stderr(
          fmt::format("zinc: {}\nzinc: starting without a model; choose one on the chat page", path.error().message));
      return std::vector<NamedModel>();
    }
    if (!path.ok()) return path.error();
    model.path = path.value().string();
  }
  return join_aliases(std::move(named));
}

std::string url_of(const ListenOptions& listen, uint16_t port) {
  if (!unix_socket_path(listen.host).empty()) return listen.host;
  const bool is_ipv6 = listen.host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", listen.tls_certificate.empty() ? "http" : "https",
                     is_ipv6 ? "[" + listen.host + "]" : listen.host, port);
}

// An invalid file changes nothing: clients keep their access.
void reload_keys(const std::filesystem::path& path, Api& api) {
  const Result<std::vector<ApiKeyOptions>> keys = read_api_keys(path);
  if (keys.ok()) api.set_named_keys(keys.value());
  print_stderr(keys.ok()
                   ? fmt::format("zinc: {}: {} in effect", path.string(), pluralize(keys.value().size(), "API key"))
                   : fmt::format("zinc: {}; the previous API keys stay in effect", keys.error().message));
}

// The server answers from the start: requests for a model that is being loaded wait.
class Startup {
 public:
  Startup(const Options& options, HttpServer& server, Api& api, HubLibrary& library, const ModelList& models)
      : options_(options), server_(server), api_(api), library_(library), models_(models) {}

  void load(const std::vector<NamedModel>& named) {
    n_loading_ = named.size();
    for (const NamedModel& model : named) names_.push_back(model.name);
    if (named.empty()) server_.post([this] { greet(); });
    for (const NamedModel& model : named) {
      std::vector<std::string> names = model.aliases;
      names.insert(names.begin(), model.name);
      api_.begin_load(std::move(names));
      library_.load_at_start(model.name, model.path, model.aliases, [this, name = model.name](Status loaded) {
        server_.post([this, name, loaded = std::move(loaded)] { finish_load(name, loaded); });
      });
    }
  }
  // A process of --split-hosts is lost: the engine ends its requests with this error. For a moment /health reports it.
  void lose(const Error& why) {
    static constexpr std::chrono::milliseconds kNotice(500), kDrainTime(2000);
    if (!status_.ok()) return;
    status_ = why;
    print_stderr("zinc: " + why.message);
    api_.set_failure(why.message);
    server_.run_after(kNotice, [this] { server_.stop_within(kDrainTime); });
  }
  const Status& status() const { return status_; }  // after HttpServer::run()

 private:
  void finish_load(const std::string& name, const Status& loaded) {
    if (!loaded.ok()) {
      api_.finish_load(name, api_error(loaded.error()));
      return stop(loaded);
    }
    if (const ModelRef model = models_.find(name)) {
      announce(*model);
      api_.finish_load(name, model);
    } else {
      api_.finish_load(name, http_error(503, "the model was unloaded again before the request could use it; retry"));
    }
    if (--n_loading_ == 0) greet();
  }

  void greet() {
    // Until now signals end the process at once: loading cannot be interrupted.
    server_.watch_signals([this](size_t n_answers) {
      const int delay_s = options_.drain_delay_s;
      if (n_answers > 0 || delay_s > 0)
        print_stderr("zinc: " + drain_notice(n_answers, {.delay = delay_s, .drain = options_.drain_s}));
    });
    const std::string url = url_of(options_.listen, server_.port());
    const std::string ready = ::isatty(STDOUT_FILENO) ? greeting(url, names_) : fmt::format("listening on {}\n", url);
    if (Status written = write_output(ready); !written.ok()) return stop(written);
    if (options_.opens_browser && unix_socket_path(options_.listen.host).empty()) open_in_browser(url);
  }

  void stop(const Status& why) {
    status_ = why;
    server_.stop();
  }

  const Options& options_;
  HttpServer& server_;
  Api& api_;
  HubLibrary& library_;
  const ModelList& models_;
  std::vector<std::string> names_;
  size_t n_loading_ = 0;
  Status status_ = ok_status();
};

Status serve(Options& options) {
  if (Status checked = check_options(options); !checked.ok()) return checked;
  ZINC_TRY(settings, hub_settings());
  options.api.build = {{"version", version_text()}};

  ZINC_TRY(server, [&]() -> Result<std::unique_ptr<HttpServer>> {
    const DeferredSigint defer_sigint;  // inherited by its threads: a Ctrl-C during a download stays pending
    Result<std::unique_ptr<HttpServer>> bound = HttpServer::bind(options.listen, options.api.limits);
    return bound.ok() ? std::move(bound) : listen_error(options.listen, bound.error());
  }());
  ZINC_TRY(named, find_models(options, settings));  // meanwhile connections are refused, not left waiting
  if (Status listening = server->start_listening(); !listening.ok())
    return listen_error(options.listen, listening.error());
  if (!options.cache_folder.empty()) remove_partial_files(options.cache_folder, kCacheSuffix);
  ModelList models;
  HubLibrary library(
      settings, models, [&options] { return model_memory(backend_of(options.model)); },
      [&options](const std::string& name, const std::string& path) { return start_engine(options, name, path); });
  const bool is_local = is_local_address(options.listen.host);
  if (!is_local) library.forbid_url_pulls();
  if (options.sampling_defaults == "openai") library.use_openai_sampling();
  options.api.library = &library;
  options.api.swaps_models = options.swaps_models.value_or(is_local);
  Api api(models, options.api,
          {.post = [&server](std::function<void()> task) { server->post(std::move(task)); },
           .work = [&server](std::function<void()> task) { server->work(std::move(task)); },
           .is_draining = [&server] { return server->is_draining(); },
           .n_connections = [&server] { return server->n_connections(); },
           .run_after = [&server](std::chrono::milliseconds delay,
                                  std::function<void()> task) { server->run_after(delay, std::move(task)); }});
  std::optional<OtlpExporter> exporter;
  if (!options.otlp_endpoint.empty())
    exporter.emplace(options.otlp_endpoint, [](const std::string& message) { print_stderr("zinc: " + message); });
  server->set_handlers(
      [&api](HttpRequest request, std::shared_ptr<Reply> reply) { api.handle(std::move(request), std::move(reply)); },
      Api::protocol_error,
      [&exporter, format = choose_log_format(options.log)](json::object line) {
        if (exporter) exporter->add(line);
        if (format == LogFormat::json) return write_stderr(to_json(line));
        if (is_shown_on_terminal(line)) write_stderr(request_line(line, clock_text()));
      },
      [&api](const HttpRequest& head) { return api.check_headers(head); });
  if (!options.named_key_file.empty())
    server->watch_hangup([&options, &api] { reload_keys(options.named_key_file, api); });
  Startup startup(options, *server, api, library, models);
  startup.load(named);
  mpi::World* const world = options.model.splits_hosts ? mpi::World::joined() : nullptr;
  if (world) {
    world->set_on_lost([&](const Error& why) { server->post([&startup, why] { startup.lose(why); }); });
  }
  server->run();
  if (world) world->set_on_lost({});
  // Before the Api is destroyed: the engines report the end of running requests to it.
  Status saved = options.cache_folder.empty() || !startup.status().ok() ? ok_status() : library.stop_and_save();
  library.stop();
  return startup.status().ok() ? saved : startup.status();
}

Status serve_and_trace(Options& options) {
  ZINC_TRY(trace, TraceFile::open(options.trace));
  options.trace_file = &trace;
  return trace.finish(serve(options));
}

void declare_engine_options(CLI::App& app, EngineOptions& engine) {
  app.add_option("--parallel", engine.max_sequences, "maximum number of concurrent requests")
      ->check(number_in_range(1, 1024))
      ->capture_default_str();
  app.add_option(
         "-c,--context,--ctx-size", engine.context,
         "context length per request (0: the model's own, if memory allows; more than that: requests that need it "
         "run with YaRN)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--cache-bytes", engine.cache_bytes,
                 "memory for the KV cache and recurrent states, such as 4G (0: automatic)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--queue", engine.queue_limit, "maximum number of waiting requests; more get 503")
      ->check(number_in_range(1, 1 << 20))
      ->capture_default_str();
  declare_speculation_option(app, engine.speculation);
}

void declare_request_options(CLI::App& app, Options& options) {
  app.add_option("--sampling-defaults", options.sampling_defaults,
                 "sampling of requests that leave it out: the model's recommended values, or OpenAI's (temperature 1)")
      ->check(CLI::IsMember({"model", "openai"}))
      ->capture_default_str();
  app.add_flag("--strict-fields", options.api.limits.strict_fields, "reject unknown request fields (default: ignore)");
  app.add_option("--responses-kept", options.api.kept_responses.n_responses,
                 "responses of /v1/responses that later requests can continue, for an hour at most (0: none)")
      ->check(number_in_range(0, 1 << 20))
      ->capture_default_str();
}

void declare_access_options(CLI::App& app, Options& options) {
  AccessOptions& access = options.api.access;
  app.add_option("--api-key", access.keys, "API key that clients must send; may be repeated")
      ->allow_extra_args(false)
      ->envname("ZINC_API_KEY");
  app.add_option("--api-key-file", options.key_file, "file with one API key per line")->option_text("FILE");
  app.add_option("--api-keys", options.named_key_file,
                 "JSON file of API keys with names, limits and cache shares (docs/security.md); SIGHUP reloads it")
      ->option_text("FILE");
  app.add_option("--allowed-host", access.allowed_hosts,
                 "host name of this server, besides addresses and localhost; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--cors-origin", access.allowed_origins, "origin allowed to call the server from a browser; '*': any")
      ->allow_extra_args(false);
  app.add_flag("--force-public", options.force_public, "listen on a public address without an API key");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->models, kOptionalModelHelp + "; NAME=MODEL sets the served name");
  app.add_option("--host", options->listen.host, "address to listen on, or unix:PATH for a Unix socket")
      ->capture_default_str();
  app.add_option("--port", options->listen.port, "port (0: any free port)")
      ->check(number_in_range(0, 65535))
      ->capture_default_str();
  app.add_option("--tls-cert", options->listen.tls_certificate, "PEM file with the certificate chain")
      ->option_text("FILE");
  app.add_option("--tls-key", options->listen.tls_key, "PEM file with the private key")->option_text("FILE");
  app.add_flag("--open", options->opens_browser, "open the web UI in the browser");
  declare_access_options(app, *options);
  declare_request_options(app, *options);
  app.add_flag_function(
      "--swap,!--no-swap", [options](int64_t n) { options->swaps_models = n > 0; },
      "load the installed model that a request names (default: only if other machines cannot reach the server)");
  declare_engine_options(app, options->engine);
  app.add_option("--cache-folder", options->cache_folder,
                 "folder that keeps the prefix cache across restarts, NAME.cache per model (default: not kept)")
      ->option_text("DIR")
      ->check(CLI::ExistingDirectory);
  app.add_option("--otlp-endpoint", options->otlp_endpoint,
                 "URL of an OpenTelemetry collector that receives a trace of each request (default: none)");
  ServerLimits& limits = options->api.limits;
  app.add_option("--max-connections", limits.connections, "maximum number of connections; more get 503")
      ->check(number_in_range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-body-bytes", limits.http.body_bytes, "maximum size of a request body, such as 32M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--drain-seconds", options->drain_s, "how long running requests may continue after a stop signal")
      ->check(number_in_range(0, 86400))
      ->capture_default_str();
  app.add_option("--drain-delay-seconds", options->drain_delay_s,
                 "how long after a stop signal requests are still accepted, while /ready is 503 (for load balancers)")
      ->check(number_in_range(0, 86400))
      ->capture_default_str();
  app.add_option("--replica", options->api.replica,
                 "name of this server among several; ids of its responses begin with it (docs/replicas.md)")
      ->option_text("NAME")
      ->envname("ZINC_REPLICA");
  declare_chat_template_option(app, options->model);
  app.add_option("--log", options->log, "one line per request: text, or json (default: text on a terminal, else json)")
      ->check(CLI::IsMember({"text", "json"}));
  declare_model_options(app, options->model);
  declare_trace_options(app, options->trace);
  auto print_config = std::make_shared<bool>(false);
  declare_print_config(app, *print_config);
  return [options, print_config, &app]() -> Status {
    if (!*print_config) return serve_and_trace(*options);
    ModelOptions first = options->model;
    if (!options->models.empty()) first.path = options->models.front();
    std::vector<ConfigLine> lines = resolved_model(first);
    lines.push_back({"swap", is_local_address(options->listen.host) ? "true" : "false", "default, from host"});
    return write_output(config_text(app, lines));
  };
}

}  // namespace

extern const Command k_command_serve = {
    .path = "serve",
    .summary = "serve models over HTTP: OpenAI, Anthropic and Ollama APIs, and a web UI",
    .declare = declare};

}  // namespace zinc::command_serve

zinc::Status zinc::serve_web_ui(const std::string& model) {
  command_serve::Options options;
  if (!model.empty()) options.models.push_back(model);
  options.opens_browser = true;
  return command_serve::serve_and_trace(options);
}
