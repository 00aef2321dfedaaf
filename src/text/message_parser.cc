#include "text/message_parser.h"

#include <iterator>

#include "base/utf8.h"

namespace zinc {
namespace {

bool reasoning_starts_open(const ToolFormat& format, const ParserOptions& options) {
  if (format.thinking.close.empty()) return false;
  return options.reasoning_open.value_or(format.reasoning_starts_open && options.thinking);
}

}  // namespace

struct MessageParser::State {
  State(const ToolFormat& format, ParserOptions parser_options)
      : options(std::move(parser_options)),
        writer(options.tools),
        parser(format.make_parser({writer, reasoning_starts_open(format, options)})) {}

  const ParserOptions options;
  MessageWriter writer;
  std::unique_ptr<OutputParser> parser;
  std::string incomplete;       // an incomplete UTF-8 character at the end of the last push
  std::vector<Delta> buffered;  // with buffer_calls: the deltas of the open call
};

MessageParser::MessageParser(const ToolFormat& format, ParserOptions options)
    : state_(std::make_unique<State>(format, std::move(options))) {}
MessageParser::MessageParser(MessageParser&&) noexcept = default;
MessageParser& MessageParser::operator=(MessageParser&&) noexcept = default;
MessageParser::~MessageParser() = default;

std::vector<Delta> MessageParser::push(std::string_view bytes) {
  State& s = *state_;
  s.incomplete += bytes;
  const size_t n_whole = s.incomplete.size() - incomplete_utf8_suffix(s.incomplete);
  const std::string text = replace_invalid_utf8(std::string_view(s.incomplete).substr(0, n_whole));
  s.incomplete.erase(0, n_whole);
  s.parser->push(text);
  return take();
}

std::vector<Delta> MessageParser::finish() {
  State& s = *state_;
  if (!s.incomplete.empty()) s.parser->push(replace_invalid_utf8(s.incomplete));
  s.parser->finish();
  return take();
}

std::vector<Delta> MessageParser::take() {
  State& s = *state_;
  std::vector<Delta> fresh = s.writer.take();
  if (!s.options.buffer_calls) return fresh;
  std::vector<Delta> out;
  for (Delta& delta : fresh) {
    if (std::holds_alternative<CallFailed>(delta)) {
      s.buffered.clear();
    } else if (std::holds_alternative<CallStart>(delta) || !s.buffered.empty()) {
      const bool is_end = std::holds_alternative<CallEnd>(delta);
      s.buffered.push_back(std::move(delta));
      if (!is_end) continue;
      std::move(s.buffered.begin(), s.buffered.end(), std::back_inserter(out));
      s.buffered.clear();
    } else {
      out.push_back(std::move(delta));
    }
  }
  return out;
}

Message parse_message(const ToolFormat& format, const ParserOptions& options, std::string_view output,
                      bool is_partial) {
  MessageParser parser(format, options);
  Message message;
  for (const Delta& delta : parser.push(output)) append_delta(message, delta);
  if (is_partial) return message;
  for (const Delta& delta : parser.finish()) append_delta(message, delta);
  return message;
}

}  // namespace zinc
