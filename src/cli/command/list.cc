// `zinc list`: the installed models and the catalog.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_memory.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"
#include "hub/inventory.h"

namespace zinc::command_list {
namespace {

struct Options {
  std::string part;  // of the names; empty: all
  bool installed = false;
  bool json = false;
  bool names = false;
};

bool contains(const ModelEntry& entry, const std::string& part) {
  if (part.empty()) return true;
  const auto is_same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(entry.id.begin(), entry.id.end(), part.begin(), part.end(), is_same) != entry.id.end();
}

std::string row_of(const ModelEntry& entry, size_t width) {
  const char mark = entry.is_default ? '*' : entry.is_recommended ? '+' : ' ';
  return fmt::format("{} {:<{}}  {:>9}  {:>9}  {:>9}  {}\n", mark, sanitize_line(entry.id), width,
                     human_bytes(entry.n_bytes), entry.parameters.empty() ? "?" : entry.parameters,
                     (entry.memory_is_exact || entry.memory_bytes == 0 ? "" : "~") + human_bytes(entry.memory_bytes),
                     fit_name(entry.fit));
}

// The entries that are installed, or those that are not, under a heading; empty if there are none.
std::string section_of(const std::vector<ModelEntry>& entries, bool is_installed, const char* heading) {
  size_t width = 4;
  for (const ModelEntry& entry : entries) width = std::max(width, sanitize_line(entry.id).size());
  std::string rows;
  for (const ModelEntry& entry : entries) {
    if (entry.path.empty() != is_installed) rows += row_of(entry, width);
  }
  if (rows.empty()) return "";
  return fmt::format("{}\n  {:<{}}  {:>9}  {:>9}  {:>9}  {}\n{}\n", heading, "NAME", width, "SIZE", "PARAMS", "MEMORY",
                     "FIT", rows);
}

std::string table_of(const std::vector<ModelEntry>& entries, const Options& options, const MemoryCapacity& memory) {
  const bool only_installed = options.installed;
  std::string installed = section_of(entries, /*is_installed=*/true, "Installed");
  if (installed.empty() && options.part.empty()) {
    installed =
        wrap_words(fmt::format("No models installed yet; `zinc pull {}` downloads a small one.\n\n", kDefaultModelId),
                   terminal_width(STDOUT_FILENO));
    if (only_installed) return installed.substr(0, installed.size() - 1);
  }
  const std::string available = only_installed ? ""
                                               : section_of(entries, /*is_installed=*/false,
                                                            "Available: zinc pull NAME, or name it in a command");
  const std::string legend =
      fmt::format("* default  {}~ estimated. MEMORY is for a context of {} tokens. This machine has {}, {} free.\n",
                  available.empty() ? "" : "+ recommended for this machine  ", kCatalogContext,
                  human_bytes(memory.n_bytes), human_bytes(memory.n_available));
  return installed + available + wrap_words(legend, terminal_width(STDOUT_FILENO));
}

void note_unfinished(const HubSettings& settings) {
  const ModelStore store(settings);
  for (const std::string& id : store.unfinished()) {
    print_stderr(fmt::format("unfinished download: {0}; `zinc pull {1}` resumes it, `zinc rm {0}` removes it",
                             sanitize_line(id), sanitize_line(store.source_of(id))));
  }
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  const MemoryCapacity memory = options.names ? host_memory() : model_memory();
  std::vector<ModelEntry> entries = list_models(settings, memory);
  if (options.installed) std::erase_if(entries, [](const ModelEntry& entry) { return entry.path.empty(); });
  std::erase_if(entries, [&](const ModelEntry& entry) { return !contains(entry, options.part); });
  if (entries.empty() && !options.part.empty()) {
    return fail(ErrorCode::not_found, "no {}model has '{}' in its name", options.installed ? "installed " : "",
                options.part);
  }
  if (options.names) {
    std::string names;
    for (const ModelEntry& entry : entries) names += sanitize_line(entry.id) + "\n";
    return write_output(names);
  }
  if (!options.json) {
    note_unfinished(settings);
    return write_output(table_of(entries, options, memory));
  }
  json::array rows;
  for (const ModelEntry& entry : entries) rows.push_back(entry_json(entry, settings));
  return write_output(to_pretty_json(rows) + "\n");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("text", options->part, "only models with TEXT in their name");
  app.add_flag("--installed", options->installed, "only models on this machine");
  CLI::Option* json = app.add_flag("--json", options->json, "print JSON");
  app.add_flag("--names", options->names, "print only the names, one per line")->excludes(json);
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_list = {
    .path = "list", .summary = "list installed models and the catalog", .declare = declare, .alias = "ls"};

}  // namespace zinc::command_list
