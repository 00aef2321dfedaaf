// Fields that several routes of Ollama's API share: the model's name, options, keep_alive, and its time format.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "chat/chat_request.h"
#include "server/fields.h"
#include "server/limits.h"

namespace zinc {

// `model`, or its older name `name`; without the tag ":latest".
std::string read_ollama_model(const FieldReader& fields);
// Sampling, stop strings and limits in `options`; options without a counterpart are unknown fields.
void read_ollama_options(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out);
// Seconds, or a duration such as "1h30m"; negative: never unload. nullopt: not given.
std::optional<KeepAliveTime> read_keep_alive(const FieldReader& fields);

std::string ollama_time(std::chrono::system_clock::time_point time);  // "2026-01-02T03:04:05.678901Z"

}  // namespace zinc
