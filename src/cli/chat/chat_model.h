// A loaded model that answers one conversation at a time, on the engine the server uses: what of a conversation was
// said before is not computed again. One thread calls it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/model_options.h"
#include "hub/sampling_advice.h"
#include "server/chat_request.h"
#include "server/engine_thread.h"
#include "text/message.h"

namespace zinc {

struct ChatHooks {
  std::function<void(const Delta&)> delta;
  std::function<void(const PromptProgress&)> progress;
  std::function<bool()> cancelled;  // asked some twenty times a second
};

class ChatModel {
 public:
  // `context` 0: as many positions as the model was trained for and memory holds.
  static Result<std::unique_ptr<ChatModel>> load(const ModelOptions& options, int context);

  // How the answer ended. Before anything is computed: context_exceeded where the conversation is too long,
  // invalid_input where the model's template refuses it.
  Result<Outcome> answer(ChatRequest request, const ChatHooks& hooks);

  const std::string& name() const { return served_->name; }
  const EngineLimits& limits() const { return served_->limits; }
  const SamplingAdvice& advice() const { return advice_; }
  int trained_context() const { return trained_context_; }
  std::string_view backend() const { return backend_; }
  bool takes_system() const { return served_->prompt.chat_template().supports_system(); }

 private:
  ChatModel(std::unique_ptr<EngineThread> engine, ServedModel served)
      : engine_(std::move(engine)), served_(std::make_shared<const ServedModel>(std::move(served))) {}
  std::unique_ptr<EngineThread> engine_;
  ModelRef served_;
  SamplingAdvice advice_;
  int trained_context_ = 0;
  std::string backend_;
};

}  // namespace zinc
