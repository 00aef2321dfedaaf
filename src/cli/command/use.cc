// `zinc use [NAME]`: sets or prints the default model.
#include <fmt/core.h>

#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "hub/resolve.h"

namespace zinc::command_use {
namespace {

struct Options {
  std::string name;
  bool reset = false;
  bool json = false;
};

// The name, as an absolute path if it is a file: independent of the current folder.
Result<std::string> absolute_name(const HubSettings& settings, const std::string& typed) {
  const std::string name = full_model_name(settings, typed);
  ZINC_TRY(found, find_model(settings, name));
  if (const CatalogModel* model = find_catalog_model(name)) return std::string(model->id);
  if (!found || found->location != ModelLocation::path) return name;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::canonical(found->path, error);
  if (error) return fail(ErrorCode::not_found, "{}: {}", name, error.message());
  if (!std::filesystem::is_regular_file(absolute, error)) {
    return fail(ErrorCode::invalid_input, "{}: not a file; give a model file or a model name", name);
  }
  return absolute.string();
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  const ModelStore store(settings);
  if (options.reset) {
    if (Status cleared = store.set_default_model(""); !cleared.ok()) return cleared;
  } else if (!options.name.empty()) {
    ZINC_TRY(name, absolute_name(settings, options.name));
    if (Status set = store.set_default_model(name); !set.ok()) return set;
  }
  const std::string name = default_model_name(settings);
  const Result<std::optional<FoundModel>> found = find_model_or_modified(settings, name);
  const bool is_installed = found.ok() && found.value();
  if (options.json) return write_output(to_json(json::object{{"default", name}, {"installed", is_installed}}) + "\n");
  if (!is_installed)
    print_stderr(fmt::format("not installed yet; `zinc pull {}` or the first use downloads it", sanitize_line(name)));
  return write_output(sanitize_line(name) + "\n");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* name =
      app.add_option("name", options->name, std::string(kModelHelp) + "; if omitted, print the default");
  app.add_flag("--reset", options->reset, "restore zinc's built-in default")->excludes(name);
  app.add_flag("--json", options->json, "print JSON");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_use = {.path = "use", .summary = "set or print the default model", .declare = declare};

}  // namespace zinc::command_use
