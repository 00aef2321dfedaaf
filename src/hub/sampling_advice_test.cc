#include "hub/sampling_advice.h"

#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

SamplingAdvice advice_of(GgufWriter& writer) {
  const fs::path path = fs::path(testing::TempDir()) / "zinc_sampling_advice.gguf";
  writer.add("general.architecture", "llama");
  writer.write(path);
  const SamplingAdvice advice = sampling_advice(GgufFile::open(path).value());
  fs::remove(path);
  return advice;
}

TEST(SamplingAdvice, a_family_is_known_however_its_name_is_spelled) {
  for (const char* name : {"Smollm2 135M 8k Lc100K Mix1 Ep2", "SmolLM2-1.7B-Instruct"}) {
    GgufWriter writer;
    const SamplingAdvice advice = advice_of(writer.add("general.name", name));
    EXPECT_FLOAT_EQ(advice.temperature, 0.2f) << name;
    EXPECT_FLOAT_EQ(advice.top_p, 0.9f) << name;
    EXPECT_EQ(advice.origin, "SmolLM2's model card");
  }
  GgufWriter thinks, instruct;
  EXPECT_FLOAT_EQ(advice_of(thinks.add("general.name", "Qwen3-8B")).temperature, 0.6f);
  EXPECT_FLOAT_EQ(advice_of(instruct.add("general.name", "Qwen3-4B-Instruct-2507")).temperature, 0.7f);
}

TEST(SamplingAdvice, what_the_file_says_comes_first) {
  GgufWriter writer;
  writer.add("general.name", "SmolLM2").add("general.sampling.temp", 0.5f).add("general.sampling.top_k", int32_t{7});
  const SamplingAdvice advice = advice_of(writer);
  EXPECT_FLOAT_EQ(advice.temperature, 0.5f);
  EXPECT_EQ(advice.top_k, 7);
  EXPECT_FLOAT_EQ(advice.top_p, 1);
  EXPECT_EQ(advice.origin, "the file's");
}

TEST(SamplingAdvice, nonsense_in_the_file_is_not_taken) {
  GgufWriter writer;
  writer.add("general.name", "SmolLM2").add("general.sampling.temp", 0.5f).add("general.sampling.top_p", -3.0f);
  EXPECT_EQ(advice_of(writer).origin, "SmolLM2's model card");
  GgufWriter unknown;
  EXPECT_EQ(advice_of(unknown.add("general.sampling.temp", "hot")).origin, "zinc's own");
}

}  // namespace
}  // namespace zinc
