// What `zinc serve` prints for a person at a terminal: the greeting, one readable line per request, and the notice of a
// shutdown. Without a terminal, requests are logged as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace zinc {

enum class LogFormat : uint8_t { text, json };

// "" is text if standard error is a terminal, else JSON. REQUIRES: "", "text" or "json".
LogFormat choose_log_format(std::string_view name);

// The addresses of the page and the API, and how to stop. `models`: the names served; none: to be chosen on the page.
std::string greeting(std::string_view url, const std::vector<std::string>& models);

// "14:05:09 POST /v1/chat/completions 200 in 1.2 s: smollm2-135m-instruct, 31 prompt + 128 tokens, end_token".
// `clock`: the time of day.
std::string request_line(const json::object& entry, std::string_view clock);
// Whether a person wants that line. The chat page asks for its files, its state and the length of the prompt every few
// seconds; only their errors are shown.
bool is_shown_on_terminal(const json::object& entry);
std::string clock_text();  // now, local: "14:05:09"

struct DrainSeconds {
  int delay = 0;  // in which requests are still accepted
  int drain = 0;  // for running ones to finish
};
// "finishing 2 answers, 30 s at most; Ctrl-C again ends now".
std::string drain_notice(size_t n_answers, DrainSeconds seconds);

}  // namespace zinc
