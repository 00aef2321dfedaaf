#include "server/keep_alive.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr std::chrono::milliseconds kMaxInterval{1000}, kMinInterval{20};

}  // namespace

void KeepAlive::set(const std::string& model, const KeepAliveTime& time) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.model == model; });
  const ModelRef loaded = models_.find(model);
  if (!library_ || !run_after_ || !time.idle || !loaded) return;
  entries_.push_back({.model = model,
                      .idle = *time.idle,
                      .idle_since = Clock::now(),
                      .n_submitted = loaded->engine->stats().n_submitted});
  schedule();
}

std::optional<KeepAlive::Clock::time_point> KeepAlive::expires_at(const std::string& model) const {
  const auto found = std::ranges::find(entries_, model, &Entry::model);
  if (found == entries_.end()) return std::nullopt;
  return found->idle_since + found->idle;
}

void KeepAlive::schedule() {
  if (is_scheduled_ || entries_.empty()) return;
  is_scheduled_ = true;
  const std::chrono::milliseconds shortest = std::ranges::min(entries_, {}, &Entry::idle).idle;
  run_after_(std::clamp(shortest, kMinInterval, kMaxInterval), [this, alive = std::weak_ptr<bool>(is_alive_)] {
    if (!alive.expired()) check();
  });
}

void KeepAlive::check() {
  is_scheduled_ = false;
  const Clock::time_point now = Clock::now();
  std::erase_if(entries_, [&](Entry& entry) {
    const ModelRef model = models_.find(entry.model);
    if (!model) return true;
    const EngineStats stats = model->engine->stats();
    const bool is_busy = stats.n_waiting + stats.n_prefilling + stats.n_decoding > 0;
    if (is_busy || stats.n_submitted != entry.n_submitted) {
      entry.idle_since = now;
      entry.n_submitted = stats.n_submitted;
    }
    if (is_busy || now - entry.idle_since < entry.idle) return false;
    library_->unload(entry.model, [](const OrApiError<std::string>&) {});
    return true;
  });
  schedule();
}

}  // namespace zinc
