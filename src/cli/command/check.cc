// `zinc check [MODEL]`: what this machine can run, what stands in the way, and the command that helps. Exit code 1 if
// something does not work.
#include <unistd.h>

#include <memory>

#include "cli/check/check_report.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/number_between.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace zinc {
namespace {

struct Options {
  CheckOptions check;
  bool json = false;
};

Status run(const Options& options) {
  ZINC_TRY(settings, hub_settings());
  CheckReport report;
  check_machine(report);
  check_gpus(report, "/");
  check_backends(report);
  check_models(report, settings, !options.check.model.empty());
  check_model(report, settings, options.check, default_backend());
  const std::string text =
      options.json ? to_pretty_json(report.to_json()) + "\n" : report.to_text(shows_colours(STDOUT_FILENO));
  if (Status written = write_output(text); !written.ok()) return written;
  if (report.verdict() != CheckStatus::fail) return ok_status();
  return fail(ErrorCode::unsupported, "a check failed");
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->check.model, kOptionalModelHelp);
  app.add_option("-c,--context", options->check.context, "positions the model's memory is stated for")
      ->check(number_between(1, 1 << 30))
      ->capture_default_str();
  app.add_flag("--json", options->json, "print JSON (docs/check.schema.json)");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_check = {
    .path = "check", .summary = "tell what this machine can run, and what stands in the way", .declare = declare};

}  // namespace zinc
