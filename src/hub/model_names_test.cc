#include "hub/model_names.h"

#include <gtest/gtest.h>

#include "hub/catalog.h"

namespace zinc {
namespace {

using Names = std::vector<std::string>;

Names catalog_ids() {
  Names ids;
  for (const CatalogModel& model : catalog_models()) ids.emplace_back(model.id);
  return ids;
}

std::string meant(std::string_view typed) {
  const Names found = match_model_name(typed, catalog_ids());
  return found.size() == 1 ? found.front() : "";
}

TEST(ModelNames, beginning_of_exactly_one_id_is_enough) {
  EXPECT_EQ(meant("smollm2-135m"), "smollm2-135m-instruct");
  EXPECT_EQ(meant("gpt-oss"), "gpt-oss-20b");
  EXPECT_EQ(match_model_name("qwen3.5-2", catalog_ids()), (Names{"qwen3.5-27b", "qwen3.5-2b"}));
  EXPECT_TRUE(match_model_name("smo", catalog_ids()).empty()) << "too short";
  EXPECT_TRUE(match_model_name("", catalog_ids()).empty());
}

TEST(ModelNames, case_and_separators_do_not_matter) {
  EXPECT_EQ(meant("Qwen3_8B"), "qwen3-8b");
  EXPECT_EQ(meant("qwen3:8b"), "qwen3-8b");
  EXPECT_EQ(meant("llama3.2:1b"), "llama-3.2-1b-instruct");
  EXPECT_EQ(meant("gemma3:4b"), "gemma-3-4b-it");
}

TEST(ModelNames, aliases_are_the_names_other_programs_use) {
  EXPECT_EQ(meant("llama3.2"), "llama-3.2-3b-instruct");
  EXPECT_EQ(meant("LLAMA3.1"), "llama-3.1-8b-instruct");
  EXPECT_EQ(meant("qwen3"), "qwen3-8b");
}

TEST(ModelNames, an_id_wins_over_longer_ids_and_aliases) {
  const Names ids = {"qwen3", "qwen3-8b", "model-b", "model-b-2"};
  EXPECT_EQ(match_model_name("qwen3", ids), (Names{"qwen3"}));
  EXPECT_EQ(match_model_name("model-b", ids), (Names{"model-b"}));
}

TEST(ModelNames, words_that_look_like_models_are_told_from_questions) {
  const Names ids = catalog_ids();
  for (const char* name : {"mistral", "llama3", "phi4", "phi3:mini", "falcon-7b", "deepseek-r1", "smolm2-135m-instruct",
                           "gemma", "Mixtral-8x7B", "gpt-4o"}) {
    EXPECT_TRUE(resembles_model_name(name, ids)) << name;
  }
  for (const char* question : {"Hi", "hello", "why?", "summarize", "Hamburg", "COVID-19", "3.14", "2+2", "philosophy",
                               "translate:", "tell me", "", "gptq?", "phil", "größe"}) {
    EXPECT_FALSE(resembles_model_name(question, ids)) << question;
  }
}

}  // namespace
}  // namespace zinc
