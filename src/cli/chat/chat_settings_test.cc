#include "cli/chat/chat_settings.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace zinc {
namespace {

std::string error_of(const std::string& name, const std::string& value) {
  ChatOptions options;
  const Status set = set_chat_setting(name, value, options);
  return set.ok() ? "" : set.error().message;
}

TEST(ChatSettings, every_sampling_and_thinking_option_is_a_setting) {
  CLI::App app;
  ChatOptions options;
  declare_sampling_options(app, options.sampling);
  declare_thinking_options(app, options.thinking);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name == "help" || name == "no-think") continue;
      const std::string value = name == "think" ? "on" : "1";
      EXPECT_TRUE(set_chat_setting(name, value, options).ok()) << name;
      EXPECT_EQ(given_settings(options).size(), 1u) << name;
      EXPECT_TRUE(chat_settings_text(options, options.sampling.resolve({})).find(" " + value + "\n") !=
                  std::string::npos)
          << name << " is not what the settings show";
      EXPECT_TRUE(set_chat_setting("--" + name, "default", options).ok()) << name;
    }
  }
  EXPECT_TRUE(given_settings(options).empty()) << "'default' removes the values";
}

TEST(ChatSettings, names_may_have_dashes_and_both_spellings_of_temperature) {
  ChatOptions options;
  for (const char* name : {"temp", "temperature", "--temperature"}) {
    options.sampling = {};
    ASSERT_TRUE(set_chat_setting(name, "0.5", options).ok());
    EXPECT_EQ(options.sampling.resolve({}).temperature, 0.5f);
  }
  ASSERT_TRUE(set_chat_setting("top-k", "7", options).ok());
  EXPECT_EQ(options.sampling.resolve({}).top_k, 7);
}

TEST(ChatSettings, invalid_values_are_rejected_in_the_words_of_the_command_line) {
  EXPECT_EQ(error_of("temp", "hot"), "temp: 'hot' is not a valid value; expected a number or 'default'");
  EXPECT_EQ(error_of("top_k", "1.5"), "top_k: '1.5' is not a valid value; expected a whole number or 'default'");
  EXPECT_EQ(error_of("max_tokens", "-1"), "max_tokens: '-1' is not a whole number from 0 to 1073741824");
  EXPECT_EQ(error_of("seed", "-1"),
            "seed: '-1' is not a valid seed; expected a whole number from 0 to 18446744073709551615");
  EXPECT_NE(error_of("think", "hard").find("'hard' is not a thinking mode"), std::string::npos);
  EXPECT_EQ(error_of("tempo", "1"), "unknown setting 'tempo'; did you mean temp?");
  EXPECT_NE(error_of("x", "1").find("unknown setting 'x'; available: temp, top_k"), std::string::npos);
}

TEST(ChatSettings, text_has_the_values_in_effect) {
  ChatOptions options;
  ASSERT_TRUE(set_chat_setting("top_k", "20", options).ok());
  const std::string text = chat_settings_text(options, options.sampling.resolve({.temperature = 0.6f}));
  EXPECT_NE(text.find("temp                0.6  (default)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("top_k               20\n"), std::string::npos);
  EXPECT_NE(text.find("max_tokens          no limit  (default)\n"), std::string::npos);
}

TEST(ChatSettings, stored_settings_are_restored_unless_given_again) {
  ChatOptions before;
  for (const auto& [name, value] : {std::pair("temp", "0.2"),
                                    {"seed", "18446744073709551615"},
                                    {"think", "low"},
                                    {"dry_base", "2"},
                                    {"think_budget", "0"},
                                    {"max_tokens", "9"}}) {
    ASSERT_TRUE(set_chat_setting(name, value, before).ok()) << name;
  }
  json::object stored = given_settings(before);
  stored["unknown"] = "1";
  stored["top_p"] = "9";  // out of range
  stored["min_p"] = 3;    // not a text
  ChatOptions after;
  ASSERT_TRUE(set_chat_setting("temp", "1.5", after).ok());
  set_missing_settings(stored, {"temp"}, after);
  EXPECT_EQ(after.sampling.params.temperature, 1.5f);
  EXPECT_EQ(after.sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(after.thinking.mode.effort, "low");
  EXPECT_EQ(after.thinking.budget, 0);
  EXPECT_EQ(after.max_tokens, 9);
  EXPECT_EQ(after.sampling.params.dry_base, 2.0f);
  EXPECT_FALSE(after.sampling.given.contains("top_p"));
  EXPECT_FALSE(after.sampling.given.contains("min_p"));
}

TEST(ChatSettings, context_length_is_told_to_be_an_option) {
  ChatOptions options;
  for (const char* name : {"num_ctx", "context", "ctx-size"}) {
    EXPECT_NE(set_chat_setting(name, "4096", options).error().message.find("zinc chat -c N"), std::string::npos)
        << name;
  }
}

TEST(ChatSettings, option_on_the_command_line_replaces_the_stored_value_even_with_its_default) {
  ChatOptions before;
  for (const auto& [name, value] :
       {std::pair("max_tokens", "9"), {"dry_base", "2"}, {"think", "low"}, {"temp", "0.2"}, {"top_k", "7"}}) {
    ASSERT_TRUE(set_chat_setting(name, value, before).ok()) << name;
  }
  ChatOptions options;
  CLI::App app;
  app.add_option("-n,--max-tokens", options.max_tokens);
  declare_sampling_options(app, options.sampling);
  declare_thinking_options(app, options.thinking);
  app.parse("-n 0 --dry-base 1.75 --think default --temperature 1");
  set_missing_settings(given_settings(before), parsed_settings(app), options);
  EXPECT_EQ(options.max_tokens, 0);
  EXPECT_EQ(options.sampling.params.dry_base, SamplingParams().dry_base);
  EXPECT_EQ(thinking_mode_name(options.thinking.mode), "default");
  EXPECT_EQ(options.sampling.params.temperature, 1.0f);
  EXPECT_EQ(options.sampling.params.top_k, 7) << "not on the command line";
}

}  // namespace
}  // namespace zinc
