// A chat: model, conversation and settings. Changed by commands (chat_commands.h) and questions; results go to the
// screen. Each change is kept in the conversation store, if there is one. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/chat/chat_screen.h"
#include "cli/chat/chat_settings.h"
#include "cli/chat/conversation_store.h"
#include "cli/chat/local_model.h"

namespace zinc {

class ChatSession {
 public:
  ChatSession(ChatOptions options, ChatScreen& screen) : options_(std::move(options)), screen_(screen) {}

  // Loads a model, downloading it if needed. The old model is unloaded first, as memory may not suffice for both; if
  // loading fails or is interrupted, the old model is reloaded.
  Status load_model(const std::string& name);

  // Keeps the conversation in `store` from its first message on. A folder that cannot be written costs one warning.
  void keep_in(ConversationStore store) { store_ = std::move(store); }
  // Continues a conversation of the store.
  void resume(OpenConversation opened, Conversation conversation);
  std::optional<int> kept_as() const;  // the number of the conversation in the store

  // Generates and shows the answer, and appends the turn. On error the question stays unanswered.
  Status ask(const std::string& question);
  Status retry();             // the unanswered question, else the last one
  std::string undo();         // removes the last question and returns it; empty: there is none
  Status leave_out_oldest();  // until half of the context is free; asks the unanswered question again
  enum class Overwrite : uint8_t { no, yes };
  // Without `overwrite`, replaces an existing file only if this chat saved or loaded it.
  Status save(const std::string& path, Overwrite overwrite);
  Status load(const std::string& path);
  void clear();            // the next message begins a new conversation
  void show_last_turns();  // of a loaded conversation

  void set_system(std::string text);
  const Conversation& conversation() const { return conversation_; }
  Status set(const std::string& name, const std::string& value);  // chat_settings.h
  std::string settings_text() const;
  std::string sampling_line() const;  // the sampling settings and their origin
  std::string stats_text() const;

  ChatScreen& screen() { return screen_; }
  bool has_model() const { return model_ != nullptr; }  // false: neither the new nor the old model could be loaded
  const LocalModel& model() const { return *model_; }   // REQUIRES: has_model()
  std::string model_reference() const;                  // what loads the same model from any folder
  bool shutdown_requested() const { return shutdown_requested_; }

 private:
  Status answer(const std::string& question);  // generates, shows and keeps the turn; nothing is kept before
  Status check_settings() const;
  Status set_model(const std::string& name, const std::filesystem::path& file);
  const RecommendedSampling& recommended_sampling() const {
    return model_->recommended_sampling(options_.thinking.mode.is_on);
  }
  int count_tokens(size_t n_left_out, std::string_view question) const;
  int context_used() const;
  void keep();
  void warn_of_ignored_thinking();
  void print_summary(const Outcome& outcome);
  Error context_full_error(std::string_view what) const;

  ChatOptions options_;
  ChatScreen& screen_;
  std::unique_ptr<LocalModel> model_;
  Conversation conversation_;
  std::optional<ConversationStore> store_;
  std::optional<OpenConversation> opened_;  // in the store, once there is a message
  std::optional<Outcome> last_;             // of the last turn
  std::filesystem::path file_;              // of the conversation
  SamplingParams last_sampling_;
  bool shutdown_requested_ = false;
};

}  // namespace zinc
