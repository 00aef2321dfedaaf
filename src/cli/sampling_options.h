// Sampling as command-line options. What is not given is what the model's makers recommend (hub/sampling_advice.h);
// where no seed is given one is drawn. Both are reported, so that every answer can be made again.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>

#include "base/json.h"
#include "graph/sampling_params.h"
#include "hub/sampling_advice.h"

namespace zinc {

struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  SamplingParams params = {};  // what was given, and neutral where it is

  // All of it: what was given, else the advice; a drawn seed.
  SamplingParams settle(const SamplingAdvice& advice) const;
  Status check() const;       // whether every number that was given is in its range
  bool takes_advice() const;  // whether any of it that matters is not given
};

void declare_sampling_options(CLI::App& app, SamplingOptions& options);
// --think and --no-think; unset where neither is given. `thinking` must outlive the parsing.
void declare_thinking_option(CLI::App& app, std::optional<bool>& thinking);

// "temp 0.2, top-p 0.9, seed 7": what is not neutral, as options would say it.
std::string sampling_text(const SamplingParams& params);
json::object sampling_json(const SamplingParams& params);

}  // namespace zinc
