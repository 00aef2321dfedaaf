// `zinc stop MODEL`: unloads a model of a running server; its file stays.
#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/server_client.h"
#include "hub/model_names.h"

namespace zinc::command_stop {
namespace {

struct Options {
  ServerAddress server;
  std::string model;
};

// The name of the loaded model that `typed` means; `typed` itself if there is none: then the server reports the error.
Result<std::string> loaded_name(const Options& options) {
  ZINC_TRY(models, loaded_models(options.server));
  std::vector<std::string> names;
  for (const json::object& model : models) {
    if (model.at("id").is_string()) names.emplace_back(model.at("id").get_string());
  }
  const std::vector<std::string> meant = match_model_name(options.model, names);
  return meant.size() == 1 ? meant.front() : options.model;
}

Status run(const Options& options) {
  ZINC_TRY(name, loaded_name(options));
  const json::object body{{"model", name}};
  ZINC_TRY(response, call_server(options.server, "/v1/models/unload", &body));
  print_stderr(fmt::format("{} is unloaded", sanitize_line(name)));
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "a name from `zinc ps`")->required();
  declare_server_options(app, options->server);
  app.footer("Running requests are finished first. The server itself goes on; Ctrl-C or SIGTERM stops it.");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_stop = {
    .path = "stop", .summary = "unload a model of a running server", .declare = declare};

}  // namespace zinc::command_stop
