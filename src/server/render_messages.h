// Renders conversations that a chat template refuses as they are, or that exceed the context, by changing them as
// little as possible. Each change is noted for the log line. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "server/prepare.h"

namespace zinc {

// Renders the conversation as it is. If the template refuses it: with its system messages joined at the head, then with
// neighboring messages of one role joined, then with the system message at the start of the first user message. The
// error is that of the first attempt.
Result<RenderedPrompt> render_adapted(const ChatPrompt& prompt, ChatTemplateInputs inputs,
                                      std::vector<std::string>& notes);

// Renders the conversation without its oldest turns, as many as the context requires; system messages at the head stay.
OrApiError<RenderedPrompt> render_newest(const ServedModel& model, ChatRequest& request);

}  // namespace zinc
