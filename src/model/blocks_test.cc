#include "model/blocks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/contains_all.h"
#include "tests/support/gguf_writer.h"

namespace zinc {
namespace {

struct RopeOutcome {
  RopeParams rope;
  std::string error;
};

RopeOutcome read(const GgufWriter& writer, int64_t head_dim = 64) {
  const std::string bytes = writer.bytes();
  const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "toy.gguf").value());
  Metadata metadata(file, "toy");
  const RopeParams rope = read_rope(metadata, RopePairs::adjacent, head_dim);
  return {rope, metadata.status().ok() ? "" : metadata.status().error().message};
}

TEST(ReadRope, defaults_to_the_whole_head_and_no_context_extension) {
  const auto [rope, error] = read(GgufWriter(), 96);
  EXPECT_EQ(error, "");
  EXPECT_EQ(rope.pairs, RopePairs::adjacent);
  EXPECT_EQ(rope.n_dims, 96);
  EXPECT_EQ(rope.theta, 10000);
  EXPECT_EQ(rope.position_scale, 1);
  EXPECT_EQ(rope.amplitude, 1);
  EXPECT_EQ(rope.yarn.original_context, 0);
}

TEST(ReadRope, takes_base_and_dimensions_from_the_file) {
  const auto [rope, error] =
      read(GgufWriter().add("toy.rope.freq_base", 5e5f).add("toy.rope.dimension_count", uint32_t{32}));
  EXPECT_EQ(rope.theta, 5e5f);
  EXPECT_EQ(rope.n_dims, 32);
}

TEST(ReadRope, interpolates_linearly_by_the_factor_also_without_a_type) {
  EXPECT_EQ(read(GgufWriter().add("toy.rope.scaling.factor", 8.0f)).rope.position_scale, 0.125f);
  const auto [rope, error] =
      read(GgufWriter().add("toy.rope.scaling.type", "linear").add("toy.rope.scaling.factor", 4.0f));
  EXPECT_EQ(rope.position_scale, 0.25f);
  EXPECT_EQ(rope.amplitude, 1);
  EXPECT_EQ(rope.yarn.original_context, 0);
}

TEST(ReadRope, knows_the_older_key_of_the_linear_factor) {
  EXPECT_EQ(read(GgufWriter().add("toy.rope.scale_linear", 2.0f)).rope.position_scale, 0.5f);
}

TEST(ReadRope, a_factor_of_zero_means_none) {
  EXPECT_EQ(read(GgufWriter().add("toy.rope.scaling.factor", 0.0f)).rope.position_scale, 1);
}

TEST(ReadRope, ignores_the_factor_if_the_type_is_none) {
  const auto [rope, error] =
      read(GgufWriter().add("toy.rope.scaling.type", "none").add("toy.rope.scaling.factor", 4.0f));
  EXPECT_EQ(error, "");
  EXPECT_EQ(rope.position_scale, 1);
}

TEST(ReadRope, yarn_takes_the_original_context_and_scales_attention_by_the_extension) {
  const auto [rope, error] = read(GgufWriter()
                                      .add("toy.rope.scaling.type", "yarn")
                                      .add("toy.rope.scaling.factor", 4.0f)
                                      .add("toy.rope.scaling.original_context_length", uint32_t{4096})
                                      .add("toy.context_length", uint32_t{16384})
                                      .add("toy.rope.scaling.yarn_beta_fast", 16.0f)
                                      .add("toy.rope.scaling.yarn_beta_slow", 2.0f)
                                      .add("toy.rope.scaling.attn_factor", 0.5f));
  EXPECT_EQ(error, "");
  EXPECT_EQ(rope.position_scale, 0.25f);
  EXPECT_EQ(rope.yarn.original_context, 4096);
  EXPECT_EQ(rope.yarn.beta_fast, 16);
  EXPECT_EQ(rope.yarn.beta_slow, 2);
  EXPECT_NEAR(rope.amplitude, 0.5 * (1 + 0.1 * std::log(4.0)), 1e-6);
}

TEST(ReadRope, yarn_without_an_original_context_takes_the_models) {
  const auto [rope, error] = read(GgufWriter()
                                      .add("toy.rope.scaling.type", "yarn")
                                      .add("toy.rope.scaling.factor", 4.0f)
                                      .add("toy.context_length", uint32_t{8192}));
  EXPECT_EQ(rope.yarn.original_context, 8192);
  EXPECT_EQ(rope.yarn.beta_fast, 32);
  EXPECT_EQ(rope.yarn.beta_slow, 1);
}

TEST(ReadRope, yarn_without_extension_does_not_scale_attention) {
  for (const float factor : {1.0f, 0.5f}) {
    const auto [rope, error] = read(GgufWriter()
                                        .add("toy.rope.scaling.type", "yarn")
                                        .add("toy.rope.scaling.factor", factor)
                                        .add("toy.context_length", uint32_t{4096}));
    EXPECT_EQ(error, "");
    EXPECT_EQ(rope.amplitude, 1) << factor;
  }
}

bool has_extension(const RopeOutcome& outcome, RopeExtensionKind kind, int64_t context, int64_t max_context) {
  const RopeExtension& e = outcome.rope.extension;
  return outcome.error.empty() && e.kind == kind && e.context == context && e.max_context == max_context;
}

TEST(ReadRope, a_context_without_an_extension_can_be_extended_per_sequence) {
  const auto writer = [] { return GgufWriter().add("toy.context_length", uint32_t{1000}); };
  EXPECT_TRUE(has_extension(read(writer()), RopeExtensionKind::yarn, 1000, 4000));
  EXPECT_TRUE(has_extension(read(writer().add("toy.rope.scaling.type", "none")), RopeExtensionKind::yarn, 1000, 4000));
  EXPECT_TRUE(has_extension(read(GgufWriter()), RopeExtensionKind::none, 0, 0));
}

TEST(ReadRope, a_context_that_the_file_extends_is_not_extended_further) {
  for (const char* type : {"linear", "yarn"}) {
    const RopeOutcome outcome = read(GgufWriter()
                                         .add("toy.context_length", uint32_t{1000})
                                         .add("toy.rope.scaling.type", type)
                                         .add("toy.rope.scaling.factor", 2.0f));
    EXPECT_TRUE(has_extension(outcome, RopeExtensionKind::none, 0, 0)) << type;
  }
}

TEST(ReadRope, longrope_is_for_sequences_beyond_the_original_context) {
  const RopeOutcome outcome = read(GgufWriter()
                                       .add("toy.context_length", uint32_t{131072})
                                       .add("toy.rope.scaling.type", "longrope")
                                       .add("toy.rope.scaling.original_context_length", uint32_t{4096})
                                       .add("toy.rope.scaling.attn_factor", 1.19f));
  EXPECT_TRUE(has_extension(outcome, RopeExtensionKind::longrope, 4096, 131072));
  EXPECT_EQ(outcome.rope.position_scale, 1);
  EXPECT_EQ(outcome.rope.amplitude, 1.19f);
}

TEST(ReadRope, an_attention_factor_out_of_range_is_named) {
  for (const float factor : {0.0f, -1.0f, 1e30f}) {
    EXPECT_TRUE(contains_all(read(GgufWriter().add("toy.rope.scaling.attn_factor", factor)).error,
                             {"toy.gguf", "toy.rope.scaling.attn_factor", "at most 100"}));
  }
}

TEST(ReadRope, an_unknown_type_is_named_with_the_known_ones) {
  EXPECT_TRUE(contains_all(read(GgufWriter().add("toy.rope.scaling.type", "ntk")).error,
                           {"toy.gguf", "ntk", "none, linear, yarn, longrope"}));
  EXPECT_TRUE(contains_all(read(GgufWriter().add("toy.rope.scaling.type", "\x1b[2J")).error, {"'\\u001b[2J'"}));
}

}  // namespace
}  // namespace zinc
