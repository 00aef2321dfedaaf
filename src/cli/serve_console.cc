#include "cli/serve_console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/pluralize.h"
#include "cli/sanitize_line.h"
#include "server/page.h"

namespace zinc {
namespace {

std::string text_at(const json::object& entry, std::string_view key) {
  const json::value* value = entry.if_contains(key);
  return value && value->is_string() ? sanitize_line(std::string_view(value->get_string())) : std::string();
}

double number_at(const json::object& entry, std::string_view key) {
  const json::value* value = entry.if_contains(key);
  return value && value->is_number() ? value->to_number<double>() : 0;
}

}  // namespace

LogFormat choose_log_format(std::string_view name) {
  if (name.empty()) return ::isatty(STDERR_FILENO) == 1 ? LogFormat::text : LogFormat::json;
  return name == "json" ? LogFormat::json : LogFormat::text;
}

std::string greeting(std::string_view url, const std::vector<std::string>& models) {
  std::string names;
  for (const std::string& name : models) names += (names.empty() ? "" : ", ") + sanitize_line(name);
  if (names.empty()) names = "none yet; choose one on the page";
  return fmt::format("Model: {}\nChat:  {}\nAPI:   {}/v1\nCtrl-C stops the server.\n", names, url, url);
}

std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string request_line(const json::object& entry, std::string_view clock) {
  std::string line = fmt::format("{} {} {} {} in {:.1f} s", clock, text_at(entry, "method"), text_at(entry, "path"),
                                 static_cast<int>(number_at(entry, "status")), number_at(entry, "seconds"));
  std::string details = text_at(entry, "model");
  const auto add = [&](const std::string& text) {
    if (!text.empty()) details += (details.empty() ? "" : ", ") + text;
  };
  if (entry.contains("completion_tokens")) {
    add(fmt::format("{:.0f} prompt + {:.0f} tokens", number_at(entry, "prompt_tokens"),
                    number_at(entry, "completion_tokens")));
  }
  for (const char* key : {"finish", "dropped", "error"}) add(text_at(entry, key));
  if (entry.contains("ignored_fields")) add("unknown fields ignored: " + text_at(entry, "ignored_fields"));
  return details.empty() ? line : line + ": " + details;
}

bool is_shown_on_terminal(const json::object& entry) {
  constexpr std::array<std::string_view, 4> kPolled = {"/props", "/models", "/v1/models", "/apply-template"};
  HttpRequest request;
  request.method = text_at(entry, "method");
  request.path = text_at(entry, "path");
  const bool is_of_page = is_page_request(request) || std::ranges::find(kPolled, request.path) != kPolled.end();
  return !is_of_page || number_at(entry, "status") >= 400 || entry.contains("ignored_fields");
}

std::string drain_notice(size_t n_answers, DrainSeconds seconds) {
  const std::string delay = seconds.delay > 0 ? fmt::format("accepting requests for {} s more, ", seconds.delay) : "";
  return fmt::format("{}finishing {}, {} s at most; Ctrl-C again ends now", delay, pluralize(n_answers, "answer"),
                     seconds.drain);
}

}  // namespace zinc
