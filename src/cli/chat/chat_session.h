// A chat: a model, what was said, and how answers are drawn. Commands (chat_commands.h) and questions change it; the
// screen shows what comes of it. One thread.
#pragma once

#include <filesystem>
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

  // The model of the options, or another one, fetched where it is not here. The old one goes first, as there may not be
  // memory for both; where the new one fails or Ctrl-C stops it, the old one comes back.
  Status load_model(const std::string& name);

  // Asks, shows the answer and keeps both. An error: nothing was kept, and the message says what to do.
  Status ask(const std::string& question);
  Status retry();
  bool undo();                           // false: nothing was said
  Status save(const std::string& path);  // a file that is there is only replaced if this chat saved or loaded it
  Status load(const std::string& path);
  void clear();

  void set_system(std::string text) { conversation_.system = std::move(text); }
  const Conversation& conversation() const { return conversation_; }
  // A setting by its name ("temp"), from text. The error lists what there is.
  Status set(const std::string& name, const std::string& value);
  std::string settings_text() const;
  std::string sampling_line() const;  // how answers are drawn, and who says so
  std::string stats_text() const;

  ChatScreen& screen() { return screen_; }
  bool has_model() const { return model_ != nullptr; }  // false: neither the new nor the old one could be loaded
  const ChatModel& model() const { return *model_; }    // REQUIRES: has_model()
  bool was_told_to_end() const { return was_told_to_end_; }

 private:
  Status check_settings() const;
  Status put_model(const std::string& name, const std::filesystem::path& file);
  const SamplingAdvice& advice() const { return model_->advice(options_.thinking); }
  int context_used() const;
  void remark(const Outcome& outcome);
  Error too_long(const Error& error) const;

  ChatOptions options_;
  ChatScreen& screen_;
  std::unique_ptr<ChatModel> model_;
  Conversation conversation_;
  std::optional<Outcome> last_;  // how the answer of the last turn ended
  std::filesystem::path file_;   // of the conversation
  SamplingParams last_sampling_;
  bool was_told_to_end_ = false;
};

}  // namespace zinc
