#include "text/jinja/text_joiner.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

constexpr size_t kLeastGrowingBytes = 256;  // shorter texts are copied as quickly as they are extended

// Makes the first place free by moving the others up; the last one is forgotten.
template <class Places>
auto& free_first(Places& places) {
  std::rotate(places.begin(), places.end() - 1, places.end());
  return places[0];
}

}  // namespace

void TextJoiner::Place::start(Arena& arena, size_t n_bytes_wanted, size_t n_runs_wanted) {
  bytes = static_cast<char*>(arena.allocate(n_bytes_wanted));
  runs = arena.array<Run>(n_runs_wanted).data();
  n_bytes = n_runs = 0;
  n_bytes_room = n_bytes_wanted;
  n_runs_room = n_runs_wanted;
}

void TextJoiner::Place::append(const Text& text) {
  if (text.bytes.empty()) return;
  std::memcpy(bytes + n_bytes, text.bytes.data(), text.bytes.size());
  for_each_run(text, 0, text.bytes.size(), [this](std::string_view piece, bool from_input) {
    n_bytes += piece.size();
    if (n_runs > 0 && runs[n_runs - 1].from_input == from_input) {
      runs[n_runs - 1].end = n_bytes;  // beyond the end of older texts here, but they look no further than that
    } else {
      runs[n_runs++] = {n_bytes, from_input};
    }
  });
}

bool TextJoiner::Place::ends_with(const Text& text) const {
  return n_bytes > 0 && bytes == text.bytes.data() && n_bytes == text.bytes.size();
}

// Where `first` and what is joined to it goes: where it is if there is room, else to a place that starts empty.
TextJoiner::Place& TextJoiner::place_for(Arena& arena, const Text& first, size_t n_bytes, size_t n_runs) {
  const auto holds_first = [&](const Place& place) { return place.ends_with(first); };
  const auto growing = std::find_if(growing_.begin(), growing_.end(), holds_first);
  if (growing != growing_.end()) {
    if (n_bytes > growing->n_bytes_room || n_runs > growing->n_runs_room)
      growing->start(arena, 2 * n_bytes, 2 * n_runs);
    return *growing;
  }
  const bool grows = std::any_of(joined_once_.begin(), joined_once_.end(), holds_first);
  Place& place = grows ? free_first(growing_) : free_first(joined_once_);
  place.start(arena, grows ? 2 * n_bytes : n_bytes, grows ? 2 * n_runs : n_runs);
  return place;
}

Value TextJoiner::join(Runtime& rt, std::span<const Text* const> texts, bool is_markup) {
  size_t n_bytes = 0, n_runs = 0;
  for (const Text* text : texts) {
    n_bytes += text->bytes.size();
    n_runs += std::max<size_t>(1, text->runs.size());
  }
  if (!rt.reserve(n_bytes, 1) || !rt.reserve(n_runs, 1)) return Value();
  Place once;
  const bool is_short = n_bytes < kLeastGrowingBytes;
  Place& place = is_short ? once : place_for(rt.arena(), *texts[0], n_bytes, n_runs);
  if (is_short) place.start(rt.arena(), n_bytes, n_runs);
  const bool has_first = place.n_bytes > 0;
  if (!rt.charge_bytes(n_bytes - place.n_bytes) || !rt.charge(has_first ? 1 : n_runs / 8)) return Value();
  for (const Text* text : texts.subspan(has_first ? 1 : 0)) place.append(*text);
  const std::span<const Run> runs(place.runs, place.n_runs > 1 ? place.n_runs : 0);
  const bool from_input = place.n_runs == 1 && place.runs[0].from_input;
  return Value(rt.arena().make<Text>(std::string_view(place.bytes, place.n_bytes), runs, from_input, is_markup));
}

}  // namespace zinc::jinja
