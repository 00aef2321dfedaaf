// Model output split at random. First byte: format; second: options; third: seed of the splits; then the text.
// Checks: the split output parses to the same message as the complete one, texts are UTF-8, complete calls have JSON
// arguments, and no word is lost.
#include <cctype>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/message_parser.h"

namespace zinc {
namespace {

constexpr std::string_view kTools = R"([
 {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
   "city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}}}}},
 {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
   "a": {"type": "number"}, "b": {"type": ["number", "string"]}, "c": {}}}}},
 {"type": "function", "function": {"name": "now"}},
 {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {
   "stops": {"type": "array"}, "opts": {"type": "object"}, "n": {"type": "integer"}, "ok": {"type": "boolean"}}}}}])";

const ToolSchemas& tools() {
  static const ToolSchemas schemas = ToolSchemas::read(parse_json(kTools).value()).value();
  return schemas;
}

struct Splits {
  uint32_t state;
  size_t next() {
    state = state * 1664525u + 1013904223u;
    return 1 + (state >> 24) % 7;
  }
};

Message parse_pieces(const ToolFormat& format, const ParserOptions& options, std::string_view text, uint8_t seed) {
  MessageParser parser(format, options);
  Message message;
  Splits splits{seed};
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, splits.next());
    for (const Delta& delta : parser.push(piece)) {
      append_delta(message, delta);
      if (const auto* content = std::get_if<ContentDelta>(&delta)) ZINC_CHECK(is_valid_utf8(content->text));
      if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) ZINC_CHECK(is_valid_utf8(reasoning->text));
      if (const auto* arguments = std::get_if<ArgumentsDelta>(&delta)) ZINC_CHECK(is_valid_utf8(arguments->text));
    }
    text.remove_prefix(piece.size());
  }
  for (const Delta& delta : parser.finish()) append_delta(message, delta);
  return message;
}

size_t count(std::string_view text, std::string_view word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Every word of the output is in the message unless it is part of the markup. Skipped if there are escapes.
void check_no_word_lost(std::string_view text, const Message& message) {
  constexpr std::string_view kMarkup =
      "think tool_call tool_calls tool_response function parameter name arguments parameters id type channel thought "
      "analysis commentary final message start end return call constrain assistant to json code functions python_tag "
      "TOOL_CALLS CALL_ID ARGS sep begin true false null none";
  if (text.find('\\') != std::string_view::npos || text.size() > 4096) return;
  std::string all = message.content + "\n" + message.reasoning_content;
  for (const ToolCall& call : message.tool_calls) all += "\n" + call.name + "\n" + call.id + "\n" + call.arguments;
  for (const ParseWarning& warning : message.warnings) all += "\n" + warning.message;
  const auto is_word_byte = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word_byte(text[end])) ++end;
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.starts_with("thought")) word.remove_prefix(7);  // the one marker that ends in a letter
    std::string lower(word);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (word.empty() || kMarkup.find(word) != std::string_view::npos || kMarkup.find(lower) != std::string_view::npos) {
      continue;
    }
    ZINC_CHECK(count(all, word) > 0);
  }
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zinc;
  if (size < 3) return 0;
  size_t n_formats = 0;
  while (kToolFormats[n_formats]) ++n_formats;
  const ToolFormat& format = *kToolFormats[data[0] % n_formats];
  ParserOptions options;
  options.thinking = (data[1] & 1) != 0;
  if (data[1] & 2) options.tools = tools();
  options.buffer_calls = (data[1] & 4) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);

  const Message whole = parse_message(format, options, text);
  ZINC_CHECK(message_json(whole) == message_json(parse_pieces(format, options, text, data[2])));
  for (const ToolCall& call : whole.tool_calls) {
    ZINC_CHECK(call.complete);
    const Result<json::value> arguments = parse_json(call.arguments);
    ZINC_CHECK(arguments.ok() && arguments.value().is_object());
  }
  ZINC_CHECK(parse_json(message_json(whole)).ok());
  check_no_word_lost(replace_invalid_utf8(text), whole);
  return 0;
}
