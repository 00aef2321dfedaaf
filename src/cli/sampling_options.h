// Sampling as command-line options. Options that are not given take the model's recommended values
// (hub/recommended_sampling.h); without a seed, a random one is used. Both are reported, so that every answer can be
// reproduced.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <set>
#include <string_view>

#include "graph/sampling_fields.h"
#include "hub/recommended_sampling.h"

namespace zinc {

struct SamplingOptions {
  SamplingParams params = {};             // values of the given options
  std::set<std::string_view> given = {};  // SamplingField::name
  std::optional<uint64_t> seed;

  // The given options, else the recommended values; a random seed if none is given.
  SamplingParams resolve(const RecommendedSampling& recommended) const;
  Status check() const;           // whether all given values are in range
  bool uses_recommended() const;  // whether any effective option is not given
};

void declare_sampling_options(CLI::App& app, SamplingOptions& options);

std::string seed_error(const std::string& word);  // empty: a valid seed

// "temp 0.2, top-p 0.9, seed 7": the settings that are not neutral.
std::string sampling_text(const SamplingParams& params);

}  // namespace zinc
