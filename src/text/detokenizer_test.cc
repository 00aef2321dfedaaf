#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace zinc {
namespace {

std::string stream_bytewise(std::string_view bytes) {
  TextStream stream;
  std::string out;
  for (const char byte : bytes) {
    const std::string_view piece = stream.push({&byte, 1});
    EXPECT_TRUE(is_valid_utf8(piece));
    out += piece;
  }
  return out += stream.finish();
}

TEST(TextStream, one_and_two_byte_strings_match_replace_invalid_utf8) {
  for (int first = 0; first < 256; ++first) {
    const std::string one(1, static_cast<char>(first));
    ASSERT_EQ(stream_bytewise(one), replace_invalid_utf8(one));
    for (int second = 0; second < 256; ++second) {
      const std::string two = one + static_cast<char>(second);
      ASSERT_EQ(stream_bytewise(two), replace_invalid_utf8(two)) << first << " " << second;
    }
  }
}

TEST(TextStream, four_byte_strings_match_replace_invalid_utf8) {
  // The first and last byte of every row of Unicode's table of well-formed UTF-8, and bytes outside of it.
  const std::string edges = "\x41\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  for (const char a : edges) {
    for (const char b : edges) {
      for (const char c : edges) {
        for (const char d : edges) {
          const std::string bytes = {a, b, c, d};
          ASSERT_EQ(stream_bytewise(bytes), replace_invalid_utf8(bytes));
        }
      }
    }
  }
}

TEST(TextStream, character_is_emitted_with_its_last_byte) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x99"), "");
  EXPECT_EQ(stream.push("\x82!"), "\xF0\x9F\x99\x82!");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, truncated_character_becomes_one_replacement) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F\x99"), "a");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(TextStream, text_ends_before_the_stop_string) {
  TextStream stream({"</answer>"});
  EXPECT_EQ(stream.push("yes</ans"), "yes");
  EXPECT_EQ(stream.push("wer"), "");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("> and more"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(*stream.stop_string(), "</answer>");
  EXPECT_EQ(stream.push("never"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, partial_stop_string_is_emitted) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("EN"), "");
  EXPECT_EQ(stream.push("E"), "EN");
  EXPECT_EQ(stream.push("x"), "Ex");
  EXPECT_EQ(stream.push("EN"), "");
  EXPECT_EQ(stream.finish(), "EN");
}

TEST(TextStream, empty_stop_string_never_matches) {
  TextStream stream({""});
  EXPECT_EQ(stream.push("abc"), "abc");
  EXPECT_FALSE(stream.stopped());
}

// Cuts at the first match of a stop string, the longest one there.
std::string cut_at_first_stop(const std::string& text, const std::vector<std::string>& stops, bool& stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return stopped = true, text.substr(0, end - longest);
  }
  return stopped = false, text;
}

TEST(TextStream, random_stop_strings_match_a_search_of_the_complete_text) {
  std::mt19937 random(3);
  const std::vector<std::string> alphabet = {"a", "b", "ab", "é", "😀", "\x80", "\xF0\x9F", "\xE2\x82", "aab"};
  const auto random_text = [&](size_t max_pieces) {
    std::string text;
    for (size_t n = random() % (max_pieces + 1); n > 0; --n) text += alphabet[random() % alphabet.size()];
    return text;
  };
  int n_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string bytes = random_text(12);
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(replace_invalid_utf8(random_text(3)));
    bool stopped = false;
    const std::string expected = cut_at_first_stop(replace_invalid_utf8(bytes), stops, stopped);
    TextStream stream(stops);
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + random() % 4;
      out += stream.push(std::string_view(bytes).substr(at, n));
      ASSERT_TRUE(is_valid_utf8(out));
      ASSERT_TRUE(expected.starts_with(out));
      at += n;
    }
    out += stream.finish();
    ASSERT_EQ(out, expected);
    ASSERT_EQ(stream.stopped(), stopped);
    n_stopped += stopped;
  }
  EXPECT_GT(n_stopped, 1000);
}

// A quadratic search would take minutes.
TEST(TextStream, many_long_stop_strings_are_linear) {
  std::vector<std::string> stops;
  for (int i = 0; i < 300; ++i) stops.push_back(std::string(2000, 'a') + std::to_string(i) + "!");
  TextStream stream(stops);
  size_t n_out = 0;
  for (int i = 0; i < 300000; ++i) n_out += stream.push("a").size();
  n_out += stream.finish().size();
  EXPECT_EQ(n_out, 300000u);
}

}  // namespace
}  // namespace zinc
