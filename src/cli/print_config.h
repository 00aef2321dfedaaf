// --print-config: the effective settings of a command and where each comes from, one per line:
//   temp = 0.2  # SmolLM2's model card
// Keys and passwords are not shown.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "cli/model_options.h"
#include "cli/sampling_options.h"

namespace zinc {

struct ConfigLine {
  std::string name, value, origin;
};

void declare_print_config(CLI::App& app, bool& is_wanted);

// The options of `app` after parsing. A line of `resolved` replaces an option that was not given, or is added.
std::string config_text(const CLI::App& app, const std::vector<ConfigLine>& resolved);

// The model file, backend and threads that these options resolve to, without loading the model.
std::vector<ConfigLine> resolved_model(const ModelOptions& options);
// The recommended sampling of the model, if it is installed.
std::vector<ConfigLine> resolved_sampling(const ModelOptions& options, std::optional<bool> thinking);

}  // namespace zinc
