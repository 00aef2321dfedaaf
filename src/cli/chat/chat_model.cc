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
  std::vector<TokenId> tokens;
  std::optional<PromptProgress> progress;
  std::optional<Outcome> outcome;
};

// Passes updates from the engine thread to the thread that waits for them.
class BlockingSink final : public RequestSink {
 public:
  void progress(const PromptProgress& progress) override {
    apply([&] { update_.progress = progress; });
  }
  void tokens(std::string_view text, std::span<const OutputToken> tokens) override {
    apply([&] {
      update_.text += text;
      for (const OutputToken& token : tokens) update_.tokens.push_back(token.id);
    });
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

Result<std::string> name_of(const std::string& typed) {
  const bool is_path = typed.ends_with(".gguf") && !has_source_prefix(typed);
  if (!typed.empty()) return is_path ? std::filesystem::path(typed).stem().string() : typed;
  ZINC_TRY(settings, hub_settings());
  return default_model_name(settings);
}

}  // namespace

Result<std::unique_ptr<ChatModel>> ChatModel::load(const ModelOptions& options, const std::filesystem::path& file,
                                                   EngineOptions engine_options) {
  ZINC_TRY(name, name_of(options.path));
  ModelOptions found = options;
  found.path = file.string();
  engine_options.max_sequences = 1;
  engine_options.queue_limit = 1;
  ZINC_TRY(engine, load_engine(found, std::move(engine_options)));
  auto thread = std::make_unique<EngineThread>(std::move(engine));
  ZINC_TRY(served, thread->describe(name));
  std::unique_ptr<ChatModel> chat(new ChatModel(std::move(thread), std::move(served)));
  const GgufFile& gguf = chat->instance().file();
  chat->recommended_ = zinc::recommended_sampling(gguf);
  chat->recommended_thinking_ = zinc::recommended_sampling(gguf, true);
  chat->recommended_answering_ = zinc::recommended_sampling(gguf, false);
  return chat;
}

int ChatModel::count_tokens(ChatRequest request) const {
  const OrApiError<PreparedRequest> prepared = prepare(served_, std::move(request));
  if (std::holds_alternative<ApiError>(prepared)) return served_->limits.context;
  return static_cast<int>(std::get<PreparedRequest>(prepared).prompts.front().size());
}

Result<Outcome> ChatModel::answer(ChatRequest request, const ChatHooks& hooks) {
  OrApiError<PreparedRequest> prepared = prepare(served_, std::move(request));
  if (const ApiError* error = std::get_if<ApiError>(&prepared))
    return fail(ErrorCode::invalid_input, "{}", error->message);
  PreparedRequest& ready = std::get<PreparedRequest>(prepared);
  const auto sink = std::make_shared<BlockingSink>();
  ZINC_TRY(id, engine_->submit({.prompt = std::move(ready.prompts.front()),
                                .options = std::move(ready.options),
                                .boundaries = std::move(ready.boundaries),
                                .sink = sink}));
  std::optional<MessageParser> parser;  // none for a raw prompt
  if (ready.request.is_chat()) parser.emplace(*served_->tool_format, std::move(ready.parser));
  const auto show = [&](const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) hooks.delta(delta);
  };
  while (true) {
    SinkUpdate update = sink->wait();
    if (update.progress) hooks.progress(*update.progress);
    if (hooks.tokens) hooks.tokens(update.tokens);
    if (parser) {
      show(parser->push(update.text));
    } else if (!update.text.empty()) {
      hooks.delta(ContentDelta{std::move(update.text)});
    }
    if (update.outcome) {
      if (parser) show(parser->finish());
      if (update.outcome->reason == StopReason::failed && update.outcome->error) return *update.outcome->error;
      return std::move(*update.outcome);
    }
    if (hooks.cancelled()) engine_->cancel(id);
  }
}

void set_thinking(const ThinkingOptions& options, ChatRequest& request) {
  request.thinking = options.mode.is_on;
  request.reasoning_effort = options.mode.effort;
  request.thinking_budget = options.budget;
}

}  // namespace zinc
