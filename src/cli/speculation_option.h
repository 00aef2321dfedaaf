// The option --speculate of commands that generate text.
#pragma once

#include <CLI/CLI.hpp>

#include "engine/speculation_options.h"

namespace zinc {

// Declares --speculate auto|off|ngram|mtp|mtp:FILE|draft:MODEL.
CLI::Option* declare_speculation_option(CLI::App& app, SpeculationOptions& options);

}  // namespace zinc
