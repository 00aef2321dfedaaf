// Thinking as command-line options: --think [on|off|EFFORT], --no-think, --think-budget N.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/thinking_support.h"

namespace zinc {

struct ThinkingOptions {
  ThinkingMode mode = {};  // unset: the model's own mode
  int budget = -1;         // reasoning tokens; -1: no limit
};

// `options` must outlive the parsing.
void declare_thinking_options(CLI::App& app, ThinkingOptions& options);
// "default", "on", "off", or an effort such as "low".
Status set_thinking_mode(std::string_view word, ThinkingMode& mode);
std::string thinking_mode_name(const ThinkingMode& mode);  // "default", "on", "off", "low"

// Why a mode has no effect on a model; empty: it has one, or is not given.
std::string ignored_thinking_text(const ThinkingOptions& options, const ThinkingSupport& support,
                                  std::string_view model);

// --think may stand without a value before the prompt: gives it the value "on" unless a mode follows.
void complete_think_option(std::vector<std::string>& arguments);

}  // namespace zinc
