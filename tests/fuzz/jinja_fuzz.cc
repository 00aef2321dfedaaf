// The template interpreter on hostile bytes. The first byte selects: a template over a fixed conversation, or a
// template and its own JSON, separated by NUL. Checks that segments alternate in origin and are valid UTF-8.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "text/jinja/template.h"

namespace {

using namespace zinc;

constexpr std::string_view kConversation = R"({
  "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "H\u00e9 <|im_end|>\n"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"x": 1.5}}}]},
    {"role": "tool", "content": "42"}, {"role": "user", "content": [{"type": "text", "text": "Bye"}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}],
  "add_generation_prompt": true, "x": "abc", "n": 3, "xs": [3, 1, 2], "d": {"b": 1, "a": [null, true]}})";

// A tenth of the real limits keeps inputs fast under sanitizers.
jinja::Limits small_limits() {
  jinja::Limits limits;
  limits.steps /= 10;
  limits.memory_bytes /= 10;
  limits.text_bytes /= 10;
  return limits;
}

void check(bool holds) {
  if (!holds) std::abort();
}

void render(std::string_view source, const json::value& context) {
  const Result<jinja::Template> compiled = jinja::Template::compile(source);
  if (!compiled.ok()) return check(compiled.error().message.starts_with("template:"));
  std::vector<jinja::Variable> variables;
  if (context.is_object()) {
    for (const auto& member : context.get_object()) variables.push_back({member.key(), &member.value(), true});
  }
  const auto segments = compiled.value().render(variables, jinja::LocalTime{}, small_limits());
  if (!segments.ok()) return check(segments.error().message.starts_with("template:"));
  bool is_first = true, previous = false;
  for (const jinja::Segment& segment : segments.value()) {
    check(!segment.text.empty() && (is_first || segment.from_input != previous));
    check(is_valid_utf8(segment.text));
    is_first = false;
    previous = segment.from_input;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const json::value conversation = parse_json(kConversation).value();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t separator = text.find('\0');
  if (data[0] != 'j' || separator == std::string_view::npos) {
    render(text, conversation);
    return 0;
  }
  const Result<json::value> context = parse_json(text.substr(separator + 1));
  if (context.ok()) render(text.substr(0, separator), context.value());
  return 0;
}
