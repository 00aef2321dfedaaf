// A loaded model that answers one conversation at a time, on the engine the server uses: what of a conversation was
// said before is not computed again. One thread calls it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  // The model of `file`, which is called what was typed. `context` 0: as many positions as the model was trained for
  // and memory holds.
  static Result<std::unique_ptr<ChatModel>> load(const ModelOptions& options, const std::filesystem::path& file,
                                                 int context);

  // How the answer ended. Before anything is computed: context_exceeded where the conversation is too long,
  // invalid_input where the model's template refuses it.
  Result<Outcome> answer(ChatRequest request, const ChatHooks& hooks);

  // Of the prompt that these messages make; as many as the context has where they are too long for it.
  int count_tokens(ChatRequest request) const;

  const std::string& name() const { return served_->name; }
  const EngineLimits& limits() const { return served_->limits; }
  // For a model that is told to think, told not to, or not told.
  const SamplingAdvice& advice(std::optional<bool> thinking) const {
    return !thinking ? advice_ : *thinking ? thinking_advice_ : answering_advice_;
  }
  int trained_context() const { return trained_context_; }
  std::string_view backend() const { return backend_; }
  bool takes_system() const { return served_->prompt.chat_template().supports_system(); }

 private:
  ChatModel(std::unique_ptr<EngineThread> engine, ServedModel served)
      : engine_(std::move(engine)), served_(std::make_shared<const ServedModel>(std::move(served))) {}
  std::unique_ptr<EngineThread> engine_;
  ModelRef served_;
  SamplingAdvice advice_, thinking_advice_, answering_advice_;
  int trained_context_ = 0;
  std::string backend_;
};

}  // namespace zinc
