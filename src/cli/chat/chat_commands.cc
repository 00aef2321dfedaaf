#include "cli/chat/chat_commands.h"

#include <fmt/core.h>

#include <array>

#include "cli/model_file.h"
#include "hub/nearest_name.h"

namespace zinc {
namespace {

Result<Next> go_on_if(const Status& status) {
  if (!status.ok()) return status.error();
  return Next::go_on;
}

Result<Next> show_help(ChatSession& session, const std::string&) {
  std::string text;
  for (const ChatCommand& command : chat_commands()) {
    text += fmt::format("{:<22}{}\n", fmt::format("/{} {}", command.name, command.arguments), command.help);
  }
  text += "A line that ends with \\ goes on in the next. \"\"\" begins and ends a text of several\n";
  text += "lines. //text sends what begins with a slash. Ctrl-C stops an answer, Ctrl-D quits.";
  session.screen().say(text);
  return Next::go_on;
}

void show_model(ChatSession& session) {
  session.screen().say(fmt::format("{} on {}, context {}", session.model().name(), session.model().backend(),
                                   session.model().limits().context));
}

Result<Next> change_model(ChatSession& session, const std::string& name) {
  if (!name.empty()) {
    ZINC_TRY(here, model_file_here(name));
    if (!here) return fail(ErrorCode::not_found, "{0} is not on this machine; /pull {0} fetches it", name);
    ZINC_TRY(loaded, session.load_model(name));
  }
  show_model(session);
  return Next::go_on;
}

Result<Next> pull_model(ChatSession& session, const std::string& name) {
  if (name.empty()) return fail(ErrorCode::invalid_input, "/pull needs the name of a model");
  ZINC_TRY(loaded, session.load_model(name));
  show_model(session);
  return Next::go_on;
}

Result<Next> change_system(ChatSession& session, const std::string& text) {
  if (text.empty()) {
    const std::string& system = session.conversation().system;
    session.screen().say(system.empty() ? "no system message; /system TEXT sets one" : system);
    return Next::go_on;
  }
  if (text != "none" && !session.model().takes_system()) {
    return fail(ErrorCode::unsupported, "the chat template of {} has no place for a system message",
                session.model().name());
  }
  session.set_system(text == "none" ? "" : text);
  session.screen().whisper(text == "none" ? "no system message any more" : "system message set");
  return Next::go_on;
}

Result<Next> change_setting(ChatSession& session, const std::string& rest) {
  if (rest.empty()) {
    session.screen().say(session.settings_text());
    return Next::go_on;
  }
  const size_t blank = rest.find(' ');
  if (blank == std::string::npos) return fail(ErrorCode::invalid_input, "/set {} needs a value", rest);
  ZINC_TRY(set, session.set(rest.substr(0, blank), rest.substr(rest.find_first_not_of(' ', blank))));
  session.screen().whisper(fmt::format("{} set", rest.substr(0, blank)));
  return Next::go_on;
}

Result<Next> undo(ChatSession& session, const std::string&) {
  if (session.conversation().turns.empty()) return fail(ErrorCode::invalid_input, "there is nothing to undo");
  const std::string question = session.conversation().turns.back().question;
  session.undo();
  session.screen().whisper(fmt::format("taken back: {}", question.substr(0, question.find('\n'))));
  return Next::go_on;
}

Result<Next> save(ChatSession& session, const std::string& path) {
  if (path.empty()) return fail(ErrorCode::invalid_input, "/save needs the name of a file");
  ZINC_TRY(saved, session.save(path));
  session.screen().whisper(fmt::format("{} turns saved to {}", session.conversation().turns.size(), path));
  return Next::go_on;
}

Result<Next> load(ChatSession& session, const std::string& path) {
  if (path.empty()) return fail(ErrorCode::invalid_input, "/load needs the name of a file");
  ZINC_TRY(loaded, session.load(path));
  session.screen().whisper(fmt::format("{} turns loaded from {}", session.conversation().turns.size(), path));
  return Next::go_on;
}

constexpr std::array kCommands = {
    ChatCommand{"help", "", "show this", show_help},
    ChatCommand{"model", "[NAME]", "show the model, or go on with another one", change_model},
    ChatCommand{"pull", "NAME", "fetch a model, and go on with it", pull_model},
    ChatCommand{"system", "[TEXT|none]", "show, set or drop the system message", change_system},
    ChatCommand{"set", "[NAME VALUE]", "show or change how answers are drawn", change_setting},
    ChatCommand{"retry", "", "another answer to the last question",
                [](ChatSession& session, const std::string&) { return go_on_if(session.retry()); }},
    ChatCommand{"undo", "", "take back the last question and its answer", undo},
    ChatCommand{"save", "FILE", "write the conversation to a file", save},
    ChatCommand{"load", "FILE", "go on with a conversation that was saved", load},
    ChatCommand{"stats", "", "speed, memory and use of the context",
                [](ChatSession& session, const std::string&) -> Result<Next> {
                  session.screen().say(session.stats_text());
                  return Next::go_on;
                }},
    ChatCommand{"clear", "", "forget all turns",
                [](ChatSession& session, const std::string&) -> Result<Next> {
                  session.clear();
                  session.screen().whisper("all turns forgotten");
                  return Next::go_on;
                }},
    ChatCommand{"quit", "", "leave (also Ctrl-D)",
                [](ChatSession&, const std::string&) -> Result<Next> { return Next::quit; }},
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

Result<Next> run_chat_command(ChatSession& session, std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(1, end - 1);
  for (const ChatCommand& command : kCommands) {
    if (command.name == name) return command.run(session, trimmed(line.substr(end)));
  }
  const std::string typed(line.substr(0, end));
  const std::optional<std::string> meant = nearest_name(typed, chat_command_words());
  return fail(ErrorCode::invalid_input, "{} is no command{}; /help lists them", typed,
              meant ? fmt::format(", did you mean {}?", *meant) : "");
}

}  // namespace zinc
