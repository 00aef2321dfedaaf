// A fake engine for server tests: it "generates" the text that the prompt's script asks for, with the tokens of a real
// vocabulary. The script is the last of these in the prompt:
//   SAY[[text]]    emits the text and ends       FAIL[[text]]  emits the text, then fails
//   WAIT[[text]]   emits the text, then waits until it is cancelled
//   FLOOD[[text]]  repeats the text, 1,000 tokens per second, until it is cancelled or reaches max_tokens
// Without a script it emits "ok". One thread; counts submitted, cancelled and ended requests.
#pragma once

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "server/served_model.h"
#include "tests/support/family_model.h"
#include "text/detokenizer.h"

namespace zinc {

class ScriptedEngine final : public EnginePort {
 public:
  explicit ScriptedEngine(Tokenizer tokenizer, int queue_limit = 1 << 20)
      : tokenizer_(std::move(tokenizer)), queue_limit_(queue_limit), thread_([this] { run(); }) {}

  ~ScriptedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<RequestId> submit(Request request) override {
    const std::lock_guard lock(mutex_);
    if (static_cast<int>(running_.size()) >= queue_limit_) {
      return fail(ErrorCode::unavailable, "the queue is full");
    }
    const RequestId id = ++last_id_;
    last_request_ = request;
    running_.emplace(id, start(std::move(request)));
    ++n_submitted_;
    changed_.notify_all();
    return id;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found != running_.end()) found->second.cancelled = true;
    changed_.notify_all();
  }

  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats out;
    out.n_decoding = static_cast<int>(running_.size());
    out.n_submitted = static_cast<uint64_t>(n_submitted_);
    out.n_ended.front() = n_ended_;
    return out;
  }

  // Waits until it is idle; false after a minute.
  bool wait_until_idle() const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return running_.empty(); });
  }
  int n_submitted() const { return locked(n_submitted_); }
  int n_cancelled() const { return locked(n_cancelled_); }
  Request last_request() const { return locked(last_request_); }

 private:
  struct ScriptedRequest {
    Request request;
    std::unique_ptr<Detokenizer> decoder = {};
    std::vector<TokenId> tokens = {};  // of the script
    size_t next = 0;
    int n_emitted = 0;
    std::string command = "SAY";
    bool cancelled = false;
  };

  template <class T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  ScriptedRequest start(Request request) const {
    ScriptedRequest out{.request = std::move(request)};
    const std::string prompt = tokenizer_.decode(out.request.prompt);
    std::string text = "ok";
    const size_t at = prompt.rfind("[[");
    const size_t end = prompt.find("]]", at == std::string::npos ? 0 : at);
    if (at != std::string::npos && end != std::string::npos) {
      size_t begin = at;
      while (begin > 0 && prompt[begin - 1] >= 'A' && prompt[begin - 1] <= 'Z') --begin;
      out.command = prompt.substr(begin, at - begin);
      text = prompt.substr(at + 2, end - at - 2);
    }
    tokenizer_.encode(text, {}, out.tokens);
    out.decoder = std::make_unique<Detokenizer>(
        tokenizer_, Detokenizer::Options{.stop = out.request.options.stop, .show_control = false});
    return out;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      bool moved = false;
      for (auto at = running_.begin(); at != running_.end();) {
        const Progress progress = step(at->second);
        moved = moved || progress != Progress::waits;
        at = progress == Progress::over ? running_.erase(at) : std::next(at);
      }
      changed_.notify_all();
      if (moved) {
        const bool floods = std::ranges::any_of(running_, [](const auto& r) { return r.second.command == "FLOOD"; });
        lock.unlock();  // lets other threads in, as between steps of the real engine
        if (floods) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // not faster than responses are written
        std::this_thread::yield();
        lock.lock();
      } else {
        changed_.wait(lock);
      }
    }
    for (auto& [id, running] : running_) end(running, StopReason::cancelled);
    running_.clear();
  }

  enum class Progress { moved, waits, over };

  Progress step(ScriptedRequest& running) {
    if (running.cancelled) return ++n_cancelled_, end(running, StopReason::cancelled);
    if (running.request.embedding) return end(running, StopReason::end_token);
    const GenerationOptions& options = running.request.options;
    if (options.prompt_only) return end(running, StopReason::max_tokens);
    if (running.next == running.tokens.size()) {
      if (running.command == "WAIT") return Progress::waits;
      if (running.command == "FAIL") return end(running, StopReason::failed);
      if (running.command != "FLOOD") return end(running, StopReason::end_token);
      running.next = 0;
    }
    if (options.max_tokens > 0 && running.n_emitted >= options.max_tokens) return end(running, StopReason::max_tokens);
    const TokenId id = running.tokens[running.next++];
    ++running.n_emitted;
    OutputToken token{.id = id, .logprob = -0.25f};
    for (int i = 0; i < options.n_top_logprobs; ++i) token.top.push_back({id, -0.25f - static_cast<float>(i)});
    running.request.sink->tokens(running.decoder->push(id), std::span(&token, 1));
    return running.decoder->stopped() ? end(running, StopReason::stop_string) : Progress::moved;
  }

  Progress end(ScriptedRequest& running, StopReason reason) {
    ++n_ended_;
    const std::string_view rest = running.decoder->finish();
    if (!rest.empty()) running.request.sink->tokens(rest, {});
    Outcome outcome{.reason = reason};
    outcome.usage.n_prompt = static_cast<int>(running.request.prompt.size());
    outcome.usage.n_completion = running.n_emitted;
    if (const std::string* stop = running.decoder->stop_string()) outcome.stop_string = *stop;
    if (reason == StopReason::failed) outcome.error = Error{ErrorCode::device_lost, "the device is lost"};
    if (running.request.embedding) outcome.embedding = {0.6f, 0.8f};
    for (const TokenId id : running.request.prompt) {
      if (running.request.options.n_prompt_logprobs < 0) break;
      const bool is_first = outcome.prompt_tokens.empty();
      outcome.prompt_tokens.push_back({.id = id, .logprob = is_first ? std::nanf("") : -0.5f, .top = {{id, -0.5f}}});
    }
    running.request.sink->end(outcome);
    return Progress::over;
  }

  const Tokenizer tokenizer_;
  const int queue_limit_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<RequestId, ScriptedRequest> running_;
  RequestId last_id_ = 0;
  int n_submitted_ = 0, n_cancelled_ = 0;
  uint64_t n_ended_ = 0;
  Request last_request_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the other members
};

// A served model with the scripted engine: a tiny model's vocabulary with Qwen3's chat template.
class ScriptedModel {
 public:
  explicit ScriptedModel(const std::filesystem::path& source_folder, int context = 4096, int queue_limit = 1 << 20)
      : engine_(family_model(source_folder, "qwen3").tokenizer, queue_limit) {
    add("scripted", "qwen3", source_folder, context, queue_limit);
  }

  // A further model with the same engine and vocabulary and the chat template of another family.
  void add(std::string name, std::string_view family, const std::filesystem::path& source_folder, int context = 4096,
           int queue_limit = 1 << 20) {
    ServedModel model{family_model(source_folder, family, std::move(name), context), &engine_};
    model.limits.queue_limit = queue_limit;
    models_.add(std::move(model));
  }

  ModelList& models() { return models_; }
  const ServedModel& model() const { return *models_.all().front(); }
  ScriptedEngine& engine() { return engine_; }

 private:
  ScriptedEngine engine_;
  ModelList models_;
};

}  // namespace zinc
