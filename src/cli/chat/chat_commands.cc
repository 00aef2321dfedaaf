#include "cli/chat/chat_commands.h"

#include <fmt/core.h>

#include <array>

#include "base/nearest_name.h"
#include "base/pluralize.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/model_memory.h"
#include "hub/inventory.h"

namespace zinc {
namespace {

constexpr int kHelpColumn = 22;

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

Result<ChatAction> proceed_if_ok(const Status& status) {
  if (!status.ok()) return status.error();
  return ChatAction::proceed;
}

Result<ChatAction> show_help(ChatSession& session, const std::string&) {
  std::string text;
  for (const ChatCommand& command : chat_commands()) {
    text +=
        fmt::format("{:<{}}{}\n", fmt::format("/{} {}", command.name, command.arguments), kHelpColumn, command.help);
  }
  if (text.ends_with('\n')) text.pop_back();
  session.screen().print(text, kHelpColumn);
  session.screen().print(
      "Tab completes commands, models, files and settings. /bye, /exit and /q are /quit.\n"
      "A line ending in \\ continues on the next. \"\"\" encloses a multi-line message.\n"
      "//text sends a message that begins with /. Ctrl-C stops an answer, Ctrl-D exits.");
  return ChatAction::proceed;
}

void show_model(ChatSession& session) {
  session.screen().print(fmt::format("{} on {}, context {}", session.model().name(),
                                     session.model().instance().backend_name(), session.model().limits().context));
}

// The installed models; the current one is marked.
void list_installed_models(ChatSession& session) {
  const Result<HubSettings> settings = hub_settings();
  const Result<std::optional<std::filesystem::path>> current = local_model_file(session.model_reference());
  if (!settings.ok()) return;
  std::string text;
  for (const ModelEntry& entry : list_models(settings.value(), host_memory())) {
    if (entry.path.empty()) continue;
    std::error_code missing;
    const bool is_current =
        current.ok() && current.value() && std::filesystem::equivalent(entry.path, *current.value(), missing);
    text += fmt::format("\n{} {:<40} {:>9}", is_current ? '*' : ' ', entry.id, human_bytes(entry.n_bytes));
  }
  if (!text.empty()) session.screen().print("Installed models, * in use; /model NAME changes to another:" + text);
}

Result<ChatAction> change_model(ChatSession& session, const std::string& name) {
  if (name.empty()) {
    show_model(session);
    list_installed_models(session);
    return ChatAction::proceed;
  }
  ZINC_TRY(path, local_model_file(name));
  if (!path) return fail(ErrorCode::not_found, "{0} is not installed; /pull {0} downloads it", name);
  ZINC_TRY(loaded, session.load_model(name));
  show_model(session);
  return ChatAction::proceed;
}

Result<ChatAction> pull_model(ChatSession& session, const std::string& name) {
  if (name.empty()) return fail(ErrorCode::invalid_input, "/pull needs a model name");
  ZINC_TRY(loaded, session.load_model(name));
  show_model(session);
  return ChatAction::proceed;
}

Result<ChatAction> change_system(ChatSession& session, const std::string& text) {
  if (text.empty()) {
    const std::string& system = session.conversation().system;
    session.screen().print(system.empty() ? "no system message; /system TEXT sets one" : system);
    return ChatAction::proceed;
  }
  if (text != "none" && !session.model().takes_system()) {
    return fail(ErrorCode::unsupported, "the chat template of {} does not support a system message",
                session.model().name());
  }
  session.set_system(text == "none" ? "" : text);
  session.screen().print_status(text == "none" ? "system message removed" : "system message set");
  return ChatAction::proceed;
}

// Ollama's words for the same: "/set parameter temperature 1", "/set nothink".
std::string without_ollama_words(const std::string& rest) {
  constexpr std::string_view kParameter = "parameter ";
  if (rest == "think") return "think on";
  if (rest == "nothink") return "think off";
  return rest.starts_with(kParameter) ? trimmed(rest.substr(kParameter.size())) : rest;
}

Result<ChatAction> change_setting(ChatSession& session, const std::string& typed) {
  constexpr std::string_view kSystem = "system ";
  if (typed.starts_with(kSystem)) return change_system(session, trimmed(typed.substr(kSystem.size())));
  const std::string rest = without_ollama_words(typed);
  if (rest.empty()) {
    session.screen().print(session.settings_text());
    return ChatAction::proceed;
  }
  const size_t blank = rest.find(' ');
  if (blank == std::string::npos) return fail(ErrorCode::invalid_input, "/set {} needs a value", rest);
  const std::string name = rest.substr(0, blank), value = rest.substr(rest.find_first_not_of(' ', blank));
  ZINC_TRY(set, session.set(name, value));
  session.screen().print_status(fmt::format("{} set to {}", name, value));
  return ChatAction::proceed;
}

Result<ChatAction> undo(ChatSession& session, const std::string&) {
  const std::string question = session.undo();
  if (question.empty()) return fail(ErrorCode::invalid_input, "nothing to undo");
  session.screen().print_status(fmt::format("undone: {}", question.substr(0, question.find('\n'))));
  return ChatAction::proceed;
}

Result<ChatAction> save_to(ChatSession& session, const std::string& path, ChatSession::Overwrite overwrite) {
  if (path.empty()) return fail(ErrorCode::invalid_input, "/save needs a file name");
  ZINC_TRY(saved, session.save(path, overwrite));
  session.screen().print_status(
      fmt::format("{} saved to {}", pluralize(session.conversation().turns.size(), "turn"), path));
  return ChatAction::proceed;
}

Result<ChatAction> save(ChatSession& session, const std::string& path) {
  return save_to(session, path, ChatSession::Overwrite::no);
}
Result<ChatAction> replace(ChatSession& session, const std::string& path) {
  return save_to(session, path, ChatSession::Overwrite::yes);
}

Result<ChatAction> load(ChatSession& session, const std::string& path) {
  if (path.empty()) return fail(ErrorCode::invalid_input, "/load needs a file name");
  ZINC_TRY(loaded, session.load(path));
  session.show_last_turns();
  session.screen().print_status(
      fmt::format("{} loaded from {}", pluralize(session.conversation().turns.size(), "turn"), path));
  return ChatAction::proceed;
}

Result<ChatAction> clear(ChatSession& session, const std::string&) {
  const std::optional<int> id = session.kept_as();
  session.clear();
  session.screen().print_status(
      id ? fmt::format("conversation cleared; `zinc chat --continue {}` takes up the old one", *id)
         : "conversation cleared");
  return ChatAction::proceed;
}

Result<ChatAction> list_conversations(ChatSession& session, const std::string&) {
  ZINC_TRY(folder, conversation_folder());
  std::string table = conversation_table(ConversationStore(folder).list(), session.screen().width());
  table += "`zinc chat --continue ID` continues one, `zinc chat --delete ID` deletes it.";
  session.screen().print(table);
  return ChatAction::proceed;
}

Result<ChatAction> show_stats(ChatSession& session, const std::string&) {
  constexpr int kValueColumn = 16;
  session.screen().print(session.stats_text(), kValueColumn);
  return ChatAction::proceed;
}

constexpr std::array kCommands = {
    ChatCommand{"help", "", "show this help", ChatArgument::none, show_help},
    ChatCommand{"model", "[NAME]", "list the installed models, or change to one", ChatArgument::installed_model,
                change_model},
    ChatCommand{"pull", "NAME", "download a model and switch to it", ChatArgument::any_model, pull_model},
    ChatCommand{"system", "[TEXT|none]", "show, set or remove the system message", ChatArgument::text, change_system},
    ChatCommand{"set", "[NAME VALUE]", "show or change sampling, lengths and thinking", ChatArgument::setting,
                change_setting},
    ChatCommand{"retry", "", "answer the last question again", ChatArgument::none,
                [](ChatSession& session, const std::string&) { return proceed_if_ok(session.retry()); }},
    ChatCommand{"undo", "", "remove the last question and its answer", ChatArgument::none, undo},
    ChatCommand{"drop", "", "leave the oldest messages out of the prompt", ChatArgument::none,
                [](ChatSession& session, const std::string&) { return proceed_if_ok(session.leave_out_oldest()); }},
    ChatCommand{"save", "FILE", "write the conversation to a file", ChatArgument::file, save},
    ChatCommand{"save!", "FILE", "the same, replacing an existing file", ChatArgument::file, replace},
    ChatCommand{"load", "FILE", "load a saved conversation, or one of the chat page", ChatArgument::file, load},
    ChatCommand{"conversations", "", "list the kept conversations", ChatArgument::none, list_conversations},
    ChatCommand{"stats", "", "speed, memory and context use", ChatArgument::none, show_stats},
    ChatCommand{"clear", "", "begin a new conversation; system message and settings stay", ChatArgument::none, clear},
    ChatCommand{"quit", "", "exit (also Ctrl-D)", ChatArgument::none,
                [](ChatSession&, const std::string&) -> Result<ChatAction> { return ChatAction::quit; }},
};

struct CommandAlias {
  std::string_view typed, name;
};
constexpr CommandAlias kAliases[] = {{"bye", "quit"}, {"exit", "quit"},   {"q", "quit"},
                                     {"?", "help"},   {"regen", "retry"}, {"show", "stats"}};

}  // namespace

std::span<const ChatCommand> chat_commands() { return kCommands; }

std::vector<std::string> chat_command_words() {
  std::vector<std::string> words;
  for (const ChatCommand& command : kCommands) words.push_back("/" + std::string(command.name));
  return words;
}

std::vector<std::string> chat_command_aliases() {
  std::vector<std::string> words;
  for (const CommandAlias& alias : kAliases) words.push_back("/" + std::string(alias.typed));
  return words;
}

const ChatCommand* find_chat_command(std::string_view word) {
  std::string_view name = word.substr(std::min<size_t>(word.size(), 1));
  for (const CommandAlias& alias : kAliases) {
    if (alias.typed == name) name = alias.name;
  }
  for (const ChatCommand& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

Result<ChatAction> run_chat_command(ChatSession& session, std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string typed(line.substr(0, end));
  if (const ChatCommand* const command = find_chat_command(typed))
    return command->run(session, trimmed(line.substr(end)));
  const std::optional<std::string> suggestion = nearest_name(typed, chat_command_words());
  return fail(ErrorCode::invalid_input, "unknown command {}; {}/help lists all commands", typed,
              suggestion ? fmt::format("did you mean {}? ", *suggestion) : "");
}

}  // namespace zinc
