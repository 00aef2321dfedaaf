#include "cli/chat/markdown_view.h"

#include <gtest/gtest.h>

#include <regex>
#include <utility>

namespace zinc {
namespace {

std::string view(std::string_view text, size_t piece = 1000) {
  MarkdownView view;
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) out += view.push(text.substr(0, piece));
  return out + view.finish();
}

// Replaces style sequences by readable names.
std::string styles(std::string_view text) {
  std::string out = view(text);
  const std::pair<const char*, const char*> names[] = {
      {"\x1b[0m", "<>"},        {"\x1b[0;1;36m", "<head>"}, {"\x1b[0;36m", "<mark>"},  {"\x1b[0;33m", "<code>"},
      {"\x1b[0;2m", "<fence>"}, {"\x1b[0;1m", "<bold>"},    {"\x1b[0;3m", "<italic>"}, {"\x1b[0;1;3m", "<both>"}};
  for (const auto& [sequence, name] : names) {
    for (size_t at; (at = out.find(sequence)) != std::string::npos;)
      out.replace(at, std::string_view(sequence).size(), name);
  }
  return out;
}

std::string without_styles(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

constexpr std::string_view kEverything =
    "# Title\n\nSome **bold**, *slanted* and `code` text; 2 * 3 * 4, snake_case_name, _so_.\n- one\n* two\n12. three\n"
    "> said\n```cpp\nint* a = **b; // `x`\n# no heading\n``\n```\nafter **open\nplain ***both*** \\*no\\* größe 大小\n"
    "#hashtag ~~~ ``a ` b``\n   ~~~\n   ```\n~~~\n#";

TEST(MarkdownView, styles_markdown) {
  EXPECT_EQ(styles("# Title\nx"), "<head># Title<>\nx");
  EXPECT_EQ(styles("a **b** c"), "a **<bold>b**<> c");
  EXPECT_EQ(styles("*b* c"), "<mark>*<italic>b*<> c");
  EXPECT_EQ(styles("***b*** c"), "<mark>***<both>b***<> c");
  EXPECT_EQ(styles("a `b` c"), "a `<code>b`<> c");
  EXPECT_EQ(styles("- a\n> b\n"), "<mark>-<> a\n<mark>><> b\n");
  EXPECT_EQ(styles("* a\n  * **b**\n"), "<mark>*<> a\n  <mark>*<> **<bold>b**<>\n");
  EXPECT_EQ(styles("_b_ c"), "<italic>_b_<> c");
  EXPECT_EQ(styles("```c\nx = **p;\n```\ny"), "``<fence>`c<>\n<code>x = **p;<>\n<code>``<fence>`<>\ny");
}

TEST(MarkdownView, lookalikes_of_markdown_stay_plain) {
  for (const char* text : {"2 * 3 * 4", "12. twelve", "snake_case_name", "\\*no\\*", "a ** b ** c"}) {
    EXPECT_EQ(view(text), text);
  }
  EXPECT_EQ(styles("#hashtag x"), "<head>#<>hashtag x");
}

TEST(MarkdownView, indented_code_fence_in_a_list_is_recognized) {
  EXPECT_EQ(styles("     ```\n     # no heading\n     ```\nx"),
            "     ``<fence>`<>\n<code>     # no heading<>\n<code>     ``<fence>`<>\nx");
}

TEST(MarkdownView, unclosed_style_ends_with_its_line) {
  EXPECT_EQ(styles("a **open\nplain"), "a **<bold>open<>\nplain");
  EXPECT_EQ(styles("`open\nplain"), "`<code>open<>\nplain");
}

TEST(MarkdownView, output_without_styles_equals_input) {
  for (size_t begin = 0; begin < kEverything.size(); ++begin) {
    const std::string_view text = kEverything.substr(begin);
    EXPECT_EQ(without_styles(view(text)), text);
  }
}

TEST(MarkdownView, output_is_immediate_and_independent_of_splits) {
  MarkdownView growing;
  std::string seen;
  for (const char c : kEverything) {
    const std::string piece = growing.push({&c, 1});
    EXPECT_EQ(without_styles(piece), std::string(1, c)) << "after '" << seen << "'";
    seen += c;
  }
  for (const size_t piece : {1u, 2u, 3u, 7u}) EXPECT_EQ(view(kEverything, piece), view(kEverything));
}

}  // namespace
}  // namespace zinc
