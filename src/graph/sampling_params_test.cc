#include "graph/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace zinc {
namespace {

constexpr int32_t kVocab = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string error_of(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  const Status status = validate(params, kVocab);
  return status.ok() ? "" : status.error().message;
}

TEST(SamplingParams, defaults_are_valid_and_neutral) {
  const SamplingParams p;
  EXPECT_TRUE(validate(p, kVocab).ok());
  EXPECT_EQ(p.temperature, 1.0f);
  EXPECT_EQ(p.top_k, 0);
  EXPECT_EQ(p.top_p, 1.0f);
  EXPECT_EQ(p.min_p, 0.0f);
  EXPECT_EQ(p.repeat_penalty, 1.0f);
  EXPECT_EQ(p.frequency_penalty, 0.0f);
  EXPECT_EQ(p.presence_penalty, 0.0f);
  EXPECT_EQ(p.dry_multiplier, 0.0f);
  EXPECT_TRUE(p.logit_bias.empty());
}

TEST(SamplingParams, every_float_refuses_nan_and_infinity_by_name) {
  const struct {
    const char* name;
    float SamplingParams::*field;
  } rows[] = {
      {"temperature", &SamplingParams::temperature},
      {"top_p", &SamplingParams::top_p},
      {"min_p", &SamplingParams::min_p},
      {"repeat_penalty", &SamplingParams::repeat_penalty},
      {"frequency_penalty", &SamplingParams::frequency_penalty},
      {"presence_penalty", &SamplingParams::presence_penalty},
      {"dry_multiplier", &SamplingParams::dry_multiplier},
      {"dry_base", &SamplingParams::dry_base},
  };
  for (const auto& row : rows) {
    for (const float bad : {kNan, kInf, -kInf, 1e30f, -1e30f}) {
      const std::string message = error_of([&](SamplingParams& p) { p.*row.field = bad; });
      EXPECT_TRUE(message.starts_with(std::string(row.name) + " is ")) << row.name << " = " << bad << ": " << message;
    }
  }
}

TEST(SamplingParams, floats_accept_their_range_and_refuse_the_next_number) {
  const struct {
    float SamplingParams::*field;
    float low, high;
  } ranges[] = {
      {&SamplingParams::temperature, 0.0f, 2.0f},
      {&SamplingParams::top_p, 0.0f, 1.0f},
      {&SamplingParams::min_p, 0.0f, 1.0f},
      {&SamplingParams::repeat_penalty, 0.01f, 100.0f},
      {&SamplingParams::frequency_penalty, -2.0f, 2.0f},
      {&SamplingParams::presence_penalty, -2.0f, 2.0f},
      {&SamplingParams::dry_multiplier, 0.0f, 1000.0f},
      {&SamplingParams::dry_base, 1.0f, 100.0f},
  };
  for (const auto& r : ranges) {
    EXPECT_EQ(error_of([&](SamplingParams& p) { p.*r.field = r.low; }), "");
    EXPECT_EQ(error_of([&](SamplingParams& p) { p.*r.field = r.high; }), "");
    EXPECT_NE(error_of([&](SamplingParams& p) { p.*r.field = std::nextafter(r.low, -kInf); }), "");
    EXPECT_NE(error_of([&](SamplingParams& p) { p.*r.field = std::nextafter(r.high, kInf); }), "");
  }
}

TEST(SamplingParams, negative_counts_are_refused_except_minus_one_for_windows) {
  EXPECT_EQ(error_of([](SamplingParams& p) { p.top_k = -1; }), "top_k is -1; expected 0 or more (0 turns it off)");
  EXPECT_NE(error_of([](SamplingParams& p) { p.dry_allowed_length = 0; }), "");
  EXPECT_EQ(error_of([](SamplingParams& p) { p.dry_allowed_length = kMaxDryMatch; }), "");
  EXPECT_EQ(error_of([](SamplingParams& p) { p.dry_allowed_length = kMaxDryMatch + 1; }),
            "dry_allowed_length is 51; expected at most 50 (shorter repetitions are not penalized)");
  EXPECT_EQ(error_of([](SamplingParams& p) { p.repeat_last_n = -1; }), "");
  EXPECT_NE(error_of([](SamplingParams& p) { p.repeat_last_n = -2; }), "");
  EXPECT_EQ(error_of([](SamplingParams& p) { p.dry_last_n = -1; }), "");
  EXPECT_NE(error_of([](SamplingParams& p) { p.dry_last_n = std::numeric_limits<int32_t>::min(); }), "");
  EXPECT_EQ(error_of([](SamplingParams& p) { p.top_k = std::numeric_limits<int32_t>::max(); }), "");
}

TEST(SamplingParams, logit_bias_has_a_limit) {
  EXPECT_EQ(error_of([](SamplingParams& p) { p.logit_bias.assign(kMaxLogitBiases, {0, 1.0f}); }), "");
  EXPECT_NE(error_of([](SamplingParams& p) { p.logit_bias.assign(kMaxLogitBiases + 1, {0, 1.0f}); }), "");
}

TEST(SamplingParams, logit_bias_must_name_a_token_and_a_bias_in_range) {
  EXPECT_EQ(error_of([](SamplingParams& p) { p.logit_bias = {{0, -100.0f}, {kVocab - 1, 100.0f}}; }), "");
  EXPECT_EQ(error_of([](SamplingParams& p) {
              p.logit_bias = {{kVocab, 1.0f}};
            }),
            "logit_bias names token 1000; expected 0 to 999, the model's vocabulary");
  EXPECT_NE(error_of([](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; }), "");
  EXPECT_NE(error_of([](SamplingParams& p) { p.logit_bias = {{5, 100.5f}}; }), "");
  EXPECT_NE(error_of([](SamplingParams& p) { p.logit_bias = {{5, kNan}}; }), "");
}

TEST(SamplingParams, dry_breakers_are_few_short_and_not_empty) {
  EXPECT_EQ(error_of([](SamplingParams& p) { p.dry_breakers.clear(); }), "");
  EXPECT_EQ(error_of([](SamplingParams& p) {
              p.dry_breakers = {"\n", ""};
            }),
            "dry_breakers[1] has 0 bytes; expected 1 to 64");
  EXPECT_NE(error_of([](SamplingParams& p) { p.dry_breakers = {std::string(65, 'x')}; }), "");
  EXPECT_NE(error_of([](SamplingParams& p) { p.dry_breakers.assign(65, "x"); }), "");
}

}  // namespace
}  // namespace zinc
