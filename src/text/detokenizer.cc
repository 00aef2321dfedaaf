#include "text/detokenizer.h"

#include <utility>

#include "base/utf8.h"

namespace zinc {
namespace {

// The searched text is valid UTF-8, so stop strings must be too.
std::vector<std::string> to_valid_utf8(std::vector<std::string> stops) {
  for (std::string& stop : stops) stop = replace_invalid_utf8(stop);
  return stops;
}

}  // namespace

StopStringMatcher::StopStringMatcher(const std::vector<std::string>& stops) {
  for (size_t i = 0; i < stops.size(); ++i) {
    const auto node = static_cast<size_t>(trie_.add(stops[i]));
    states_.resize(trie_.size());
    if (!stops[i].empty() && states_[node].stop == kNoStop) states_[node].stop = static_cast<int32_t>(i);
  }
  states_.resize(trie_.size());
  link();
}

// Breadth-first, so that failure links of shorter suffixes exist.
void StopStringMatcher::link() {
  std::vector<int32_t> order = {ByteTrie::kRoot};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t parent = order[i];
    trie_.for_each_child(parent, [&](int32_t child, char byte) {
      order.push_back(child);
      State& state = states_[static_cast<size_t>(child)];
      state.depth = states_[static_cast<size_t>(parent)].depth + 1;
      if (parent == ByteTrie::kRoot) return;
      int32_t suffix = states_[static_cast<size_t>(parent)].fail;
      while (suffix != ByteTrie::kRoot && trie_.child(suffix, byte) == ByteTrie::kNone) {
        suffix = states_[static_cast<size_t>(suffix)].fail;
      }
      const int32_t next = trie_.child(suffix, byte);
      state.fail = next == ByteTrie::kNone ? ByteTrie::kRoot : next;
      if (state.stop == kNoStop) state.stop = states_[static_cast<size_t>(state.fail)].stop;
    });
  }
}

std::optional<size_t> StopStringMatcher::push(char byte) {
  int32_t next = trie_.child(state_, byte);
  while (next == ByteTrie::kNone && state_ != ByteTrie::kRoot) {
    state_ = states_[static_cast<size_t>(state_)].fail;
    next = trie_.child(state_, byte);
  }
  state_ = next == ByteTrie::kNone ? ByteTrie::kRoot : next;
  const int32_t stop = states_[static_cast<size_t>(state_)].stop;
  return stop == kNoStop ? std::nullopt : std::optional(static_cast<size_t>(stop));
}

TextStream::TextStream(std::vector<std::string> stops) : stops_(to_valid_utf8(std::move(stops))), matcher_(stops_) {}

std::string_view TextStream::push(std::string_view bytes) {
  if (stopped()) return {};
  if (n_released_ > text_.size() / 2) {  // amortised linear time, bounded memory
    text_.erase(0, n_released_);
    n_searched_ -= n_released_;
    n_released_ = 0;
  }
  raw_ += bytes;
  take_characters(incomplete_utf8_suffix(raw_));
  return stop_or_release(/*is_last=*/false);
}

std::string_view TextStream::finish() {
  if (stopped()) return {};
  take_characters(0);
  return stop_or_release(/*is_last=*/true);
}

std::string_view TextStream::stop_or_release(bool is_last) {
  for (; n_searched_ < text_.size(); ++n_searched_) {
    stop_ = matcher_.push(text_[n_searched_]);
    if (stop_) return release(n_searched_ + 1 - stops_[*stop_].size());
  }
  return release(text_.size() - (is_last ? 0 : matcher_.n_held()));
}

// Moves all but the last n_kept bytes of raw_ to text_.
void TextStream::take_characters(size_t n_kept) {
  const std::string_view whole = std::string_view(raw_).substr(0, raw_.size() - n_kept);
  if (is_valid_utf8(whole)) {
    text_ += whole;
  } else {
    text_ += replace_invalid_utf8(whole);
  }
  raw_.erase(0, whole.size());
}

std::string_view TextStream::release(size_t end) {
  const std::string_view piece = std::string_view(text_).substr(n_released_, end - n_released_);
  n_released_ = end;
  return piece;
}

Detokenizer::Detokenizer(Tokenizer tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)), show_control_(options.show_control), stream_(std::move(options.stop)) {}

std::string_view Detokenizer::push(TokenId id) {
  const bool hidden = !show_control_ && tokenizer_.is_control(id);
  return stream_.push(hidden ? std::string_view() : tokenizer_.bytes(id));
}

}  // namespace zinc
