// `zinc serve MODEL...`: an HTTP server with OpenAI's and Anthropic's APIs and a chat page. Runs until SIGTERM or
// Ctrl-C, then finishes what is under way. Standard output says where it listens, standard error has one line of JSON
// per request.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "base/counted.h"
#include "base/held_interrupt.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/hub_library.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_between.h"
#include "cli/open_page.h"
#include "cli/output.h"
#include "cli/serve_page.h"
#include "hub/resolve.h"
#include "server/api.h"
#include "server/http_server.h"

namespace zinc {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> models;  // MODEL or NAME=MODEL
  EngineOptions engine;
  ListenOptions listen;
  ApiOptions api;
  std::string key_file;
  std::filesystem::path cache_folder;  // of prefix trees; empty: they are not kept
  bool force_public = false;
  bool opens_page = false;
  std::optional<bool> swaps_models;  // empty: where only this machine can reach the server
  int drain_s = 30;
};

struct NamedModel {
  std::string name, path;
};

// "tiny-00001-of-00003.gguf" is called tiny; a name of the catalog is called what it is.
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
      return fail(ErrorCode::invalid_input, "two models are called '{}'; give one another name: NAME={}", model.name,
                  model.path);
    }
    out.push_back(std::move(model));
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
  if (keys.empty()) return fail(ErrorCode::invalid_input, "{}: has no key; expected one per line", path);
  return ok_status();
}

Status check_options(Options& options) {
  if (!options.key_file.empty()) {
    ZINC_TRY(keys, read_key_file(options.key_file, options.api.access.keys));
  }
  for (const std::string& key : options.api.access.keys) {
    if (key.empty()) return fail(ErrorCode::invalid_input, "--api-key is empty");
  }
  if (options.listen.tls_certificate.empty() != options.listen.tls_key.empty()) {
    return fail(ErrorCode::invalid_input, "--tls-cert and --tls-key belong together; one of them is missing");
  }
  const bool is_open = options.api.access.keys.empty() && !is_loopback_address(options.listen.host);
  if (is_open && !options.force_public) {
    return fail(ErrorCode::invalid_input,
                "--host {} can be reached from other machines and no --api-key is given: everyone there could use this "
                "server; give a key, or --force-public if that is meant",
                options.listen.host);
  }
  options.api.limits.drain_time = std::chrono::seconds(options.drain_s);
  return ok_status();
}

// A name may be a source, with slashes.
std::string cache_file_name(std::string_view name) {
  std::string file;
  for (const char c : name) file += c == '/' ? "%2F" : std::string(1, c);
  return file + ".cache";
}

Result<std::unique_ptr<EngineThread>> load_engine(const Options& options, const std::string& name,
                                                  const std::string& path) {
  ModelOptions model_options = options.model;
  model_options.path = path;
  ZINC_TRY(model, load_model(model_options));
  note(fmt::format("zinc: {}: {}", name, device_text(model_options, model)));
  EngineOptions engine_options = options.engine;
  if (!options.cache_folder.empty()) engine_options.cache_file = options.cache_folder / cache_file_name(name);
  ZINC_TRY(engine, Engine::create(std::move(model), engine_options));
  return std::make_unique<EngineThread>(std::move(engine));
}

void announce(const ServedModel& model) {
  note(fmt::format("zinc: {}: context {}, {} at once, {} more may wait; {} MiB of weights, {} MiB of cache; {}",
                   model.name, model.limits.context, counted(model.limits.max_sequences, "request"),
                   model.limits.queue_limit, model.limits.weight_bytes >> 20, model.limits.cache_bytes >> 20,
                   to_json(model.facts)));
  if (!model.limits.cache_note.empty()) note(fmt::format("zinc: {}: {}", model.name, model.limits.cache_note));
}

Status serve(Options& options) {
  if (Status checked = check_options(options); !checked.ok()) return checked;
  ZINC_TRY(settings, hub_settings());
  if (options.models.empty()) options.models.push_back(default_model_name(settings));
  ZINC_TRY(named, name_models(options.models));
  options.api.build = {{"version", version_text()}};

  ZINC_TRY(server, [&] {
    const HeldInterrupt leaves_it_to_us;  // its threads do, so that a Ctrl-C waits while a model is fetched
    return HttpServer::listen(options.listen, options.api.limits);
  }());
  for (NamedModel& model : named) {
    ZINC_TRY(path, model_file(model.path));
    model.path = path.string();
  }
  ModelList models;
  HubLibrary library(settings, models, [&options](const std::string& name, const std::string& path) {
    return load_engine(options, name, path);
  });
  const bool is_local = is_loopback_address(options.listen.host);
  if (!is_local) library.refuse_addresses();
  options.api.library = &library;
  options.api.swaps_models = options.swaps_models.value_or(is_local);
  Api api(models, options.api,
          {.post = [&server](std::function<void()> task) { server->post(std::move(task)); },
           .work = [&server](std::function<void()> task) { server->work(std::move(task)); },
           .is_draining = [&server] { return server->is_draining(); },
           .n_connections = [&server] { return server->n_connections(); }});
  for (const NamedModel& model : named) {
    if (Status loaded = library.load_now(model.name, model.path); !loaded.ok()) return loaded;
    announce(*models.find(model.name));
  }
  server->set_handlers(
      [&api](HttpRequest request, std::shared_ptr<Reply> reply) { api.handle(std::move(request), std::move(reply)); },
      Api::refusal, [](json::object line) { note(to_json(line)); },
      [&api](const HttpRequest& head) { return api.refuse_head(head); });
  server->watch_signals();
  const bool is_ipv6 = options.listen.host.find(':') != std::string::npos;
  const std::string url = fmt::format("{}://{}:{}", options.listen.tls_certificate.empty() ? "http" : "https",
                                      is_ipv6 ? "[" + options.listen.host + "]" : options.listen.host, server->port());
  if (Status said = write_output(fmt::format("listening on {}\n", url)); !said.ok()) return said;
  if (options.opens_page) open_page(url);
  server->run();
  // Before the API goes, to which the engines tell what is left.
  if (!options.cache_folder.empty()) return library.stop_and_save();
  library.stop();
  return ok_status();
}

void declare_engine_options(CLI::App& app, EngineOptions& engine) {
  app.add_option("--parallel", engine.max_sequences, "requests that run at once")
      ->check(number_between(1, 1024))
      ->capture_default_str();
  app.add_option("-c,--context", engine.context, "positions per request (0: the model's own, as far as memory holds)")
      ->check(number_between(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--cache-bytes", engine.cache_bytes, "memory for keys, values and states, such as 4G (0: chosen)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--queue", engine.queue_limit, "requests that may wait; more are answered 503")
      ->check(number_between(1, 1 << 20))
      ->capture_default_str();
}

void declare_access_options(CLI::App& app, Options& options) {
  AccessOptions& access = options.api.access;
  app.add_option("--api-key", access.keys, "a key that may use the server; may be given several times")
      ->allow_extra_args(false)
      ->envname("ZINC_API_KEY");
  app.add_option("--api-key-file", options.key_file, "a file with a key per line");
  app.add_option("--allowed-host", access.allowed_hosts, "a name this server goes by, beside addresses and localhost")
      ->allow_extra_args(false);
  app.add_option("--cors-origin", access.allowed_origins, "an origin whose pages may use the server; '*': all")
      ->allow_extra_args(false);
  app.add_flag("--force-public", options.force_public, "listen on a public address without a key");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->models, kOptionalModelHelp + "; NAME=MODEL calls it otherwise");
  app.add_option("--host", options->listen.host, "the address to listen on")->capture_default_str();
  app.add_option("--port", options->listen.port, "the port (0: any free one)")
      ->check(number_between(0, 65535))
      ->capture_default_str();
  app.add_option("--tls-cert", options->listen.tls_certificate, "a PEM file: the certificate chain");
  app.add_option("--tls-key", options->listen.tls_key, "a PEM file: its private key");
  app.add_flag("--open", options->opens_page, "open the chat page in the browser");
  declare_access_options(app, *options);
  app.add_flag_function(
      "--swap,!--no-swap", [options](int64_t n) { options->swaps_models = n > 0; },
      "load the model that a request names, where it is on this machine (default: unless other machines can reach the "
      "server)");
  declare_engine_options(app, options->engine);
  app.add_option("--cache-folder", options->cache_folder,
                 "where cached prompts are kept over a restart, NAME.cache for each model (default: nowhere)")
      ->check(CLI::ExistingDirectory);
  ServerLimits& limits = options->api.limits;
  app.add_option("--max-connections", limits.connections, "connections at once; more are answered 503")
      ->check(number_between(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-body-bytes", limits.http.body_bytes, "the longest request body, such as 32M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--drain-seconds", options->drain_s, "how long answers may go on after a signal to stop")
      ->check(number_between(0, 86400))
      ->capture_default_str();
  declare_model_options(app, options->model);
  return [options] { return serve(*options); };
}

}  // namespace

Status serve_page(const std::string& model) {
  Options options;
  if (!model.empty()) options.models.push_back(model);
  options.opens_page = true;
  return serve(options);
}

extern const Command k_command_serve = {
    .path = "serve",
    .summary = "answer over HTTP, with OpenAI's and Anthropic's APIs and a chat page",
    .declare = declare};

}  // namespace zinc
