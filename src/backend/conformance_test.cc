// Runs every conformance case on every backend.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/conformance.h"
#include "tests/support/contains_all.h"
#include "tests/support/tested_backends.h"

namespace zinc::conformance {
namespace {

std::vector<CaseSource> all_cases() {
  std::vector<CaseSource> all;
  for (const auto& family :
       {linear_cases, norm_rope_cases, attention_cases, elementwise_cases, moe_cases, recurrent_cases, fused_cases}) {
    std::ranges::move(family(), std::back_inserter(all));
  }
  return all;
}

std::string identifier(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// Quantization to 8 bits changes an element by up to 1/254 of the largest of its block.
constexpr double kEightBitTolerance = 4e-3;

bool multiplies_quantized(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear;
    return multiplies && graph.info(node.in[1]).weight.format->block_elems > 1;
  });
}

// Rounding to f16 changes an element by up to 1/2048 of itself: queries and probabilities, and of a quantized KV cache
// keys and values too, which are quants times their scale (of fp8 a power of two).
constexpr double kHalfTolerance = 5e-4;

class Conformance : public testing::TestWithParam<std::tuple<const BackendInfo*, CaseSource>> {};

TEST_P(Conformance, the_backend_computes_the_expected_result) {
  const auto& [info, source] = GetParam();
  if (!info->is_available()) GTEST_SKIP() << info->name << " is not available on this machine";
  Result<std::unique_ptr<Backend>> backend = info->open(0);
  ASSERT_TRUE(backend.ok()) << backend.error().message;  // available, so it must open
  Case c = source.make(source.name);
  if (info->matmul_activation_bits == 8 && multiplies_quantized(c.graph))
    c.tolerance = std::max(c.tolerance, kEightBitTolerance);
  if (info->attention_activation_bits == 16 && c.kv_format->name != "f32")
    c.tolerance = std::max(c.tolerance, kHalfTolerance * (c.kv_format->name.starts_with("q") ? 2 : 1));
  if (!has_kv_format(*info, c.kv_format->name)) {
    const std::string error = first_mismatch(c, *backend.value());
    EXPECT_TRUE(contains_all(error, {fmt::format("'{}'", c.kv_format->name), "f32, f16"})) << error;
    return;
  }
  EXPECT_EQ(first_mismatch(c, *backend.value()), "") << source.name;
}
INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         testing::Combine(testing::ValuesIn(tested_backends()), testing::ValuesIn(all_cases())),
                         [](const auto& info) {
                           return identifier(
                               fmt::format("{} {}", std::get<0>(info.param)->name, std::get<1>(info.param).name));
                         });

TEST(ConformanceCheck, detects_one_wrong_element) {
  std::unique_ptr<Backend> backend = std::move(find_backend("reference").value()->open(1).value());
  Case c = elementwise_cases().front().make("check");
  ASSERT_EQ(first_mismatch(c, *backend), "");
  double& last = c.steps.back().expected.back().values.back();
  last += 1e-3;
  EXPECT_NE(first_mismatch(c, *backend), "");
}

TEST(ConformanceCheck, every_op_has_a_case) {
  std::array<bool, kOpCount> seen{};
  for (const CaseSource& source : all_cases()) {
    const Case c = source.make(source.name);
    for (const Node& node : c.graph.nodes()) seen[static_cast<size_t>(node.op)] = true;
  }
  for (size_t op = 0; op < kOpCount; ++op) EXPECT_TRUE(seen[op]) << op_name(static_cast<Op>(op));
}

}  // namespace
}  // namespace zinc::conformance
