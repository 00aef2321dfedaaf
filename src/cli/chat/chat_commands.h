// The slash commands of a chat: one table, also used for /help and completion.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/chat_session.h"

namespace zinc {

enum class ChatAction : uint8_t { proceed, quit };
enum class ChatArgument : uint8_t { none, text, installed_model, any_model, file, setting };

struct ChatCommand {
  std::string_view name, arguments, help;
  ChatArgument argument;  // for completion
  Result<ChatAction> (*run)(ChatSession& session, const std::string& rest);
};

std::span<const ChatCommand> chat_commands();
std::vector<std::string> chat_command_words();                // "/help", ...
std::vector<std::string> chat_command_aliases();              // "/bye", ...
const ChatCommand* find_chat_command(std::string_view word);  // "/help" or an alias; nullptr: unknown

// REQUIRES: `line` begins with a slash. An unknown command is an error that suggests the nearest one.
Result<ChatAction> run_chat_command(ChatSession& session, std::string_view line);

}  // namespace zinc
