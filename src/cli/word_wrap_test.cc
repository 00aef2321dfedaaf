#include "cli/word_wrap.h"

#include <gtest/gtest.h>

#include <vector>

#include "cli/display_width.h"

namespace zinc {
namespace {

// The text wrapped in one piece and in pieces of one character; both must agree.
std::string wrapped(const std::vector<std::string>& characters, int width) {
  WordWrap by_character(width);
  std::string whole, out;
  for (const std::string& c : characters) whole += c, out += by_character.push(c);
  out += by_character.finish();
  EXPECT_EQ(out, wrap_words(whole, width));
  return out;
}

std::string wrapped(std::string_view ascii, int width) {
  std::vector<std::string> characters;
  for (const char c : ascii) characters.emplace_back(1, c);
  return wrapped(characters, width);
}

TEST(WordWrap, breaks_lines_at_blanks) {
  EXPECT_EQ(wrapped("the sky is blue", 10), "the sky is\nblue");
  EXPECT_EQ(wrapped("the sky is blue", 9), "the sky\nis blue");
  EXPECT_EQ(wrapped("one\ntwo  three\n", 20), "one\ntwo  three\n");
  EXPECT_EQ(wrapped("a word ", 6), "a word");  // a blank behind the last column would make an empty line
  EXPECT_EQ(wrapped("\tx y", 10), "\tx\ny");
}

TEST(WordWrap, passes_everything_unchanged_without_a_width) {
  EXPECT_EQ(wrapped("the sky  is blue \n\tx", 0), "the sky  is blue \n\tx");
}

TEST(WordWrap, a_word_is_written_when_it_ends) {
  WordWrap wrap(20);
  EXPECT_EQ(wrap.push("Hel"), "");
  EXPECT_EQ(wrap.push("lo wor"), "Hello");
  EXPECT_EQ(wrap.push("ld\n"), " world\n");
  EXPECT_EQ(wrap.push("end"), "");
  EXPECT_EQ(wrap.finish(), "end");
}

TEST(WordWrap, word_wider_than_the_line_gets_no_newline_inside) {
  EXPECT_EQ(wrapped("see 0123456789012 and", 10), "see\n0123456789012 and");
  EXPECT_EQ(wrapped("0123456789 and", 10), "0123456789 and");
}

TEST(WordWrap, code_fences_are_not_wrapped) {
  const std::string code = "```sh\necho one two three\n```\n";
  EXPECT_EQ(wrapped(code + "one two three", 10), code + "one two\nthree");
  EXPECT_EQ(wrapped("```x``` one two three", 10), "```x```\none two\nthree");  // inline code
}

TEST(WordWrap, styles_take_no_columns) {
  EXPECT_EQ(wrapped("\x1b[0;1mthe\x1b[0m sky is", 7), "\x1b[0;1mthe\x1b[0m sky\nis");
}

TEST(WordWrap, wide_characters_break_anywhere_and_take_two_columns) {
  EXPECT_EQ(wrapped(std::vector<std::string>{"天", "空", "是", "蓝"}, 5), "天空\n是蓝");
  EXPECT_EQ(wrapped(std::vector<std::string>{"e", "\u0301", "e", " ", "x"}, 4), "e\u0301e x");
}

TEST(WordWrap, continuation_lines_are_indented) {
  EXPECT_EQ(wrap_words("zinc: the sky is blue\nand wide", 12, 2), "zinc: the\n  sky is\n  blue\nand wide");
}

TEST(WordWrap, resized_terminal_wraps_at_its_new_width) {
  WordWrap wrap(20);
  std::string out = wrap.push("the sky is blue ");
  wrap.set_width(10);  // "the sky is" and "blue" on the terminal
  out += wrap.push("today and wide");
  EXPECT_EQ(out + wrap.finish(), "the sky is blue\ntoday and\nwide");
  WordWrap wider(10);
  out = wider.push("the sky is blue ");
  wider.set_width(30);
  out += wider.push("today and wide");
  EXPECT_EQ(out + wider.finish(), "the sky is\nblue today and wide");
}

TEST(WordWrap, caller_may_set_verbatim_lines_and_the_indent) {
  WordWrap wrap(10);
  wrap.set_verbatim(true);
  std::string out = wrap.push("one two three\n```\n");
  wrap.set_verbatim(false);
  wrap.set_indent(2);
  out += wrap.push("- one two three");
  EXPECT_EQ(out + wrap.finish(), "one two three\n```\n- one two\n  three");
}

TEST(DisplayWidth, counts_columns_not_bytes) {
  EXPECT_EQ(display_width("größe"), 5);
  EXPECT_EQ(display_width("大小"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(display_width("🙂"), 2);
}

}  // namespace
}  // namespace zinc
