// Sampling as command-line options. Defaults are those of SamplingParams, all shown by --help; where no seed is given
// one is drawn, and reported, so that every answer can be made again.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>

#include "graph/sampling_params.h"

namespace zinc {

struct SamplingOptions {
  SamplingParams params;
  std::optional<uint64_t> seed;
  void settle_seed();  // params.seed: the one given, or a fresh one
};

void declare_sampling_options(CLI::App& app, SamplingOptions& options);

}  // namespace zinc
