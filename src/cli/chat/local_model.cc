#include "cli/chat/local_model.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "chat/chat_output.h"
#include "chat/engine_input.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "hub/resolve.h"
#include "hub/source.h"

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

Result<std::unique_ptr<LocalModel>> LocalModel::load(const ModelOptions& options, const std::filesystem::path& file,
                                                     EngineOptions engine_options) {
  ZINC_TRY(name, name_of(options.path));
  ModelOptions found = options;
  found.path = file.string();
  engine_options.max_sequences = 1;
  engine_options.queue_limit = 1;
  ZINC_TRY(engine, load_engine(found, std::move(engine_options)));
  print_placement(*engine);
  auto thread = std::make_unique<EngineThread>(std::move(engine));
  ZINC_TRY(chat, ChatModel::load(thread->engine(), name));
  std::unique_ptr<LocalModel> out(new LocalModel(std::move(thread), std::move(chat)));
  const GgufFile& gguf = out->instance().file();
  out->recommended_ = zinc::recommended_sampling(gguf);
  out->recommended_thinking_ = zinc::recommended_sampling(gguf, true);
  out->recommended_answering_ = zinc::recommended_sampling(gguf, false);
  return out;
}

int LocalModel::count_tokens(ChatRequest request) const {
  const OrRequestError<EngineInput> input = engine_input(chat_, request);
  if (std::holds_alternative<RequestError>(input)) return chat_.limits.context;
  return static_cast<int>(std::get<EngineInput>(input).requests.front().prompt.size());
}

Result<Outcome> LocalModel::answer(ChatRequest request, const ChatHooks& hooks) {
  OrRequestError<EngineInput> prepared = engine_input(chat_, request);
  if (const RequestError* error = std::get_if<RequestError>(&prepared)) return error->error;
  EngineInput& input = std::get<EngineInput>(prepared);
  const auto sink = std::make_shared<BlockingSink>();
  input.requests.front().sink = sink;
  ZINC_TRY(id, engine_->submit(std::move(input.requests.front())));
  ChatOutput output(chat_, request, input.parser);
  const auto show = [&](const std::vector<Delta>& deltas) {
    for (const Delta& delta : deltas) hooks.delta(delta);
  };
  while (true) {
    SinkUpdate update = sink->wait();
    if (update.progress) hooks.progress(*update.progress);
    if (hooks.tokens) hooks.tokens(update.tokens);
    show(output.push(update.text));
    if (update.outcome) {
      show(output.finish(*update.outcome));
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
