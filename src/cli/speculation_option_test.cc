#include "cli/speculation_option.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace zinc {
namespace {

// nullopt: rejected.
std::optional<SpeculationOptions> parse(std::vector<std::string> arguments) {
  CLI::App app;
  SpeculationOptions options;
  declare_speculation_option(app, options);
  std::ranges::reverse(arguments);  // as CLI11 expects them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  return options;
}

TEST(SpeculationOption, names_a_drafter_and_its_file) {
  using enum SpeculationMode;
  struct Case {
    std::string text;
    SpeculationMode mode;
    std::string file = "";
  };
  for (const Case& c : {Case{"auto", automatic}, Case{"off", off}, Case{"ngram", ngram}, Case{"mtp", mtp},
                        Case{"mtp:a/b.gguf", mtp, "a/b.gguf"}, Case{"draft:qwen3-0.6b", draft, "qwen3-0.6b"}}) {
    const std::optional<SpeculationOptions> options = parse({"--speculate", c.text});
    ASSERT_TRUE(options.has_value()) << c.text;
    EXPECT_EQ(options->mode, c.mode) << c.text;
    EXPECT_EQ(options->draft_model, c.file) << c.text;
  }
  EXPECT_EQ(parse({})->mode, automatic);
}

TEST(SpeculationOption, rejects_other_words_and_prefixes_without_a_file) {
  for (const char* text : {"draft", "draft:", "mtp:", "ngram:x", "fast", ""}) {
    EXPECT_FALSE(parse({"--speculate", text}).has_value()) << text;
  }
}

}  // namespace
}  // namespace zinc
