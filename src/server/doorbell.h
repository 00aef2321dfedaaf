// The way from the engine thread back to the event loop. Sinks keep what the engine says under a lock of their own and
// ring; however many ring during a step, the event loop wakes once and empties them all. Nobody ever waits.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace zinc {

// Who waits for sinks. Event-loop thread.
class SinkOwner {
 public:
  virtual ~SinkOwner() = default;
  virtual void sinks_have_news() = 0;
};

class Doorbell {
 public:
  // `post` runs a task on the event loop, from any thread.
  explicit Doorbell(std::function<void(std::function<void()>)> post) : post_(std::move(post)) {}
  void ring(std::weak_ptr<SinkOwner> owner);  // any thread

 private:
  void wake_owners();

  std::function<void(std::function<void()>)> post_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<SinkOwner>> waiting_;
};

// Collects what the engine says about one request until the event loop takes it.
class CollectingSink final : public RequestSink {
 public:
  struct News {
    std::string text;
    std::vector<AnswerToken> tokens;  // where they are wanted
    int n_tokens = 0;
    std::optional<PromptProgress> progress;  // the latest, where it is wanted
    std::optional<Outcome> outcome;
  };

  struct Wants {
    bool tokens = false, progress = false;
  };
  CollectingSink(Doorbell& bell, std::weak_ptr<SinkOwner> owner, Wants wants)
      : bell_(bell), owner_(std::move(owner)), wants_(wants) {}

  News take();  // event-loop thread

 private:
  void progress(const PromptProgress& progress) override;
  void tokens(std::string_view text, std::span<const AnswerToken> tokens) override;
  void end(const Outcome& outcome) override;
  void ring_once(std::unique_lock<std::mutex> lock);

  Doorbell& bell_;
  const std::weak_ptr<SinkOwner> owner_;
  const Wants wants_;
  std::mutex mutex_;
  News news_;
  bool rang_ = false;
};

}  // namespace zinc
