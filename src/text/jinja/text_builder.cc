#include "text/jinja/text_builder.h"

#include <algorithm>

#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

constexpr size_t kNotFound = std::string_view::npos;
constexpr size_t kFreeMismatches = 64;  // before switching to the linear search, plus one per kBytesPerMismatch
constexpr size_t kBytesPerMismatch = 8;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

void add_run(std::vector<Run>& runs, size_t end, bool from_input) {
  if (!runs.empty() && runs.back().from_input == from_input) {
    runs.back().end = end;
  } else {
    runs.push_back({end, from_input});
  }
}

// Knuth-Morris-Pratt: linear time. With `from_right`, positions count from the right.
size_t find_linear(std::string_view text, std::string_view wanted, size_t from, bool from_right) {
  const auto at = [from_right](std::string_view s, size_t i) { return from_right ? s[s.size() - 1 - i] : s[i]; };
  std::vector<size_t> border(wanted.size(), 0);
  for (size_t i = 1, n = 0; i < wanted.size(); ++i) {
    while (n > 0 && at(wanted, i) != at(wanted, n)) n = border[n - 1];
    if (at(wanted, i) == at(wanted, n)) ++n;
    border[i] = n;
  }
  for (size_t i = from, n = 0; i < text.size(); ++i) {
    while (n > 0 && at(text, i) != at(wanted, n)) n = border[n - 1];
    if (at(text, i) == at(wanted, n)) ++n;
    if (n == wanted.size()) return i + 1 - n;
  }
  return kNotFound;
}

// Searches by the first byte, much faster if it is rare; switches to the linear search after too many mismatches.
size_t find_quickly(std::string_view text, std::string_view wanted, size_t from) {
  if (wanted.empty()) return from;
  size_t n_mismatches = 0;
  for (size_t at = text.find(wanted[0], from); at != kNotFound; at = text.find(wanted[0], at + 1)) {
    if (text.substr(at).starts_with(wanted)) return at;
    if (++n_mismatches > kFreeMismatches && n_mismatches * kBytesPerMismatch > at - from)
      return find_linear(text, wanted, at + 1, false);
  }
  return kNotFound;
}

const Text* make_text(Runtime& rt, std::string_view bytes, std::span<const Run> runs, bool is_markup) {
  if (runs.size() > 1) return rt.arena().make<Text>(bytes, rt.arena().copy(runs), false, is_markup);
  const bool from_input = !runs.empty() && runs[0].from_input;
  return rt.arena().make<Text>(bytes, std::span<const Run>{}, from_input, is_markup);
}

}  // namespace

void TextBuilder::append(std::string_view bytes, bool from_input) {
  if (bytes.empty() || !rt_.charge_bytes(bytes.size()) || !rt_.check_size(bytes_.size() + bytes.size(), 1)) return;
  bytes_.append(bytes);
  add_run(runs_, bytes_.size(), from_input);
}

void TextBuilder::append(const Text& text) { append(text, 0, text.bytes.size()); }

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  for_each_run(text, begin, end, [this](std::string_view piece, bool from_input) { append(piece, from_input); });
}

void TextBuilder::append_repeated(const Text& text, size_t n) {
  if (text.bytes.empty() || n == 0 || !rt_.check_size(n, text.bytes.size())) return;
  if (!text.runs.empty()) {
    for (size_t i = 0; i < n && rt_.charge(1); ++i) append(text);
    return;
  }
  const size_t n_bytes = n * text.bytes.size();
  if (!rt_.charge_bytes(n_bytes) || !rt_.check_size(bytes_.size() + n_bytes, 1)) return;
  bytes_.reserve(bytes_.size() + n_bytes);
  for (size_t i = 0; i < n; ++i) bytes_.append(text.bytes);
  add_run(runs_, bytes_.size(), text.from_input);
}

void TextBuilder::pad(size_t n, std::string_view fill) { append_repeated(Text{fill, {}}, n); }

Value TextBuilder::finish(bool is_markup) {
  if (rt_.failed()) return Value();
  return Value(make_text(rt_, rt_.arena().copy(std::string_view(bytes_)), runs_, is_markup));
}

bool CharMeter::flush() {
  const size_t n_steps = n_eighths_ / 8;
  n_eighths_ = 0;
  return rt_.charge(n_steps);
}

Value slice_text(Runtime& rt, const Text& text, size_t begin, size_t end) {
  const std::string_view bytes = text.bytes.substr(begin, end - begin);
  if (text.runs.empty()) {
    return Value(rt.arena().make<Text>(bytes, std::span<const Run>{}, text.from_input, text.is_markup));
  }
  std::vector<Run> runs;
  size_t n_bytes = 0;
  for_each_run(text, begin, end, [&](std::string_view piece, bool from_input) {
    n_bytes += piece.size();
    runs.push_back({n_bytes, from_input});
  });
  rt.charge(1 + runs.size() / 8);
  return Value(make_text(rt, bytes, runs, text.is_markup));
}

size_t n_chars(Runtime& rt, std::string_view text) {
  rt.charge(text.size() / kBytesPerStep);
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

size_t byte_offset(Runtime& rt, std::string_view text, size_t n_chars) {
  size_t at = 0;
  for (; n_chars > 0 && at < text.size(); --n_chars) {
    do {
      ++at;
    } while (at < text.size() && is_continuation(text[at]));
  }
  rt.charge(at / kBytesPerStep);
  return at;
}

bool equal_texts(Runtime& rt, std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  return (a.size() < kBytesPerStep || rt.charge_comparison(a, b)) && a == b;
}

size_t find_text(Runtime& rt, std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return kNotFound;
  const size_t found = find_quickly(text, wanted, from);
  const size_t n_seen = (found == kNotFound ? text.size() : found) - from;
  rt.charge((n_seen + wanted.size()) / kSearchBytesPerStep);
  return found;
}

size_t rfind_text(Runtime& rt, std::string_view text, std::string_view wanted) {
  size_t found = wanted.empty() ? 0 : find_linear(text, wanted, 0, true);
  if (found != kNotFound) found = text.size() - found - wanted.size();
  rt.charge((text.size() - (found == kNotFound ? 0 : found) + wanted.size()) / kSearchBytesPerStep);
  return found;
}

}  // namespace zinc::jinja
