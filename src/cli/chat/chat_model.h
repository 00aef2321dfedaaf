// A loaded model that answers one request at a time, on the server's engine and with the server's prompts: earlier
// turns come from the prefix cache. Called by one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/model_options.h"
#include "cli/thinking_options.h"
#include "hub/recommended_sampling.h"
#include "server/chat_request.h"
#include "server/engine_thread.h"
#include "text/message.h"

namespace zinc {

struct ChatHooks {
  std::function<void(const Delta&)> delta;
  std::function<void(std::span<const TokenId>)> tokens = {};  // generated, without an end token
  std::function<void(const PromptProgress&)> progress;
  std::function<bool()> cancelled;  // polled about twenty times a second
};

class ChatModel {
 public:
  // The model of `file`, named as typed. EngineOptions::context 0: the model's maximum, limited by memory.
  static Result<std::unique_ptr<ChatModel>> load(const ModelOptions& options, const std::filesystem::path& file,
                                                 EngineOptions engine);

  // Returns how the answer ended. A raw prompt is continued: all of the output is content. Errors before any
  // computation: context_exceeded if the prompt is too long, invalid_input if the chat template rejects it.
  Result<Outcome> answer(ChatRequest request, const ChatHooks& hooks);

  // Tokens of the prompt; the context length if the chat template rejects the conversation.
  int count_tokens(ChatRequest request) const;

  const std::string& name() const { return served_->name; }
  const EngineLimits& limits() const { return served_->limits; }
  // For thinking enabled, disabled, or the model's own mode.
  const RecommendedSampling& recommended_sampling(std::optional<bool> thinking) const {
    return !thinking ? recommended_ : *thinking ? recommended_thinking_ : recommended_answering_;
  }
  const ModelInstance& instance() const { return engine_->model(); }
  int64_t trained_context() const { return instance().model().config.max_context; }
  const ThinkingSupport& thinking() const { return served_->thinking; }
  bool takes_system() const { return served_->prompt.chat_template().supports_system(); }

 private:
  ChatModel(std::unique_ptr<EngineThread> engine, ServedModel served)
      : engine_(std::move(engine)), served_(std::make_shared<const ServedModel>(std::move(served))) {}
  std::unique_ptr<EngineThread> engine_;
  ModelRef served_;
  RecommendedSampling recommended_, recommended_thinking_, recommended_answering_;
};

void set_thinking(const ThinkingOptions& options, ChatRequest& request);

}  // namespace zinc
