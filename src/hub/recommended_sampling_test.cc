#include "hub/recommended_sampling.h"

#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

RecommendedSampling sampling_of(GgufWriter& writer, const char* architecture = "llama",
                                std::optional<bool> thinking = {}) {
  const TestFolder folder;
  writer.add("general.architecture", architecture);
  writer.write(folder / "model.gguf");
  return recommended_sampling(GgufFile::open(folder / "model.gguf").value(), thinking);
}

TEST(RecommendedSampling, family_is_recognized_in_any_spelling) {
  for (const char* name : {"Smollm2 360M 8k Lc100K Mix1 Ep2", "SmolLM2-1.7B-Instruct"}) {
    GgufWriter writer;
    const RecommendedSampling sampling = sampling_of(writer.add("general.name", name));
    EXPECT_FLOAT_EQ(sampling.temperature, 0.2f) << name;
    EXPECT_FLOAT_EQ(sampling.top_p, 0.9f) << name;
    EXPECT_EQ(sampling.origin, "SmolLM2's model card");
  }
}

TEST(RecommendedSampling, default_model_gets_dry_against_endless_repetition) {
  GgufWriter small, large;
  const RecommendedSampling sampling = sampling_of(small.add("general.name", "Smollm2 135M 8k Lc100K Mix1 Ep2"));
  EXPECT_FLOAT_EQ(sampling.temperature, 0.2f);
  EXPECT_FLOAT_EQ(sampling.dry_multiplier, 0.8f);
  EXPECT_EQ(sampling.origin, "SmolLM2's model card, DRY by zinc");
  EXPECT_EQ(sampling_of(large.add("general.name", "SmolLM2-1.7B-Instruct")).dry_multiplier, 0);
}

struct Known {
  const char *name, *architecture;
  std::optional<bool> thinking;
  float temperature, top_p;
  int top_k;
  float repeat_penalty, presence_penalty;
  const char* origin;
};

TEST(RecommendedSampling, each_family_gets_its_recommended_values_per_mode) {
  const Known models[] = {
      {"SmolLM3 3B", "smollm3", {}, 0.6f, 0.95f, 0, 1, 0, "SmolLM3's model card"},
      {"Qwen3.6-27B", "qwen35", {}, 1, 0.95f, 20, 1, 0, "Qwen3.6's model card"},
      {"Qwen3.6-35B-A3B", "qwen35moe", false, 0.7f, 0.8f, 20, 1, 1.5f, "Qwen3.6's model card, no thinking"},
      {"Qwen3.5-35B-A3B", "qwen35moe", {}, 1, 0.95f, 20, 1, 1.5f, "Qwen3.5's model card"},
      {"Qwen3.5-9B", "qwen35", false, 0.7f, 0.8f, 20, 1, 1.5f, "Qwen3.5's model card, no thinking"},
      {"Qwen3.5-0.8B", "qwen35", {}, 1, 1, 20, 1, 2, "Qwen3.5 0.8B's model card, no thinking"},
      {"Qwen3.5-2B", "qwen35", true, 1, 0.95f, 20, 1, 1.5f, "Qwen3.5's model card"},
      {"Qwen3.5-27B", "qwen35", {}, 1, 0.95f, 20, 1, 1.5f, "Qwen3.5's model card"},
      {"Qwen3-Coder-30B-A3B-Instruct", "qwen3moe", {}, 0.7f, 0.8f, 20, 1.05f, 0, "Qwen3-Coder's model card"},
      {"Qwen3-Next-80B-A3B-Instruct", "qwen3next", {}, 0.7f, 0.8f, 20, 1, 0, "Qwen3 Instruct's model card"},
      {"Qwen3-Next-80B-A3B-Thinking", "qwen3next", {}, 0.6f, 0.95f, 20, 1, 0, "Qwen3's model card"},
      {"Qwen3-4B-Instruct-2507", "qwen3", {}, 0.7f, 0.8f, 20, 1, 0, "Qwen3 Instruct's model card"},
      {"Qwen3-8B", "qwen3", {}, 0.6f, 0.95f, 20, 1, 0, "Qwen3's model card"},
      {"Qwen3-8B", "qwen3", true, 0.6f, 0.95f, 20, 1, 0, "Qwen3's model card"},
      {"Qwen3-8B", "qwen3", false, 0.7f, 0.8f, 20, 1, 0, "Qwen3's model card, no thinking"},
      {"qwen2.5-1.5b-instruct", "qwen2", {}, 0.7f, 0.8f, 20, 1.1f, 0, "Qwen2.5 1.5B's generation_config.json"},
      {"Qwen2.5-7B-Instruct", "qwen2", {}, 0.7f, 0.8f, 20, 1.05f, 0, "Qwen2.5's generation_config.json"},
      {"Llama 3.2 1B Instruct", "llama", {}, 0.6f, 0.9f, 0, 1, 0, "Llama 3's generation_config.json"},
      {"Gemma 3 4b It", "gemma3", {}, 1, 0.95f, 64, 1, 0, "Gemma 3's model card"},
      {"Gemma 4 E2B It", "gemma4", {}, 1, 0.95f, 64, 1, 0, "Gemma 4's model card"},
      {"Gpt Oss 20B", "gpt-oss", {}, 1, 1, 0, 1, 0, "gpt-oss's model card"},
  };
  for (const Known& known : models) {
    GgufWriter writer;
    const RecommendedSampling sampling =
        sampling_of(writer.add("general.name", known.name), known.architecture, known.thinking);
    EXPECT_EQ(sampling.origin, known.origin) << known.name;
    EXPECT_FLOAT_EQ(sampling.temperature, known.temperature) << known.name;
    EXPECT_FLOAT_EQ(sampling.top_p, known.top_p) << known.name;
    EXPECT_EQ(sampling.top_k, known.top_k) << known.name;
    EXPECT_FLOAT_EQ(sampling.repeat_penalty, known.repeat_penalty) << known.name;
    EXPECT_FLOAT_EQ(sampling.presence_penalty, known.presence_penalty) << known.name;
  }
}

TEST(RecommendedSampling, unknown_models_get_zinc_defaults) {
  const std::pair<const char*, const char*> models[] = {
      {"Qwen3-8B-Base", "qwen3"},  {"Qwen2.5-7B", "qwen2"},   {"Qwen2.5-VL-7B-Instruct", "qwen2vl"},
      {"Gemma 2 9b It", "gemma2"}, {"CodeGemma 7B", "gemma"}, {"Somebody's own", "qwen3"}};
  for (const auto& [name, architecture] : models) {
    GgufWriter writer;
    EXPECT_EQ(sampling_of(writer.add("general.name", name), architecture).origin, "zinc's own") << name;
  }
}

TEST(RecommendedSampling, values_in_the_file_take_precedence) {
  GgufWriter writer;
  writer.add("general.name", "SmolLM2").add("general.sampling.temp", 0.5f).add("general.sampling.top_k", int32_t{7});
  const RecommendedSampling sampling = sampling_of(writer);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_FLOAT_EQ(sampling.top_p, 1);
  EXPECT_EQ(sampling.origin, "the file's");
}

TEST(RecommendedSampling, missing_keys_in_the_file_are_neutral) {
  GgufWriter writer;
  const RecommendedSampling sampling = sampling_of(writer.add("general.sampling.top_p", 0.7f));
  EXPECT_EQ(sampling.origin, "the file's");
  EXPECT_FLOAT_EQ(sampling.top_p, 0.7f);
  EXPECT_FLOAT_EQ(sampling.temperature, 1);
}

TEST(RecommendedSampling, values_in_the_file_apply_to_the_default_mode_only) {
  GgufWriter thinks, answers;
  for (GgufWriter* writer : {&thinks, &answers})
    writer->add("general.name", "Qwen3-8B").add("general.sampling.temp", 0.6f);
  EXPECT_EQ(sampling_of(thinks, "qwen3", true).origin, "the file's");
  EXPECT_EQ(sampling_of(answers, "qwen3", false).origin, "Qwen3's model card, no thinking");
}

TEST(RecommendedSampling, invalid_values_in_the_file_are_ignored) {
  GgufWriter writer;
  writer.add("general.name", "SmolLM2").add("general.sampling.temp", 0.5f).add("general.sampling.top_p", -3.0f);
  EXPECT_EQ(sampling_of(writer).origin, "SmolLM2's model card");
  GgufWriter unknown;
  EXPECT_EQ(sampling_of(unknown.add("general.sampling.temp", "hot")).origin, "zinc's own");
}

}  // namespace
}  // namespace zinc
