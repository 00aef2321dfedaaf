#include "cli/chat/chat_commands.h"

#include <fmt/core.h>

#include <array>

#include "base/nearest_name.h"
#include "base/pluralize.h"
#include "cli/model_file.h"

namespace zinc {
namespace {

Result<ChatAction> proceed_if_ok(const Status& status) {
  if (!status.ok()) return status.error();
  return ChatAction::proceed;
}

Result<ChatAction> show_help(ChatSession& session, const std::string&) {
  std::string text;
  for (const ChatCommand& command : chat_commands()) {
    text += fmt::format("{:<22}{}\n", fmt::format("/{} {}", command.name, command.arguments), command.help);
  }
  text += "A line ending in \\ continues on the next. \"\"\" encloses a multi-line message.\n";
  text += "//text sends a message that begins with /. Ctrl-C stops an answer, Ctrl-D exits.";
  session.screen().print(text);
  return ChatAction::proceed;
}

void show_model(ChatSession& session) {
  session.screen().print(fmt::format("{} on {}, context {}", session.model().name(), session.model().backend(),
                                     session.model().limits().context));
}

Result<ChatAction> change_model(ChatSession& session, const std::string& name) {
  if (!name.empty()) {
    ZINC_TRY(path, local_model_file(name));
    if (!path) return fail(ErrorCode::not_found, "{0} is not installed; /pull {0} downloads it", name);
    ZINC_TRY(loaded, session.load_model(name));
  }
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

Result<ChatAction> change_setting(ChatSession& session, const std::string& rest) {
  if (rest.empty()) {
    session.screen().print(session.settings_text());
    return ChatAction::proceed;
  }
  const size_t blank = rest.find(' ');
  if (blank == std::string::npos) return fail(ErrorCode::invalid_input, "/set {} needs a value", rest);
  ZINC_TRY(set, session.set(rest.substr(0, blank), rest.substr(rest.find_first_not_of(' ', blank))));
  session.screen().print_status(fmt::format("{} set", rest.substr(0, blank)));
  return ChatAction::proceed;
}

Result<ChatAction> undo(ChatSession& session, const std::string&) {
  if (session.conversation().turns.empty()) return fail(ErrorCode::invalid_input, "nothing to undo");
  const std::string question = session.conversation().turns.back().question;
  session.undo();
  session.screen().print_status(fmt::format("undone: {}", question.substr(0, question.find('\n'))));
  return ChatAction::proceed;
}

Result<ChatAction> save(ChatSession& session, const std::string& path) {
  if (path.empty()) return fail(ErrorCode::invalid_input, "/save needs a file name");
  ZINC_TRY(saved, session.save(path));
  session.screen().print_status(
      fmt::format("{} saved to {}", pluralize(session.conversation().turns.size(), "turn"), path));
  return ChatAction::proceed;
}

Result<ChatAction> load(ChatSession& session, const std::string& path) {
  if (path.empty()) return fail(ErrorCode::invalid_input, "/load needs a file name");
  ZINC_TRY(loaded, session.load(path));
  session.screen().print_status(
      fmt::format("{} loaded from {}", pluralize(session.conversation().turns.size(), "turn"), path));
  return ChatAction::proceed;
}

constexpr std::array kCommands = {
    ChatCommand{"help", "", "show this help", show_help},
    ChatCommand{"model", "[NAME]", "show or change the model", change_model},
    ChatCommand{"pull", "NAME", "download a model and switch to it", pull_model},
    ChatCommand{"system", "[TEXT|none]", "show, set or remove the system message", change_system},
    ChatCommand{"set", "[NAME VALUE]", "show or change the sampling settings", change_setting},
    ChatCommand{"retry", "", "answer the last question again",
                [](ChatSession& session, const std::string&) { return proceed_if_ok(session.retry()); }},
    ChatCommand{"undo", "", "remove the last question and its answer", undo},
    ChatCommand{"save", "FILE", "write the conversation to a file", save},
    ChatCommand{"load", "FILE", "load a saved conversation", load},
    ChatCommand{"stats", "", "speed, memory and context use",
                [](ChatSession& session, const std::string&) -> Result<ChatAction> {
                  session.screen().print(session.stats_text());
                  return ChatAction::proceed;
                }},
    ChatCommand{"clear", "", "clear the conversation",
                [](ChatSession& session, const std::string&) -> Result<ChatAction> {
                  session.clear();
                  session.screen().print_status("conversation cleared");
                  return ChatAction::proceed;
                }},
    ChatCommand{"quit", "", "exit (also Ctrl-D)",
                [](ChatSession&, const std::string&) -> Result<ChatAction> { return ChatAction::quit; }},
};

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

}  // namespace

std::span<const ChatCommand> chat_commands() { return kCommands; }

std::vector<std::string> chat_command_words() {
  std::vector<std::string> words;
  for (const ChatCommand& command : kCommands) words.push_back("/" + std::string(command.name));
  return words;
}

Result<ChatAction> run_chat_command(ChatSession& session, std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(1, end - 1);
  for (const ChatCommand& command : kCommands) {
    if (command.name == name) return command.run(session, trimmed(line.substr(end)));
  }
  const std::string typed(line.substr(0, end));
  const std::optional<std::string> suggestion = nearest_name(typed, chat_command_words());
  return fail(ErrorCode::invalid_input, "unknown command {}; {}/help lists all commands", typed,
              suggestion ? fmt::format("did you mean {}? ", *suggestion) : "");
}

}  // namespace zinc
