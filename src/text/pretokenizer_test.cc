#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace zinc {
namespace {

class Words final : public WordSink {
 public:
  void word(std::string_view word) override { found.emplace_back(word); }
  std::vector<std::string> found;
};

class ByteCount final : public WordSink {
 public:
  void word(std::string_view word) override { n_bytes += word.size(); }
  size_t n_bytes = 0;
};

std::vector<std::string> split(std::string_view name, std::string_view text) {
  const FoundPretokenizer pretokenizer = find_pretokenizer(name);
  if (!pretokenizer.rule) return {"no such rule"};
  Words words;
  pretokenizer.rule->split(text, words);
  return words.found;
}

using List = std::vector<std::string>;

TEST(Pretokenizer, gpt_2_words_include_a_leading_space) {
  EXPECT_EQ(split("gpt-2", "Hello  world's 123abc!?"), (List{"Hello", " ", " world", "'s", " 123", "abc", "!?"}));
  EXPECT_EQ(split("gpt-2", "don'T"), (List{"don", "'", "T"}));
  EXPECT_EQ(split("gpt-2", "a\n\n b"), (List{"a", "\n\n", " b"}));
}

TEST(Pretokenizer, llama_bpe_splits_numbers_after_three_digits) {
  EXPECT_EQ(split("llama-bpe", "12345678"), (List{"123", "456", "78"}));
  EXPECT_EQ(split("llama-bpe", "don'T #tag"), (List{"don", "'T", " #", "tag"}));
  EXPECT_EQ(split("llama-bpe", "a  \n  b"), (List{"a", "  \n", " ", " b"}));
}

TEST(Pretokenizer, qwen2_splits_digits) { EXPECT_EQ(split("qwen2", "x=12;\n\n"), (List{"x", "=", "1", "2", ";\n\n"})); }

TEST(Pretokenizer, qwen35_keeps_marks_in_words_and_qwen2_does_not) {
  const std::string text = "e\xCC\x81te";  // e, combining acute, te
  EXPECT_EQ(split("qwen35", text), (List{text}));
  EXPECT_EQ(split("qwen2", text), (List{"e", "\xCC\x81te"}));
}

TEST(Pretokenizer, gpt_4o_splits_camel_case) {
  EXPECT_EQ(split("gpt-4o", "camelCaseHTTPServer it's"), (List{"camel", "Case", "HTTPServer", " it's"}));
  EXPECT_EQ(split("gpt-4o", "a/b//\n"), (List{"a", "/b", "//\n"}));
  EXPECT_EQ(split("gpt-4o", "ÉAb ÉA"), (List{"ÉAb", " É", "A"}));
}

TEST(Pretokenizer, tekken_has_no_contractions) {
  EXPECT_EQ(split("tekken", "it's 12"), (List{"it", "'s", " ", "1", "2"}));
}

TEST(Pretokenizer, starcoder_isolates_digits_first) {
  EXPECT_EQ(split("starcoder", "ab 12c"), (List{"ab", " ", "1", "2", "c"}));
}

TEST(Pretokenizer, falcon_isolates_punctuation_before_contractions) {
  EXPECT_EQ(split("falcon", "it's 12345"), (List{"it", "'", "s", " ", "123", "45"}));
  EXPECT_EQ(split("falcon", "a`b"), (List{"a", "`", "b"}));
}

TEST(Pretokenizer, default_separates_numbers_from_their_space) {
  EXPECT_EQ(split("default", " 12 1234"), (List{" ", "12", " ", "123", "4"}));
}

TEST(Pretokenizer, deepseek_llm_isolates_trailing_white_space) {
  EXPECT_EQ(split("deepseek-llm", "ab  \n12中文x"), (List{"ab", "  ", "\n", "12", "中文", "x"}));
}

TEST(Pretokenizer, deepseek_coder_splits_newlines_and_digits) {
  EXPECT_EQ(split("deepseek-coder", "x = 42\n\n"), (List{"x", " = ", "4", "2", "\n", "\n"}));
}

TEST(Pretokenizer, deepseek_v3_joins_punctuation_and_following_ascii_letters) {
  EXPECT_EQ(split("deepseek-v3", "x.foo(1234)"), (List{"x", ".foo", "(", "123", "4", ")"}));
}

TEST(Pretokenizer, gemma4_splits_lines_only) { EXPECT_EQ(split("gemma4", "a b\n\nc"), (List{"a b", "\n\n", "c"})); }

TEST(Pretokenizer, aliases_share_a_rule) {
  EXPECT_EQ(find_pretokenizer("llama3").rule, find_pretokenizer("llama-bpe").rule);
  EXPECT_EQ(find_pretokenizer("smollm").rule, find_pretokenizer("starcoder").rule);
  EXPECT_TRUE(find_pretokenizer("llama3").name->ignore_merges);
  EXPECT_FALSE(find_pretokenizer("smaug-bpe").name->ignore_merges);
  EXPECT_EQ(find_pretokenizer("no-such-rule").rule, nullptr);
}

TEST(Pretokenizer, every_name_belongs_to_one_rule) {
  for (const Pretokenizer* const* rule = kPretokenizers; *rule; ++rule) {
    for (const PretokenizerName& name : (*rule)->names) {
      EXPECT_EQ(find_pretokenizer(name.name).rule, *rule) << name.name << " is claimed twice";
    }
  }
}

// Characters relevant to the rules, and invalid UTF-8.
const List kPieces = {"a",  "Z",    "é",    "中",   "0",        "٣",        "½",      " ",
                      "  ", "\n",   "\r",   "\t",   "\u3000",   "'",        "'s",     "'LL",
                      ".",  "$",    "`",    "_",    "/",        "\u0301",   "\u200D", "😀",
                      "▁",  "\x01", "\x80", "\xC3", "\xE4\xBD", "\xF0\x9F", "\xFF",   "\xED\xA0\x80"};

std::string random_text(std::mt19937& random, int n_pieces) {
  std::string text;
  for (int i = 0; i < n_pieces; ++i) text += kPieces[random() % kPieces.size()];
  return text;
}

TEST(Pretokenizer, words_concatenate_to_the_text_and_are_not_empty) {
  std::mt19937 random(1);
  for (const Pretokenizer* const* rule = kPretokenizers; *rule; ++rule) {
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_text(random, static_cast<int>(random() % 20));
      Words words;
      (*rule)->split(text, words);
      std::string joined;
      for (const std::string& word : words.found) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text) << (*rule)->names[0].name;
    }
  }
}

TEST(Pretokenizer, words_end_at_character_boundaries) {
  std::mt19937 random(2);
  for (const Pretokenizer* const* rule = kPretokenizers; *rule; ++rule) {
    for (int i = 0; i < 1000; ++i) {
      const std::string text = replace_invalid_utf8(random_text(random, 12));
      Words words;
      (*rule)->split(text, words);
      for (const std::string& word : words.found) ASSERT_TRUE(is_valid_utf8(word)) << (*rule)->names[0].name;
    }
  }
}

// A quadratic rule would take minutes here.
TEST(Pretokenizer, every_rule_is_linear_on_repeated_characters) {
  for (const Pretokenizer* const* rule = kPretokenizers; *rule; ++rule) {
    for (const std::string& piece : kPieces) {
      std::string text;
      for (int i = 0; i < 50000; ++i) text += piece;
      text += 'x';
      ByteCount count;
      (*rule)->split(text, count);
      EXPECT_EQ(count.n_bytes, text.size());
    }
  }
}

}  // namespace
}  // namespace zinc
