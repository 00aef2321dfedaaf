#include "cli/chat/chat_model.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "hub/resolve.h"
#include "server/prepare.h"

namespace zinc {
namespace {

constexpr std::chrono::milliseconds kPatience{50};

struct News {
  std::string text;
  std::optional<PromptProgress> progress;
  std::optional<Outcome> outcome;
};

// Hands what the engine's thread says to the thread that waits for it.
class WaitingSink final : public RequestSink {
 public:
  void progress(const PromptProgress& progress) override {
    tell([&] { news_.progress = progress; });
  }
  void tokens(std::string_view text, std::span<const AnswerToken>) override {
    tell([&] { news_.text += text; });
  }
  void end(const Outcome& outcome) override {
    tell([&] { news_.outcome = outcome; });
  }
  News wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return has_news_; });
    has_news_ = false;
    return std::exchange(news_, {});
  }

 private:
  template <class Change>
  void tell(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
      has_news_ = true;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_news_ = false;
  News news_;
};

Error error_of(const ApiError& error) {
  const bool is_length = error.code == "context_length_exceeded";
  return Error{is_length ? ErrorCode::context_exceeded : ErrorCode::invalid_input, error.message};
}

Result<std::string> name_of(const std::string& typed) {
  if (!typed.empty()) return typed.ends_with(".gguf") ? std::filesystem::path(typed).stem().string() : typed;
  ZINC_TRY(settings, hub_settings());
  return default_model_name(settings);
}

}  // namespace

Result<std::unique_ptr<ChatModel>> ChatModel::load(const ModelOptions& options, const std::filesystem::path& file,
                                                   int context) {
  ZINC_TRY(name, name_of(options.path));
  ModelOptions found = options;
  found.path = file.string();
  ZINC_TRY(model, load_model(found));
  const SamplingAdvice advice = sampling_advice(model.file()), thinking = sampling_advice(model.file(), true),
                       answering = sampling_advice(model.file(), false);
  const int64_t trained_context = model.model().config.max_context;
  const std::string backend(model.backend_name());
  ZINC_TRY(engine, Engine::create(std::move(model), {.max_sequences = 1, .context = context, .queue_limit = 1}));
  auto thread = std::make_unique<EngineThread>(std::move(engine));
  ZINC_TRY(served, thread->describe(name));
  std::unique_ptr<ChatModel> chat(new ChatModel(std::move(thread), std::move(served)));
  chat->advice_ = advice;
  chat->thinking_advice_ = thinking;
  chat->answering_advice_ = answering;
  chat->trained_context_ = static_cast<int>(std::min<int64_t>(trained_context, 1 << 30));
  chat->backend_ = backend;
  return chat;
}

int ChatModel::count_tokens(ChatRequest request) const {
  const OrApiError<PreparedRequest> prepared = prepare(served_, std::move(request));
  if (std::holds_alternative<ApiError>(prepared)) return served_->limits.context;
  return static_cast<int>(std::get<PreparedRequest>(prepared).prompts.front().size());
}

Result<Outcome> ChatModel::answer(ChatRequest request, const ChatHooks& hooks) {
  OrApiError<PreparedRequest> prepared = prepare(served_, std::move(request));
  if (const ApiError* error = std::get_if<ApiError>(&prepared)) return error_of(*error);
  PreparedRequest& ready = std::get<PreparedRequest>(prepared);
  const auto sink = std::make_shared<WaitingSink>();
  ZINC_TRY(id, engine_->submit({.prompt = std::move(ready.prompts.front()),
                                .answer = std::move(ready.answer),
                                .boundaries = std::move(ready.boundaries),
                                .sink = sink}));
  MessageParser parser(*served_->tool_format, std::move(ready.parser));
  const auto show = [&](const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) hooks.delta(delta);
  };
  while (true) {
    News news = sink->wait();
    if (news.progress) hooks.progress(*news.progress);
    show(parser.push(news.text));
    if (news.outcome) {
      show(parser.finish());
      if (news.outcome->reason == StopReason::failed && news.outcome->error) return *news.outcome->error;
      return std::move(*news.outcome);
    }
    if (hooks.cancelled()) engine_->cancel(id);
  }
}

}  // namespace zinc
