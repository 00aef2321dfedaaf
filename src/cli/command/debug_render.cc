#include <fmt/core.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "text/chat_template.h"

namespace zinc::command_debug_render {
namespace {

struct Options {
  std::string template_path;
  std::string now = "2026-01-02T03:04:05";
};

Result<jinja::LocalTime> parse_time(const std::string& text) {
  using namespace std::chrono;
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0, n_read = 0;
  const int n_fields = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &y, &mo, &d, &h, &mi, &s, &n_read);
  const year_month_day date(year(y), month(static_cast<unsigned>(mo)), day(static_cast<unsigned>(d)));
  const bool fits = h >= 0 && h < 24 && mi >= 0 && mi < 60 && s >= 0 && s < 60;
  if (n_fields != 6 || static_cast<size_t>(n_read) != text.size() || !date.ok() || !fits) {
    return fail(ErrorCode::invalid_input, "--now '{}' is not a valid time; expected 2026-01-02T03:04:05", text);
  }
  return local_days(date) + hours(h) + minutes(mi) + seconds(s);
}

// Removes a string from `object` and returns it; "" if there is none.
std::string take_text(json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  if (!value || !value->is_string()) return {};
  std::string text(value->get_string());
  object.erase(key);
  return text;
}

Result<ChatTemplateInputs> read_request(const std::string& line, jinja::LocalTime now) {
  ZINC_TRY(parsed, parse_json(line));
  if (!parsed.is_object()) return fail(ErrorCode::invalid_input, "expected a JSON object");
  const json::object& object = parsed.get_object();
  ChatTemplateInputs request;
  request.now = now;
  if (const json::value* messages = object.if_contains("messages")) request.messages = *messages;
  if (const json::value* tools = object.if_contains("tools")) request.tools = *tools;
  const json::value* const add = object.if_contains("add_generation_prompt");
  request.add_generation_prompt = !add || (add->is_bool() && add->get_bool());
  const json::value* const kwargs = object.if_contains("kwargs");
  if (kwargs && kwargs->is_object()) request.kwargs = kwargs->get_object();
  request.bos_token = take_text(request.kwargs, "bos_token");
  request.eos_token = take_text(request.kwargs, "eos_token");
  return request;
}

json::object render_line(const ChatTemplate& chat, const std::string& line, jinja::LocalTime now) {
  const Result<ChatTemplateInputs> request = read_request(line, now);
  if (!request.ok()) return {{"error", request.error().message}};
  const Result<RenderedPrompt> prompt = chat.render(request.value());
  if (!prompt.ok()) return {{"error", prompt.error().message}};
  return {{"text", prompt.value().text()}};
}

Status render_stdin(const Options& options) {
  ZINC_TRY(now, parse_time(options.now));
  ZINC_TRY(file, MappedFile::open(options.template_path));
  const std::string_view source(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const Result<ChatTemplate> chat = ChatTemplate::compile(source);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) continue;
    const json::object answer =
        chat.ok() ? render_line(chat.value(), line, now) : json::object{{"error", chat.error().message}};
    fmt::print("{}\n", to_json(answer));
  }
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--template", options->template_path, "Jinja template file")->option_text("FILE")->required();
  app.add_option("--now", options->now, "local time that templates see, as 2026-01-02T03:04:05");
  return [options] { return render_stdin(*options); };
}

}  // namespace

extern const Command k_command_debug_render;
const Command k_command_debug_render{
    "debug render", "render a chat template for JSON lines from stdin: {\"text\"} or {\"error\"} each", declare};

}  // namespace zinc::command_debug_render
