// A timeline of this process as a Chrome trace (JSON), which ui.perfetto.dev and chrome://tracing open: spans, instants
// and counters on named tracks. Code that can be traced holds a Trace*; nullptr: tracing is off. Thread-safe.
//
// Memory is bounded: beyond the limit, events are only counted, and an instant event says so. Kernel spans are the bulk
// of a trace; they may use half of the limit, so that requests and steps continue to be recorded after them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/atomic_file.h"

namespace zinc {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static constexpr size_t kMaxEvents = 2'000'000;             // about 100 MB of memory, 250 MB of JSON
  static constexpr size_t kMaxTextBytes = size_t{100} << 20;  // names and arguments

  explicit Trace(size_t max_events = kMaxEvents, size_t max_text_bytes = kMaxTextBytes)
      : max_events_(max_events), max_text_bytes_(max_text_bytes), origin_(Clock::now()) {}

  // A track of a group (a process, for the viewer). The same names give the same track.
  using Track = uint32_t;
  Track add_track(std::string_view group, std::string_view name);

  // `args` is the text of a JSON object, shown with the event; empty: none.
  void add_span(Track track, std::string_view name, Time begin, Time end, std::string_view args = {});
  void add_instant(Track track, std::string_view name, Time at, std::string_view args = {});
  void add_counter(Track track, std::string_view name, Time at, std::string_view args);  // args: series -> value

  // Kernel spans repeat the same few names thousands of times: their texts are interned once.
  using TextId = uint32_t;
  TextId intern(std::string_view text);
  void add_kernel(Track track, TextId name, Time begin, Time end, TextId args);

  Status write(AtomicFile& file) const;  // does not commit

 private:
  enum class Kind : uint8_t { span, kernel, instant, counter };
  static constexpr size_t kKinds = 4;
  struct Event {
    int64_t begin_ns, duration_ns;
    TextId name, args;
    Track track;
    Kind kind;
  };
  struct TrackName {
    TextId group, name;
    int group_id, track_id;  // pid and tid of the viewer
  };
  TextId intern_locked(std::string_view text);
  bool is_full() const { return events_.size() >= max_events_ || n_text_bytes_ >= max_text_bytes_; }
  void add(Kind kind, Track track, TextId name, Time begin, Time end, TextId args);  // REQUIRES: mutex_ is held
  int64_t ns_of(Time at) const { return std::chrono::nanoseconds(at - origin_).count(); }
  std::vector<const Event*> in_order() const;
  std::string event_text(const Event& event) const;

  const size_t max_events_, max_text_bytes_;
  const Time origin_;
  mutable std::mutex mutex_;  // guards everything below
  std::deque<std::string> texts_;
  size_t n_text_bytes_ = 0;
  std::unordered_map<std::string_view, TextId> text_ids_;  // views of texts_
  std::vector<TrackName> tracks_;
  std::map<std::pair<TextId, TextId>, Track> track_ids_;
  std::deque<Event> events_;
  size_t n_kernels_ = 0;
  std::array<uint64_t, kKinds> n_dropped_{};
};

}  // namespace zinc
