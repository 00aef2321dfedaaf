// A chat: model, conversation and sampling settings. Changed by commands (chat_commands.h) and questions; results go to
// the screen. One thread.
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
#include "cli/thinking_options.h"

namespace zinc {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  int context = 0;
  int max_tokens = 0;  // per answer; 0: until the context is full
  ThinkingOptions thinking;
};

class ChatSession {
 public:
  ChatSession(ChatOptions options, ChatScreen& screen) : options_(std::move(options)), screen_(screen) {}

  // Loads a model, downloading it if needed. The old model is unloaded first, as memory may not suffice for both; if
  // loading fails or is interrupted, the old model is reloaded.
  Status load_model(const std::string& name);

  // Generates and shows the answer, and appends the turn. On error the conversation is unchanged.
  Status ask(const std::string& question);
  Status retry();
  bool undo();                           // false: no turns
  Status save(const std::string& path);  // replaces an existing file only if this chat saved or loaded it
  Status load(const std::string& path);
  void clear();

  void set_system(std::string text) { conversation_.system = std::move(text); }
  const Conversation& conversation() const { return conversation_; }
  // Sets a setting by name ("temp"). The error lists the settings.
  Status set(const std::string& name, const std::string& value);
  std::string settings_text() const;
  std::string sampling_line() const;  // the sampling settings and their origin
  std::string stats_text() const;

  ChatScreen& screen() { return screen_; }
  bool has_model() const { return model_ != nullptr; }  // false: neither the new nor the old model could be loaded
  const ChatModel& model() const { return *model_; }    // REQUIRES: has_model()
  bool shutdown_requested() const { return shutdown_requested_; }

 private:
  Status check_settings() const;
  Status set_model(const std::string& name, const std::filesystem::path& file);
  const RecommendedSampling& recommended_sampling() const {
    return model_->recommended_sampling(options_.thinking.mode.is_on);
  }
  int context_used() const;
  void print_summary(const Outcome& outcome);
  Error context_full_error(const Error& error) const;

  ChatOptions options_;
  ChatScreen& screen_;
  std::unique_ptr<ChatModel> model_;
  Conversation conversation_;
  std::optional<Outcome> last_;  // of the last turn
  std::filesystem::path file_;   // of the conversation
  SamplingParams last_sampling_;
  bool shutdown_requested_ = false;
};

}  // namespace zinc
