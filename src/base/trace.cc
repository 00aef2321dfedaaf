#include "base/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/version.h"

namespace zinc {
namespace {

constexpr size_t kWriteBytes = 1 << 20;

// Microseconds with exactly three decimals: spans that nest in nanoseconds also nest in the file.
std::string microseconds(int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

std::string json_text(std::string_view text) { return to_json(json::value(text)); }

std::string metadata(std::string_view what, int group, int track, std::string_view args) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, group, track, args);
}

class EventWriter {  // an array of JSON objects, in pieces
 public:
  explicit EventWriter(AtomicFile& file) : file_(file) {}
  void add(std::string_view event) {
    buffer_ += is_first_ ? "\n" : ",\n";
    buffer_ += event;
    is_first_ = false;
    if (buffer_.size() >= kWriteBytes) flush();
  }
  void add_text(std::string_view text) { buffer_ += text; }
  void flush() {
    if (status_.ok()) status_ = file_.write(std::as_bytes(std::span(buffer_)));
    buffer_.clear();
  }
  const Status& status() const { return status_; }

 private:
  AtomicFile& file_;
  std::string buffer_;
  bool is_first_ = true;
  Status status_ = ok_status();
};

}  // namespace

Trace::TextId Trace::intern(std::string_view text) {
  const std::lock_guard lock(mutex_);
  return intern_locked(text);
}

Trace::TextId Trace::intern_locked(std::string_view text) {
  if (const auto known = text_ids_.find(text); known != text_ids_.end()) return known->second;
  const TextId id = static_cast<TextId>(texts_.size());
  text_ids_.emplace(texts_.emplace_back(text), id);
  constexpr size_t kOverhead = 128;  // of a string and a map node
  n_text_bytes_ += text.size() + kOverhead;
  return id;
}

Trace::Track Trace::add_track(std::string_view group, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const TextId group_text = intern_locked(group), name_text = intern_locked(name);
  const auto [known, is_new] = track_ids_.try_emplace({group_text, name_text}, static_cast<Track>(tracks_.size()));
  if (!is_new) return known->second;
  const auto same = std::ranges::find(tracks_, group_text, &TrackName::group);
  const int group_id = same == tracks_.end() ? static_cast<int>(tracks_.size()) + 1 : same->group_id;
  tracks_.push_back({group_text, name_text, group_id, static_cast<int>(tracks_.size()) + 1});
  return known->second;
}

void Trace::add(Kind kind, Track track, TextId name, Time begin, Time end, TextId args) {
  const bool is_dropped = is_full() || (kind == Kind::kernel && n_kernels_ >= std::max<size_t>(1, max_events_ / 2));
  if (is_dropped && n_dropped_[static_cast<size_t>(kind)]++ > 0) return;
  if (is_dropped) {  // the first of its kind: one more event that says so
    name = intern_locked(kind == Kind::kernel ? "trace full: later kernels are not recorded"
                                              : "trace full: later events are not recorded");
    kind = Kind::instant;
    end = begin;
    args = intern_locked("");
  }
  if (kind == Kind::kernel) ++n_kernels_;
  events_.push_back({ns_of(begin), std::max<int64_t>(0, ns_of(end) - ns_of(begin)), name, args, track, kind});
}

void Trace::add_span(Track track, std::string_view name, Time begin, Time end, std::string_view args) {
  const std::lock_guard lock(mutex_);
  if (is_full()) return add(Kind::span, track, 0, begin, end, 0);  // its texts are not kept
  add(Kind::span, track, intern_locked(name), begin, end, intern_locked(args));
}

void Trace::add_instant(Track track, std::string_view name, Time at, std::string_view args) {
  const std::lock_guard lock(mutex_);
  if (is_full()) return add(Kind::instant, track, 0, at, at, 0);
  add(Kind::instant, track, intern_locked(name), at, at, intern_locked(args));
}

void Trace::add_counter(Track track, std::string_view name, Time at, std::string_view args) {
  const std::lock_guard lock(mutex_);
  if (is_full()) return add(Kind::counter, track, 0, at, at, 0);
  add(Kind::counter, track, intern_locked(name), at, at, intern_locked(args));
}

void Trace::add_kernel(Track track, TextId name, Time begin, Time end, TextId args) {
  const std::lock_guard lock(mutex_);
  add(Kind::kernel, track, name, begin, end, args);
}

// By begin, enclosing spans first: viewers nest spans of equal begin in the order of the file.
std::vector<const Trace::Event*> Trace::in_order() const {
  std::vector<const Event*> order;
  order.reserve(events_.size());
  for (const Event& event : events_) order.push_back(&event);
  std::ranges::stable_sort(order, [](const Event* a, const Event* b) {
    return std::pair(a->begin_ns, -a->duration_ns) < std::pair(b->begin_ns, -b->duration_ns);
  });
  return order;
}

std::string Trace::event_text(const Event& event) const {
  const TrackName& track = tracks_[event.track];
  const std::string& args = texts_[event.args];
  std::string text = fmt::format(R"({{"name":{},"pid":{},"tid":{},"ts":{})", json_text(texts_[event.name]),
                                 track.group_id, track.track_id, microseconds(event.begin_ns));
  if (event.kind == Kind::instant) {
    text += R"(,"ph":"i","s":"t")";
  } else if (event.kind == Kind::counter) {
    text += R"(,"ph":"C")";
  } else {
    text += fmt::format(R"(,"ph":"X","cat":"{}","dur":{})", event.kind == Kind::kernel ? "kernel" : "span",
                        microseconds(event.duration_ns));
  }
  if (!args.empty()) text += fmt::format(R"(,"args":{})", args);
  return text + "}";
}

Status Trace::write(AtomicFile& file) const {
  const std::lock_guard lock(mutex_);
  EventWriter out(file);
  out.add_text(R"({"displayTimeUnit":"ns","traceEvents":[)");
  for (const TrackName& track : tracks_) {
    const std::string order = fmt::format(R"("sort_index":{})", track.track_id);
    out.add(metadata("process_name", track.group_id, 0, fmt::format(R"("name":{})", json_text(texts_[track.group]))));
    out.add(metadata("thread_name", track.group_id, track.track_id,
                     fmt::format(R"("name":{})", json_text(texts_[track.name]))));
    out.add(metadata("thread_sort_index", track.group_id, track.track_id, order));
  }
  for (const Event* event : in_order()) out.add(event_text(*event));
  uint64_t n_dropped = 0;
  for (const uint64_t n : n_dropped_) n_dropped += n;
  out.add_text(fmt::format("\n],\"otherData\":{{\"version\":{},\"dropped_events\":{}}}}}\n", json_text(version_text()),
                           n_dropped));
  out.flush();
  return out.status();
}

}  // namespace zinc
