// A model loaded by this process, which answers one request at a time as the server does (chat/): earlier turns come
// from the prefix cache. Called by one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "chat/chat_model.h"
#include "chat/chat_request.h"
#include "cli/model_options.h"
#include "cli/thinking_options.h"
#include "engine/engine_thread.h"
#include "hub/recommended_sampling.h"
#include "text/message.h"

namespace zinc {

struct ChatHooks {
  std::function<void(const Delta&)> delta;
  std::function<void(std::span<const TokenId>)> tokens = {};  // generated, without an end token
  std::function<void(const PromptProgress&)> progress;
  std::function<bool()> cancelled;  // polled about twenty times a second
};

class LocalModel {
 public:
  // The model of `file`, named as typed. EngineOptions::context 0: the model's maximum, limited by memory.
  static Result<std::unique_ptr<LocalModel>> load(const ModelOptions& options, const std::filesystem::path& file,
                                                  EngineOptions engine);

  // Returns how the answer ended. A raw prompt is continued: all of the output is content. Errors before any
  // computation: context_exceeded if the prompt is too long, invalid_input if the chat template rejects it.
  Result<Outcome> answer(ChatRequest request, const ChatHooks& hooks);

  // Tokens of the prompt; the context length if the chat template rejects the conversation.
  int count_tokens(ChatRequest request) const;

  const std::string& name() const { return chat_.name; }
  const EngineLimits& limits() const { return chat_.limits; }
  // For thinking enabled, disabled, or the model's own mode.
  const RecommendedSampling& recommended_sampling(std::optional<bool> thinking) const {
    return !thinking ? recommended_ : *thinking ? recommended_thinking_ : recommended_answering_;
  }
  const ModelInstance& instance() const { return engine_->model(); }
  EngineStats stats() const { return engine_->stats(); }
  int64_t trained_context() const { return instance().model().config.max_context; }
  const ThinkingSupport& thinking() const { return chat_.thinking; }
  bool takes_system() const { return chat_.prompt.chat_template().supports_system(); }

 private:
  LocalModel(std::unique_ptr<EngineThread> engine, ChatModel chat)
      : engine_(std::move(engine)), chat_(std::move(chat)) {}
  std::unique_ptr<EngineThread> engine_;
  ChatModel chat_;
  RecommendedSampling recommended_, recommended_thinking_, recommended_answering_;
};

void set_thinking(const ThinkingOptions& options, ChatRequest& request);

}  // namespace zinc
