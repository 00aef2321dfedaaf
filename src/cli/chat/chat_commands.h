// What a line that begins with a slash does: one table, from which /help and completion come.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/chat_session.h"

namespace zinc {

enum class Next : uint8_t { go_on, quit };

struct ChatCommand {
  std::string_view name, arguments, help;
  Result<Next> (*run)(ChatSession& session, const std::string& rest);
};

std::span<const ChatCommand> chat_commands();
std::vector<std::string> chat_command_words();  // "/help", ...

// REQUIRES: `line` begins with a slash. An unknown command is an error that names the one probably meant.
Result<Next> run_chat_command(ChatSession& session, std::string_view line);

}  // namespace zinc
