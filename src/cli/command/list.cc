// `zinc list`: the models that are here, and those of the catalog.
#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_memory.h"
#include "cli/one_line.h"
#include "cli/output.h"
#include "hub/inventory.h"

namespace zinc {
namespace {

struct Options {
  bool installed = false;
  bool json = false;
  bool names = false;
};

std::string row_of(const ModelEntry& entry, size_t width) {
  return fmt::format("{} {:<{}}  {:>10}  {:>9}  {:>10}  {:<9}  {}\n", entry.is_default ? '*' : ' ', one_line(entry.id),
                     width, human_bytes(entry.n_bytes), entry.parameters.empty() ? "?" : entry.parameters,
                     (entry.memory_is_exact || entry.memory_bytes == 0 ? "" : "~") + human_bytes(entry.memory_bytes),
                     fit_name(entry.fit), entry.path.empty() ? "" : "here");
}

std::string table_of(const std::vector<ModelEntry>& entries, const MachineMemory& machine) {
  size_t width = 4;
  for (const ModelEntry& entry : entries) width = std::max(width, one_line(entry.id).size());
  std::string text =
      fmt::format("  {:<{}}  {:>10}  {:>9}  {:>10}  {:<9}\n", "NAME", width, "FILE", "SIZE", "MEMORY", "FIT");
  for (const ModelEntry& entry : entries) text += row_of(entry, width);
  return text + fmt::format(
                    "\n* is the default. MEMORY is for {} positions, ~ where it is guessed from the file's size; "
                    "this machine has {}, {} of it free.\n",
                    kCatalogContext, human_bytes(machine.n_bytes), human_bytes(machine.n_available));
}

void note_unfinished(const HubSettings& settings) {
  const ModelStore store(settings);
  for (const std::string& id : store.unfinished()) {
    note(fmt::format("unfinished: {0}; `zinc pull {1}` goes on with it, `zinc rm {0}` removes it", one_line(id),
                     one_line(store.owner(id))));
  }
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  const MachineMemory machine = options.names ? this_machine() : model_memory();
  std::vector<ModelEntry> entries = list_models(settings, machine);
  if (options.installed) std::erase_if(entries, [](const ModelEntry& entry) { return entry.path.empty(); });
  if (options.names) {
    std::string names;
    for (const ModelEntry& entry : entries) names += one_line(entry.id) + "\n";
    return write_output(names);
  }
  if (!options.json) {
    note_unfinished(settings);
    return write_output(table_of(entries, machine));
  }
  json::array rows;
  for (const ModelEntry& entry : entries) rows.push_back(entry_json(entry, settings));
  return write_output(to_pretty_json(rows) + "\n");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--installed", options->installed, "only what is on this machine");
  CLI::Option* json = app.add_flag("--json", options->json, "print JSON");
  app.add_flag("--names", options->names, "print the names alone, one per line")->excludes(json);
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_list = {
    .path = "list", .summary = "show the models that are here and that can be fetched", .declare = declare};

}  // namespace zinc
