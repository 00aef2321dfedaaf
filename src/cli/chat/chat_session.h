// A chat: a model, what was said, and how answers are drawn. Commands (chat_commands.h) and questions change it; the
// screen shows what comes of it. One thread.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/chat/chat_model.h"
#include "cli/chat/chat_screen.h"
#include "cli/chat/conversation.h"
#include "cli/sampling_options.h"

namespace zinc {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  int context = 0;
  int max_tokens = 0;            // of an answer; 0: until the context is full
  std::optional<bool> thinking;  // unset: what the model does by itself
};

class ChatSession {
 public:
  ChatSession(ChatOptions options, ChatScreen& screen) : options_(std::move(options)), screen_(screen) {}

  // The model of the options, or another one. Where it fails the old one stays.
  Status load_model(const std::string& name);

  // Asks, shows the answer and keeps both. An error: nothing was kept, and the message says what to do.
  Status ask(const std::string& question);
  Status retry();
  bool undo();  // false: nothing was said
  Status save(const std::string& path) const;
  Status load(const std::string& path);
  void clear() { conversation_.turns.clear(); }

  void set_system(std::string text) { conversation_.system = std::move(text); }
  const Conversation& conversation() const { return conversation_; }
  // A setting by its name ("temp"), from text. The error lists what there is.
  Status set(const std::string& name, const std::string& value);
  std::string settings_text() const;
  std::string stats_text() const;

  ChatScreen& screen() { return screen_; }
  const ChatModel& model() const { return *model_; }  // REQUIRES: load_model was ok
  bool was_told_to_end() const { return was_told_to_end_; }

 private:
  Status check_settings() const;
  void remark(const Outcome& outcome);
  Error too_long(const Error& error) const;

  ChatOptions options_;
  ChatScreen& screen_;
  std::unique_ptr<ChatModel> model_;
  Conversation conversation_;
  std::optional<Outcome> last_;  // how the last answer ended
  SamplingParams last_sampling_;
  bool was_told_to_end_ = false;
};

}  // namespace zinc
