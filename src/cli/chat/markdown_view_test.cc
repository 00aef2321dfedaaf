#include "cli/chat/markdown_view.h"

#include <gtest/gtest.h>

#include <regex>
#include <utility>

#include "base/utf8.h"

namespace zinc {
namespace {

std::string view(std::string_view text, int width = 0, size_t n_characters = 1000) {
  MarkdownView view(width);
  std::string out, piece;
  size_t n = 0;
  while (!text.empty()) {
    const auto n_bytes = static_cast<size_t>(next_utf8(text).n_bytes);
    piece += text.substr(0, n_bytes);
    text.remove_prefix(n_bytes);
    if (++n % n_characters == 0) out += view.push(std::exchange(piece, {}));
  }
  out += view.push(piece);
  return out + view.finish();
}

// Replaces style sequences by readable names.
std::string styles(std::string_view text, int width = 0) {
  std::string out = view(text, width);
  const std::pair<const char*, const char*> names[] = {
      {"\x1b[0m", "<>"},      {"\x1b[0;1;36m", "<head>"}, {"\x1b[0;36m", "<mark>"},  {"\x1b[0;33m", "<code>"},
      {"\x1b[0;2m", "<dim>"}, {"\x1b[0;1m", "<bold>"},    {"\x1b[0;3m", "<italic>"}, {"\x1b[0;1;3m", "<both>"}};
  for (const auto& [sequence, name] : names) {
    for (size_t at; (at = out.find(sequence)) != std::string::npos;)
      out.replace(at, std::string_view(sequence).size(), name);
  }
  return out;
}

constexpr std::string_view kEverything =
    "# Title\n\nSome **bold**, *slanted* and `code` text; 2 * 3 * 4, snake_case_name, _so_.\n- one\n* two\n12. three\n"
    "> said\n```cpp\nint* a = **b; // `x`\n# no heading\n``\n```\nafter **open\nplain ***both*** \\*no\\* größe 大小\n"
    "#hashtag ~~~ ``a ` b``\n   ~~~\n   ```\n~~~\n---\n#";

TEST(MarkdownView, styles_replace_the_marks_of_spans) {
  EXPECT_EQ(styles("a **b** c"), "a <bold>b<> c");
  EXPECT_EQ(styles("*b* c"), "<italic>b<> c");
  EXPECT_EQ(styles("***b*** c"), "<both>b<> c");
  EXPECT_EQ(styles("_b_ c"), "<italic>b<> c");
  EXPECT_EQ(styles("a `b` c"), "a <code>b<> c");
  EXPECT_EQ(styles("``a ` b``"), "<code>a ` b<>");
  EXPECT_EQ(styles("**a *b* `c*` d**"), "<bold>a <both>b<bold> <code>c*<bold> d<>");
  EXPECT_EQ(styles("**a *b***"), "<bold>a <both>b<>");
  EXPECT_EQ(styles("大**重点**小"), "大<bold>重点<>小");
}

TEST(MarkdownView, styles_replace_the_marks_of_lines) {
  EXPECT_EQ(styles("# Title `x`\nx"), "<head>Title <code>x<>\nx");
  EXPECT_EQ(styles("- a\n> b\n+ c\n"), "<mark>•<> a\n<mark>│<> b\n<mark>•<> c\n");
  EXPECT_EQ(styles("* a\n  * **b**\n"), "<mark>•<> a\n  <mark>•<> <bold>b<>\n");
  EXPECT_EQ(styles("12. a\n3) b"), "<mark>12.<> a\n<mark>3)<> b");
  EXPECT_EQ(styles("a\n---\nb"), "a\n<dim>────────────────────<>\nb");
}

TEST(MarkdownView, code_fence_is_shown_by_color_and_language) {
  EXPECT_EQ(styles("```c\nx = **p;\n\n```\ny"), "<dim>c<>\n<code>x = **p;<>\n\ny");
  EXPECT_EQ(styles("a\n~~~\n```\n# no heading\n~~~\n"), "a\n<code>```<>\n<code># no heading<>\n");
  EXPECT_EQ(styles("```x``` is inline"), "<code>x<> is inline");
}

TEST(MarkdownView, code_of_an_indented_fence_loses_the_indent_of_the_fence) {
  EXPECT_EQ(styles("   ```\n   def f():\n     pass\n   ```\nx"), "<code>def f():<>\n<code>  pass<>\nx");
}

TEST(MarkdownView, lookalikes_of_markdown_stay_text) {
  for (const char* text :
       {"2 * 3 * 4", "2*3*4", "2**3**2", "12.5 is", "snake_case_name", "a ** b ** c", "f(*args, **kwargs)",
        "#hashtag x", "#", "--verbose", "+1", "`open", "~", "\\frac{a}{b} \\\\", "[text](https://a_b_c.de/*x)"}) {
    EXPECT_EQ(view(text), text);
  }
  EXPECT_EQ(view("\\*no\\*"), "*no*");
}

TEST(MarkdownView, unclosed_marks_are_shown) {
  EXPECT_EQ(styles("a **open\nplain"), "a **open\nplain");
  EXPECT_EQ(styles("`open\nplain"), "`open\nplain");
  const std::string word = "**" + std::string(600, 'x');
  MarkdownView view;
  EXPECT_EQ(view.push(word), word) << "a mark without an end does not hold back the text for ever";
}

TEST(MarkdownView, output_is_independent_of_splits) {
  for (size_t begin = 0; begin < kEverything.size(); ++begin) {
    const std::string_view text = kEverything.substr(begin);
    if ((static_cast<unsigned char>(text[0]) & 0xC0) == 0x80) continue;  // inside a character
    for (const size_t n : {1u, 2u, 3u, 7u}) ASSERT_EQ(view(text, 20, n), view(text, 20)) << text;
  }
}

TEST(MarkdownView, text_without_marks_is_shown_at_once) {
  MarkdownView view;
  EXPECT_EQ(view.push("a"), "a");
  EXPECT_EQ(view.push(" b"), " b");
  EXPECT_EQ(view.push(" **c"), " ");
  EXPECT_EQ(view.push("** "), "\x1b[0;1mc\x1b[0m ");
}

TEST(MarkdownView, lines_wrap_at_blanks_with_a_hanging_indent) {
  EXPECT_EQ(styles("the **sky is** blue", 10), "the <bold>sky is<>\nblue");
  EXPECT_EQ(styles("- the sky is blue\nso it is", 10), "<mark>•<> the sky\n  is blue\nso it is");
  EXPECT_EQ(styles("10. the sky is", 10), "<mark>10.<> the\n    sky is");
}

TEST(MarkdownView, code_is_not_wrapped) {
  EXPECT_EQ(styles("```\none two three\n```\none two three", 10), "<code>one two three<>\none two\nthree");
}

TEST(MarkdownView, resized_terminal_wraps_at_its_new_width) {
  MarkdownView view(20);
  std::string out = view.push("the sky is blue ");
  view.set_width(10);
  out += view.push("today and wide");
  EXPECT_EQ(out + view.finish(), "the sky is blue\ntoday and\nwide");
}

}  // namespace
}  // namespace zinc
