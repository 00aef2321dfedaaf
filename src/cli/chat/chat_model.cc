#include "cli/chat/chat_model.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "hub/resolve.h"
#include "hub/source.h"
#include "server/prepare.h"

namespace zinc {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

struct SinkUpdate {
  std::string text;
  std::optional<PromptProgress> progress;
  std::optional<Outcome> outcome;
};

// Passes updates from the engine thread to the thread that waits for them.
class BlockingSink final : public RequestSink {
 public:
  void progress(const PromptProgress& progress) override {
    apply([&] { update_.progress = progress; });
  }
  void tokens(std::string_view text, std::span<const OutputToken>) override {
    apply([&] { update_.text += text; });
  }
  void end(const Outcome& outcome) override {
    apply([&] { update_.outcome = outcome; });
  }
  SinkUpdate wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPollInterval, [this] { return has_update_; });
    has_update_ = false;
    return std::exchange(update_, {});
  }

 private:
  template <class Change>
  void apply(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
      has_update_ = true;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_update_ = false;
  SinkUpdate update_;
};

Error error_of(const ApiError& error) {
  const bool is_length = error.code == "context_length_exceeded";
  return Error{is_length ? ErrorCode::context_exceeded : ErrorCode::invalid_input, error.message};
}

Result<std::string> name_of(const std::string& typed) {
  const bool is_path = typed.ends_with(".gguf") && !has_source_prefix(typed);
  if (!typed.empty()) return is_path ? std::filesystem::path(typed).stem().string() : typed;
  ZINC_TRY(settings, hub_settings());
  return default_model_name(settings);
}

}  // namespace

Result<std::unique_ptr<ChatModel>> ChatModel::load(const ModelOptions& options, const std::filesystem::path& file,
                                                   int context) {
  ZINC_TRY(name, name_of(options.path));
  ModelOptions found = options;
  found.path = file.string();
  ZINC_TRY(model, open_model(found));
  const RecommendedSampling recommended = zinc::recommended_sampling(model.file()),
                            thinking = zinc::recommended_sampling(model.file(), true),
                            answering = zinc::recommended_sampling(model.file(), false);
  const int64_t trained_context = model.model().config.max_context;
  const std::string backend(model.backend_name());
  ZINC_TRY(engine, Engine::create(std::move(model), {.max_sequences = 1, .context = context, .queue_limit = 1}));
  auto thread = std::make_unique<EngineThread>(std::move(engine));
  ZINC_TRY(served, thread->describe(name));
  std::unique_ptr<ChatModel> chat(new ChatModel(std::move(thread), std::move(served)));
  chat->recommended_ = recommended;
  chat->recommended_thinking_ = thinking;
  chat->recommended_answering_ = answering;
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
  const auto sink = std::make_shared<BlockingSink>();
  ZINC_TRY(id, engine_->submit({.prompt = std::move(ready.prompts.front()),
                                .options = std::move(ready.options),
                                .boundaries = std::move(ready.boundaries),
                                .sink = sink}));
  MessageParser parser(*served_->tool_format, std::move(ready.parser));
  const auto show = [&](const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) hooks.delta(delta);
  };
  while (true) {
    SinkUpdate update = sink->wait();
    if (update.progress) hooks.progress(*update.progress);
    show(parser.push(update.text));
    if (update.outcome) {
      show(parser.finish());
      if (update.outcome->reason == StopReason::failed && update.outcome->error) return *update.outcome->error;
      return std::move(*update.outcome);
    }
    if (hooks.cancelled()) engine_->cancel(id);
  }
}

}  // namespace zinc
