// `zinc ps`: the models that a running server has loaded.
#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/server_client.h"
#include "hub/inventory.h"

namespace zinc::command_ps {
namespace {

struct Options {
  ServerAddress server;
  bool json = false;
};

std::string name_of(const json::object& model) {
  const json::value& id = model.at("id");
  return id.is_string() ? sanitize_line(std::string_view(id.get_string())) : "?";
}

uint64_t figure(const json::object& model, std::string_view key) {
  const json::value* figures = model.if_contains("figures");
  const json::object* fields = figures ? figures->if_object() : nullptr;
  const json::value* value = fields ? fields->if_contains(key) : nullptr;
  return value && value->is_number() ? value->to_number<uint64_t>() : 0;
}

std::string table_of(const std::vector<json::object>& models) {
  size_t width = 4;
  for (const json::object& model : models) width = std::max(width, name_of(model).size());
  std::string text = fmt::format("{:<{}}  {:>9}  {:>9}  {:>8}  {:>7}  {:>7}\n", "NAME", width, "WEIGHTS", "CACHE",
                                 "CONTEXT", "RUNNING", "WAITING");
  for (const json::object& model : models) {
    text += fmt::format("{:<{}}  {:>9}  {:>9}  {:>8}  {:>7}  {:>7}\n", name_of(model), width,
                        human_bytes(figure(model, "weight_bytes")), human_bytes(figure(model, "cache_bytes")),
                        figure(model, "context_tokens"), figure(model, "active_requests"),
                        figure(model, "queued_requests"));
  }
  return text;
}

Status run(const Options& options) {
  ZINC_TRY(models, loaded_models(options.server));
  if (options.json) {
    json::array rows;
    for (const json::object& model : models) rows.push_back(model);
    return write_output(to_pretty_json(rows) + "\n");
  }
  if (models.empty()) print_stderr(fmt::format("{} has no model loaded", options.server.url));
  return models.empty() ? ok_status() : write_output(table_of(models));
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  declare_server_options(app, options->server);
  app.add_flag("--json", options->json, "print JSON");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_ps = {
    .path = "ps", .summary = "list the models that a running server has loaded", .declare = declare};

}  // namespace zinc::command_ps
