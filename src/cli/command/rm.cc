// `zinc rm NAME...`: removes models that zinc fetched. What other programs hold is theirs.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/held_interrupt.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/one_line.h"
#include "cli/output.h"
#include "cli/report_each.h"
#include "hub/inventory.h"

namespace zinc {
namespace {

struct Options {
  std::vector<std::string> names;
  bool json = false;
};

// The id of the folder that is meant.
Result<std::string> installed_id(const HubSettings& settings, const std::string& name) {
  const ModelStore store(settings);
  if (const CatalogModel* model = find_catalog_model(name)) return std::string(model->id);
  if (!has_source_prefix(name)) return name;
  ZINC_TRY(source, parse_source(name));
  for (const InstalledModel& model : store.list()) {
    if (model.source == source.text) return model.id;
  }
  for (const std::string& id : store.unfinished()) {
    if (store.owner(id) == source.text) return id;
  }
  const Result<std::optional<FoundModel>> found = find_model(settings, name);
  if (found.ok() && found.value()) {
    return fail(ErrorCode::invalid_input, "{}: this file belongs to another program; remove it with that: {}", name,
                found.value()->path.string());
  }
  return fail(ErrorCode::not_found, "no model from {} is installed; `zinc list --installed` shows those that are",
              name);
}

Result<json::object> remove(const HubSettings& settings, const std::string& name) {
  const ModelStore store(settings);
  ZINC_TRY(id, installed_id(settings, name));
  std::error_code error;
  if (!is_plain_file_name(id) || !std::filesystem::is_directory(store.folder(id), error)) {
    return fail(ErrorCode::not_found, "no model '{}' is installed; `zinc list --installed` shows those that are",
                one_line(name));
  }
  const DownloadHooks hooks{.progress = [](const DownloadProgress&) {}, .say = note, .cancelled = interrupt_waits};
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
  note(fmt::format("removed {} ({})", id, human_bytes(n_bytes)));
  return json::object{{"id", id}, {"freed_bytes", static_cast<int64_t>(n_bytes)}};
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  return report_each(options.names, options.json, [&](const std::string& name) { return remove(settings, name); });
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("name", options->names, "names `zinc list --installed` shows, or the sources they came from")
      ->required();
  app.add_flag("--json", options->json, "print what was removed as JSON");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_rm = {.path = "rm", .summary = "remove models that were fetched", .declare = declare};

}  // namespace zinc
