// Builds strings from pieces and keeps the origin of each piece: template or input. Charges the rendering's limits;
// ignores further pieces once they are exceeded.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/jinja/value.h"

namespace zinc::jinja {

class Runtime;

class TextBuilder {
 public:
  explicit TextBuilder(Runtime& rt) : rt_(rt) {}

  void append(std::string_view bytes, bool from_input);
  void append(const Text& text);
  void append(const Text& text, size_t begin, size_t end);  // bytes begin..end
  void append_repeated(const Text& text, size_t n);
  void pad(size_t n, std::string_view fill = " ");  // n times `fill`, with template origin

  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  Value finish(bool is_markup = false);  // the string, in the arena

 private:
  Runtime& rt_;
  std::string bytes_;
  std::vector<Run> runs_;
};

// Calls `visit(piece, from_input)` for each origin run of text[begin..end).
template <class Visit>
void for_each_run(const Text& text, size_t begin, size_t end, Visit&& visit) {
  if (begin >= end) return;
  if (text.runs.empty()) return visit(text.bytes.substr(begin, end - begin), text.from_input);
  const auto ends_before = [](size_t at, const Run& run) { return at < run.end; };
  auto run = std::upper_bound(text.runs.begin(), text.runs.end(), begin, ends_before);
  for (; begin < end && run != text.runs.end(); ++run) {
    const size_t last = std::min(run->end, end);
    visit(text.bytes.substr(begin, last - begin), run->from_input);
    begin = last;
  }
}

// Charges characters in batches: one step per 8 ASCII characters or 1 other, which cost about the same.
class CharMeter {
 public:
  explicit CharMeter(Runtime& rt) : rt_(rt) {}
  ~CharMeter() { flush(); }
  CharMeter(const CharMeter&) = delete;
  CharMeter& operator=(const CharMeter&) = delete;
  bool count(char32_t code) {  // false: failed
    n_eighths_ += code < 0x80 ? 1 : 8;
    return n_eighths_ < kBatch || flush();
  }

 private:
  static constexpr size_t kBatch = 1024;
  bool flush();
  Runtime& rt_;
  size_t n_eighths_ = 0;
};

// Calls `visit(char, bytes, from_input)` for every character, until a limit is exceeded.
template <class Visit>
void for_each_char(Runtime& rt, const Text& text, Visit&& visit) {
  CharMeter meter(rt);
  for_each_run(text, 0, text.bytes.size(), [&](std::string_view piece, bool from_input) {
    while (!piece.empty()) {
      const Utf8Char c = next_utf8(piece);
      if (!meter.count(c.code)) return;
      visit(c.code, piece.substr(0, static_cast<size_t>(c.n_bytes)), from_input);
      piece.remove_prefix(static_cast<size_t>(c.n_bytes));
    }
  });
}

// The substring of bytes begin..end; shares the bytes.
Value slice_text(Runtime& rt, const Text& text, size_t begin, size_t end);

// UTF-8 character counts and offsets: computed each time, and charged.
size_t n_chars(Runtime& rt, std::string_view text);
size_t byte_offset(Runtime& rt, std::string_view text, size_t n_chars);  // offset of the n-th character, or the end
bool equal_texts(Runtime& rt, std::string_view a, std::string_view b);
size_t find_text(Runtime& rt, std::string_view text, std::string_view wanted, size_t from);  // npos: not found
size_t rfind_text(Runtime& rt, std::string_view text, std::string_view wanted);

}  // namespace zinc::jinja
