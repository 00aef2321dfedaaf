#include "cli/thinking_options.h"

#include <fmt/core.h>

#include "cli/number_in_range.h"

namespace zinc {
namespace {

constexpr std::string_view kModes = "on, off, minimal, low, medium, high, xhigh, max or default";

}  // namespace

Status set_thinking_mode(std::string_view word, ThinkingMode& mode) {
  if (word == "default") {
    mode = {};
  } else if (word == "on" || word == "off") {
    mode = {.is_on = word == "on", .effort = {}};
  } else if (is_thinking_effort(word)) {
    mode = {.is_on = true, .effort = std::string(word)};
  } else {
    return fail(ErrorCode::invalid_input, "'{}' is not a thinking mode; expected {}", word, kModes);
  }
  return ok_status();
}

std::string thinking_mode_name(const ThinkingMode& mode) {
  if (!mode.effort.empty()) return mode.effort;
  return !mode.is_on ? "default" : *mode.is_on ? "on" : "off";
}

void declare_thinking_options(CLI::App& app, ThinkingOptions& options) {
  CLI::Option* const think =
      app.add_option_function<std::string>(
             "--think",
             [&options](const std::string& word) {
               const Status set = set_thinking_mode(word, options.mode);
               if (!set.ok()) throw CLI::ValidationError("--think", set.error().message);
             },
             "thinking mode: on, off, or an effort: low, medium, high (default: the model's own mode)")
          ->option_text("[MODE]");
  app.add_flag_callback(
         "--no-think", [&options] { options.mode = {.is_on = false, .effort = {}}; }, "same as --think off")
      ->excludes(think);
  app.add_option("--think-budget", options.budget,
                 "maximum thinking tokens; then the answer follows (default: no limit)")
      ->check(number_in_range(0, 1 << 30));
}

std::string ignored_thinking_text(const ThinkingOptions& options, const ThinkingSupport& support,
                                  std::string_view model) {
  const bool is_ignored = options.mode.is_on == true && support.kind == ThinkingSupport::Kind::none;
  if (!is_ignored) return "";
  return fmt::format("{} has no thinking mode: its chat template does not support it; --think has no effect", model);
}

void complete_think_option(std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") return;
    if (arguments[i] != "--think") continue;
    ThinkingMode ignored;
    const bool has_mode = i + 1 < arguments.size() && set_thinking_mode(arguments[i + 1], ignored).ok();
    if (!has_mode) arguments[i] = "--think=on";
  }
}

}  // namespace zinc
