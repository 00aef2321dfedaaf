// `zinc check [MODEL]`: what this machine can run, the problems found, and commands that fix them. Exit code 1 if a
// check failed.
#include <unistd.h>

#include <memory>

#include "cli/check/check_report.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace zinc::command_check {
namespace {

struct Options {
  CheckOptions check;
  ModelOptions model;
  bool json = false;
};

Status run(Options& options) {
  const BackendChoice backend = backend_of(options.model);
  options.check.load = {.backend = backend.name, .kv_format = backend.kv_format, .placement = options.model.placement};
  ZINC_TRY(settings, hub_settings());
  CheckReport report;
  check_machine(report);
  check_gpus(report, "/");
  check_backends(report);
  check_models(report, settings, !options.check.model.empty());
  check_model(report, settings, options.check, default_backend());
  const std::string text = options.json ? to_pretty_json(report.to_json()) + "\n"
                                        : report.to_text(shows_colors(STDOUT_FILENO), terminal_width(STDOUT_FILENO));
  if (Status written = write_output(text); !written.ok()) return written;
  if (report.verdict() != CheckStatus::fail) return ok_status();
  return fail(ErrorCode::unsupported, "a check failed");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->check.model, kOptionalModelHelp);
  app.add_option("-c,--context", options->check.context, "context length to compute the memory need for")
      ->check(number_in_range(1, 1 << 30))
      ->capture_default_str();
  declare_backend_options(app, options->model);
  app.add_flag("--json", options->json, "print JSON (docs/check.schema.json)");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_check = {
    .path = "check", .summary = "report what this machine can run, and how to fix problems", .declare = declare};

}  // namespace zinc::command_check
