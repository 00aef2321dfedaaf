// Hands output from the engine thread to the event loop. Sinks buffer output under their own lock and notify; however
// many sinks notify during a step, the event loop wakes once and drains them all. No thread ever blocks on another.
// Bounded also if the event loop stands still: it has one task, and each sink holds at most the output of its request,
// which the context limits; the requests are those that the engine has accepted.
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

// Receives the notifications of its sinks. Event-loop thread.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  virtual void on_output() = 0;
};

class EventLoopNotifier {
 public:
  // `post` runs a task on the event loop, from any thread.
  explicit EventLoopNotifier(std::function<void(std::function<void()>)> post) : post_(std::move(post)) {}
  void notify(std::weak_ptr<OutputListener> listener);  // any thread

 private:
  void call_listeners();

  std::function<void(std::function<void()>)> post_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<OutputListener>> pending_;
};

// Buffers the engine's output for one request until the event loop drains it.
class BufferingSink final : public RequestSink {
 public:
  struct PendingOutput {
    std::string text;
    std::vector<OutputToken> tokens;  // if Options::tokens
    int n_tokens = 0;
    std::optional<PromptProgress> progress;  // the latest, if Options::progress
    std::optional<Outcome> outcome;
  };

  struct Options {
    bool tokens = false, progress = false;
  };
  BufferingSink(EventLoopNotifier& notifier, std::weak_ptr<OutputListener> listener, Options options)
      : notifier_(notifier), listener_(std::move(listener)), options_(options) {}

  PendingOutput drain();  // event-loop thread

 private:
  void progress(const PromptProgress& progress) override;
  void tokens(std::string_view text, std::span<const OutputToken> tokens) override;
  void end(const Outcome& outcome) override;
  void notify_once(std::unique_lock<std::mutex> lock);

  EventLoopNotifier& notifier_;
  const std::weak_ptr<OutputListener> listener_;
  const Options options_;
  std::mutex mutex_;
  PendingOutput pending_;
  bool was_notified_ = false;
};

}  // namespace zinc
