#include "cli/chat/completion.h"

#include <gtest/gtest.h>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

using Words = std::vector<std::string>;

Words some_models(ModelNames names) {
  Words words = {"qwen3-4b", "qwen3-8b", "smollm2"};
  if (names == ModelNames::all) words.push_back("gemma3-4b");
  return words;
}

Completion complete(const std::string& line) { return complete_chat_line(line, some_models); }

TEST(Completion, commands_are_completed_or_listed) {
  EXPECT_EQ(complete("/he").insertion, "lp ");
  EXPECT_EQ(complete("/st").insertion, "ats ");
  EXPECT_EQ(complete("/s").words, (Words{"/save", "/save!", "/set", "/stats", "/system"}));
  EXPECT_EQ(complete("/s").insertion, "");
  EXPECT_EQ(complete("/sa").insertion, "ve");
  EXPECT_EQ(complete("/b").insertion, "ye ") << "an alias if no command matches";
  EXPECT_TRUE(complete("/xyz").words.empty());
  EXPECT_TRUE(complete("hello").words.empty());
  EXPECT_TRUE(complete("").words.empty());
}

TEST(Completion, models_follow_model_and_pull) {
  EXPECT_EQ(complete("/model ").words, (Words{"qwen3-4b", "qwen3-8b", "smollm2"}));
  EXPECT_EQ(complete("/model q").insertion, "wen3-");
  EXPECT_EQ(complete("/model s").insertion, "mollm2 ");
  EXPECT_TRUE(complete("/model g").words.empty());
  EXPECT_EQ(complete("/pull g").insertion, "emma3-4b ");
}

TEST(Completion, settings_follow_set) {
  EXPECT_EQ(complete("/set top").words, (Words{"top_k", "top_p"}));
  EXPECT_EQ(complete("/set top").insertion, "_");
  EXPECT_EQ(complete("/set tempe").insertion, "rature ");
  EXPECT_EQ(complete("/set think o").words, (Words{"off", "on"}));
  EXPECT_EQ(complete("/set top_k d").insertion, "efault ");
}

TEST(Completion, files_follow_save_and_load) {
  const TestFolder folder;
  put(folder / "one two.json", "");
  put(folder / "one größe.json", "");
  put(folder / "sub" / "three.json", "");
  put(folder / ".hidden", "");
  const std::string start = "/load " + folder.path().string() + "/";
  const std::string path = folder.path().string() + "/";
  EXPECT_EQ(complete(start).words, (Words{path + "one größe.json", path + "one two.json", path + "sub/"}));
  EXPECT_EQ(complete(start + "one").insertion, " ");
  EXPECT_EQ(complete(start + "one t").insertion, "wo.json ");
  EXPECT_EQ(complete(start + "s").insertion, "ub/");
  EXPECT_EQ(complete(start + "sub/").insertion, "three.json ");
  EXPECT_EQ(complete(start + ".h").insertion, "idden ");
  EXPECT_EQ(complete("/save! " + path + "one t").insertion, "wo.json ");
  EXPECT_TRUE(complete(start + "nowhere/").words.empty());
  EXPECT_EQ(candidate_table(complete(start), 80), "one größe.json  one two.json    sub/\n");
}

TEST(Completion, only_whole_characters_are_inserted) {
  const auto models = [](ModelNames) { return Words{"größe", "grüße"}; };
  EXPECT_EQ(complete_chat_line("/model g", models).insertion, "r");
}

TEST(Completion, candidates_are_shown_in_columns) {
  const Completion commands = complete("/s");
  EXPECT_EQ(candidate_table(commands, 80), "/save    /save!   /set     /stats   /system\n");
  EXPECT_EQ(candidate_table(commands, 20), "/save    /save!\n/set     /stats\n/system\n");
  EXPECT_EQ(candidate_table(commands, 0), "/save\n/save!\n/set\n/stats\n/system\n");
  Completion many;
  for (int i = 0; i < 103; ++i) many.words.push_back("x" + std::to_string(i));
  EXPECT_TRUE(candidate_table(many, 80).ends_with("... and 3 more\n"));
}

}  // namespace
}  // namespace zinc
