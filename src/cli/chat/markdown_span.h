// The first span of a Markdown text: emphasis, inline code, an escaped mark, or plain text up to the next mark.
// Stricter than CommonMark where text is lost otherwise: marks between letters or digits (2*3*4, snake_case) are text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zinc {

struct MarkdownSpan {
  enum class Kind : uint8_t { incomplete, text, code, italic, bold, bold_italic };
  Kind kind = Kind::incomplete;  // incomplete: the following text decides
  std::string_view text = {};    // inside the marks
  size_t n_bytes = 0;            // with the marks
};

// `before`: the byte before `line`. `is_complete`: nothing follows, so that the span is not incomplete.
// REQUIRES: !line.empty().
MarkdownSpan first_markdown_span(std::string_view line, char before, bool is_complete);

}  // namespace zinc
