// `zinc chat` for other commands: `zinc run MODEL` on a terminal opens the chat.
#pragma once

#include <string>

#include "cli/chat/chat_session.h"

namespace zinc {

Status start_chat(const ChatOptions& options, const std::string& system);

}  // namespace zinc
