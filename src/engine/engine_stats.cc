#include "engine/engine_stats.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr double kStepSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                   0.15,  0.2,    0.3,   0.5,  0.75,  1,    2.5};
constexpr double kRequestSeconds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1,  2.5,
                                      5,    7.5,   10,   20,  40,   80,  160,  640};
constexpr double kTokens[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::ranges::lower_bound(bounds, value);
  ++counts[static_cast<size_t>(bucket - bounds.begin())];
  sum += value;
  ++n;
}

EngineStats::EngineStats()
    : step_s(kStepSeconds),
      step_tokens(kTokens),
      time_to_first_token_s(kRequestSeconds),
      inter_token_s(kStepSeconds),
      queue_s(kRequestSeconds),
      prefill_s(kRequestSeconds),
      decode_s(kRequestSeconds),
      e2e_s(kRequestSeconds),
      prompt_tokens(kTokens),
      generated_tokens(kTokens) {}

}  // namespace zinc
