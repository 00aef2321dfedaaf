// `zinc use [NAME]`: which model answers where none is named.
#include <fmt/core.h>

#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/one_line.h"
#include "cli/output.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

struct Options {
  std::string name;
  bool reset = false;
  bool json = false;
};

// The name as it will still mean the same from another folder.
Result<std::string> lasting_name(const HubSettings& settings, const std::string& name) {
  ZINC_TRY(found, find_model(settings, name));
  if (const CatalogModel* model = find_catalog_model(name)) return std::string(model->id);
  if (!found || found->place != ModelPlace::path) return name;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::canonical(found->path, error);
  if (error) return fail(ErrorCode::not_found, "{}: {}", name, error.message());
  if (!std::filesystem::is_regular_file(absolute, error)) {
    return fail(ErrorCode::invalid_input, "{}: is not a file; name a model", name);
  }
  return absolute.string();
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  const ModelStore store(settings);
  if (options.reset) {
    if (Status cleared = store.set_default_model(""); !cleared.ok()) return cleared;
  } else if (!options.name.empty()) {
    ZINC_TRY(name, lasting_name(settings, options.name));
    if (Status set = store.set_default_model(name); !set.ok()) return set;
  }
  const std::string name = default_model_name(settings);
  const Result<std::optional<FoundModel>> found = find_model_or_touched(settings, name);
  const bool is_here = found.ok() && found.value();
  if (options.json) return write_output(to_json(json::object{{"default", name}, {"installed", is_here}}) + "\n");
  if (!is_here) note(fmt::format("it is not here yet; `zinc pull {}` or its first use fetches it", one_line(name)));
  return write_output(one_line(name) + "\n");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* name =
      app.add_option("name", options->name, std::string(kModelHelp) + "; without it, tells the default");
  app.add_flag("--reset", options->reset, "back to the model zinc comes with")->excludes(name);
  app.add_flag("--json", options->json, "print JSON");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_use = {
    .path = "use", .summary = "choose the model that is used where none is named", .declare = declare};

}  // namespace zinc
