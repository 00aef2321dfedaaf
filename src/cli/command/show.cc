// `zinc show NAME`: details of one model, and whether it fits this machine.
#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/model_memory.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "hub/inventory.h"

namespace zinc::command_show {
namespace {

constexpr const char* kExperimentalHelp = " (zinc's tests run this architecture, but not this file)";

struct Options {
  std::string name;
  bool json = false;
};

std::string text_of(const ModelEntry& entry, const json::object& fields, const MemoryCapacity& memory) {
  std::string text = sanitize_line(entry.id) + (entry.is_default ? " (default)\n" : "\n");
  constexpr std::pair<const char*, const char*> kRows[] = {{"name", "name"},
                                                           {"architecture", "architecture"},
                                                           {"parameters", "parameters"},
                                                           {"quantization", "quantization"},
                                                           {"license", "license"},
                                                           {"status", "status"},
                                                           {"source", "source"},
                                                           {"homepage_url", "web page"},
                                                           {"file_name", "file"},
                                                           {"sha256", "SHA-256"},
                                                           {"path", "path"}};
  for (const auto& [key, label] : kRows) {
    const json::value& value = fields.at(key);
    if (!value.is_string()) continue;
    const std::string shown = sanitize_line(std::string_view(value.as_string()));
    text += fmt::format("  {:<13} {}{}\n", label, shown,
                        shown == status_name(CatalogStatus::experimental) ? kExperimentalHelp : "");
  }
  text += fmt::format("  {:<13} {}\n", "size", human_bytes(entry.n_bytes));
  text += fmt::format("  {:<13} {}{} for a context of {} tokens\n", "memory", entry.memory_is_exact ? "" : "about ",
                      human_bytes(entry.memory_bytes), kCatalogContext);
  text += fmt::format("  {:<13} {} (this machine has {}, {} free)\n", "fit", fit_name(entry.fit),
                      human_bytes(memory.n_bytes), human_bytes(memory.n_available));
  if (entry.path.empty())
    text += fmt::format("  not installed; `zinc pull {}` downloads it\n", sanitize_line(entry.id));
  return text;
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  const MemoryCapacity memory = model_memory();
  ZINC_TRY(entry, show_model(settings, options.name.empty() ? default_model_name(settings) : options.name, memory));
  const json::object fields = entry_json(entry, settings);
  return write_output(options.json ? to_pretty_json(fields) + "\n" : text_of(entry, fields, memory));
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->name, kOptionalModelHelp);
  app.add_flag("--json", options->json, "print JSON");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_show = {
    .path = "show", .summary = "show details of a model, and whether it fits", .declare = declare};

}  // namespace zinc::command_show
