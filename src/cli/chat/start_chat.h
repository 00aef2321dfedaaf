// `zinc chat` for other commands: `zinc run MODEL` on a terminal opens the chat.
#pragma once

#include <string>

#include "cli/chat/chat_settings.h"

namespace zinc {

struct NewChat {
  ChatOptions options;
  std::string system = {};
  bool no_history = false;  // keeps neither the conversation nor the input history
};
Status start_chat(const NewChat& chat);

// --no-history
inline constexpr const char* kNoHistoryHelp = "keep neither this conversation nor the input history";

}  // namespace zinc
