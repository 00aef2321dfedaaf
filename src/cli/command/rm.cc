// `zinc rm NAME...`: removes models that zinc downloaded, never other programs' files.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/deferred_sigint.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/for_each_name.h"
#include "cli/hub_settings.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "hub/inventory.h"
#include "hub/model_names.h"

namespace zinc::command_rm {
namespace {

struct Options {
  std::vector<std::string> names;
  bool json = false;
};

// Nothing is removed on a guess: the whole name of the model that `name` may mean is shown instead.
std::string hint_for(const ModelStore& store, const std::string& name) {
  std::vector<std::string> ids;
  for (const InstalledModel& model : store.list()) ids.push_back(model.id);
  const std::vector<std::string> meant = match_model_name(name, ids);
  if (meant.size() != 1 || std::ranges::find(ids, meant[0]) == ids.end()) return "see `zinc list --installed`";
  return fmt::format("to remove '{0}', give its whole name: zinc rm {0}", meant[0]);
}

// The id of the model folder.
Result<std::string> installed_id(const HubSettings& settings, const std::string& name) {
  const ModelStore store(settings);
  if (const CatalogModel* model = find_catalog_model(name)) return std::string(model->id);
  if (!has_source_prefix(name)) return name;
  ZINC_TRY(source, parse_source(name));
  for (const InstalledModel& model : store.list()) {
    if (model.source == source.text) return model.id;
  }
  for (const std::string& id : store.unfinished()) {
    if (store.source_of(id) == source.text) return id;
  }
  const Result<std::optional<FoundModel>> found = find_model(settings, name);
  if (found.ok() && found.value()) {
    return fail(ErrorCode::invalid_input,
                "{}: this file is managed by another program; use that program to remove it: {}", name,
                found.value()->path.string());
  }
  return fail(ErrorCode::not_found, "no model from {} is installed; see `zinc list --installed`", name);
}

Result<json::object> remove(const HubSettings& settings, const std::string& name) {
  const ModelStore store(settings);
  ZINC_TRY(id, installed_id(settings, name));
  std::error_code error;
  if (!is_plain_file_name(id) || !std::filesystem::is_directory(store.folder(id), error)) {
    return fail(ErrorCode::not_found, "no model '{}' is installed; {}", sanitize_line(name), hint_for(store, name));
  }
  const DownloadHooks hooks{
      .progress = [](const DownloadProgress&) {}, .on_message = print_stderr, .cancelled = sigint_pending};
  ZINC_TRY(lock, store.lock(id, hooks));
  const std::optional<InstalledModel> model = store.find(id);
  if (model && std::ranges::any_of(model->files,
                                   [&](const InstalledFile& file) { return is_mapped(model->folder / file.name); })) {
    return fail(ErrorCode::unavailable,
                "{} is in use by another program, such as `zinc serve` or `zinc chat`; stop it first", id);
  }
  ZINC_TRY(n_bytes, store.remove(id));
  if (store.default_model() == id) {
    if (Status cleared = store.set_default_model(""); !cleared.ok()) return cleared.error();
  }
  print_stderr(fmt::format("removed {} ({})", id, human_bytes(n_bytes)));
  return json::object{{"id", id}, {"freed_bytes", static_cast<int64_t>(n_bytes)}};
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  return for_each_name(options.names, options.json, [&](const std::string& name) { return remove(settings, name); });
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("name", options->names, "names from `zinc list --installed`, or the sources of the models")
      ->required();
  app.add_flag("--json", options->json, "print the results as JSON");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_rm = {.path = "rm", .summary = "remove downloaded models", .declare = declare};

}  // namespace zinc::command_rm
