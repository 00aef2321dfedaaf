// Conversations that the chat page exported as JSON (web/src/transfer.ts), for /load. Pure functions.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace zinc {

bool is_page_export(const json::value& file);

// The visible branch of the only conversation in the file, as Conversation::read() accepts it. Attachments become part
// of their message. An error if there are several conversations or tool calls. REQUIRES: is_page_export(file)
Result<json::object> read_page_export(const json::value& file);

}  // namespace zinc
