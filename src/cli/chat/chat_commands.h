// The slash commands of a chat: one table, also used for /help and completion.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/chat_session.h"

namespace zinc {

enum class ChatAction : uint8_t { proceed, quit };

struct ChatCommand {
  std::string_view name, arguments, help;
  Result<ChatAction> (*run)(ChatSession& session, const std::string& rest);
};

std::span<const ChatCommand> chat_commands();
std::vector<std::string> chat_command_words();  // "/help", ...

// REQUIRES: `line` begins with a slash. An unknown command is an error that suggests the nearest one.
Result<ChatAction> run_chat_command(ChatSession& session, std::string_view line);

}  // namespace zinc
