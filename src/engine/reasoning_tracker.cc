#include "engine/reasoning_tracker.h"

namespace zinc {

ReasoningTracker::ReasoningTracker(const ThinkingBudget& thinking)
    : open_tag_(thinking.open_tag),
      close_tag_(thinking.close_tag),
      tag_({thinking.starts_open ? close_tag_ : open_tag_}),
      is_open_(thinking.starts_open && !close_tag_.empty()),
      n_opened_(is_open_ ? 1 : 0) {}

void ReasoningTracker::push(std::string_view bytes) {
  if (close_tag_.empty()) return;
  for (const char byte : bytes) {
    if (!tag_.push(byte)) continue;
    if (!is_open_) {
      open();
    } else {
      is_open_ = false;
      ++n_closed_;
      tag_ = StopStringMatcher({open_tag_});
    }
  }
}

void ReasoningTracker::open() {
  if (is_open_) return;
  is_open_ = true;
  ++n_opened_;
  tag_ = StopStringMatcher({close_tag_});
}

}  // namespace zinc
