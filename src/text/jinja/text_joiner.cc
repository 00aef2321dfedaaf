#include "text/jinja/text_joiner.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

constexpr size_t kMinGrowBytes = 256;  // shorter strings are copied as fast as extended

// Moves the oldest buffer to the front for reuse.
template <class Buffers>
auto& recycle_oldest(Buffers& buffers) {
  std::rotate(buffers.begin(), buffers.end() - 1, buffers.end());
  return buffers[0];
}

}  // namespace

void TextJoiner::GrowBuffer::start(Arena& arena, size_t n_bytes_wanted, size_t n_runs_wanted) {
  bytes = static_cast<char*>(arena.allocate(n_bytes_wanted));
  runs = arena.array<Run>(n_runs_wanted).data();
  n_bytes = n_runs = 0;
  bytes_capacity = n_bytes_wanted;
  runs_capacity = n_runs_wanted;
}

void TextJoiner::GrowBuffer::append(const Text& text) {
  if (text.bytes.empty()) return;
  std::memcpy(bytes + n_bytes, text.bytes.data(), text.bytes.size());
  for_each_run(text, 0, text.bytes.size(), [this](std::string_view piece, bool from_input) {
    n_bytes += piece.size();
    if (n_runs > 0 && runs[n_runs - 1].from_input == from_input) {
      runs[n_runs - 1].end = n_bytes;  // older strings in this buffer end earlier and do not read it
    } else {
      runs[n_runs++] = {n_bytes, from_input};
    }
  });
}

bool TextJoiner::GrowBuffer::holds(const Text& text) const {
  return n_bytes > 0 && bytes == text.bytes.data() && n_bytes == text.bytes.size();
}

// The buffer for `first` and the appended strings: its current buffer if it has capacity, else a new one.
TextJoiner::GrowBuffer& TextJoiner::buffer_for(Arena& arena, const Text& first, size_t n_bytes, size_t n_runs) {
  const auto holds_first = [&](const GrowBuffer& buffer) { return buffer.holds(first); };
  const auto growing = std::find_if(growing_.begin(), growing_.end(), holds_first);
  if (growing != growing_.end()) {
    if (n_bytes > growing->bytes_capacity || n_runs > growing->runs_capacity)
      growing->start(arena, 2 * n_bytes, 2 * n_runs);
    return *growing;
  }
  const bool grows = std::any_of(joined_once_.begin(), joined_once_.end(), holds_first);
  GrowBuffer& buffer = grows ? recycle_oldest(growing_) : recycle_oldest(joined_once_);
  buffer.start(arena, grows ? 2 * n_bytes : n_bytes, grows ? 2 * n_runs : n_runs);
  return buffer;
}

Value TextJoiner::join(Runtime& rt, std::span<const Text* const> texts, bool is_markup) {
  size_t n_bytes = 0, n_runs = 0;
  for (const Text* text : texts) {
    n_bytes += text->bytes.size();
    n_runs += std::max<size_t>(1, text->runs.size());
  }
  if (!rt.check_size(n_bytes, 1) || !rt.check_size(n_runs, 1)) return Value();
  GrowBuffer once;
  const bool is_short = n_bytes < kMinGrowBytes;
  GrowBuffer& buffer = is_short ? once : buffer_for(rt.arena(), *texts[0], n_bytes, n_runs);
  if (is_short) buffer.start(rt.arena(), n_bytes, n_runs);
  const bool has_first = buffer.n_bytes > 0;
  if (!rt.charge_bytes(n_bytes - buffer.n_bytes) || !rt.charge(has_first ? 1 : n_runs / 8)) return Value();
  for (const Text* text : texts.subspan(has_first ? 1 : 0)) buffer.append(*text);
  const std::span<const Run> runs(buffer.runs, buffer.n_runs > 1 ? buffer.n_runs : 0);
  const bool from_input = buffer.n_runs == 1 && buffer.runs[0].from_input;
  return Value(rt.arena().make<Text>(std::string_view(buffer.bytes, buffer.n_bytes), runs, from_input, is_markup));
}

}  // namespace zinc::jinja
