#include "text/message_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.h"
#include "base/utf8.h"

namespace zinc {
namespace {

const std::filesystem::path kOwnCases = ZINC_SOURCE_DIR "/tests/data/toolcalls";
const std::filesystem::path kOracle = ZINC_SOURCE_DIR "/../shared/oracle/templates";

struct Case {
  std::string label;
  const ToolFormat* format;
  ParserOptions options;
  std::string output;
  bool is_partial;
  json::object expected;
  json::value warnings;  // codes in order; null: not checked
};

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ToolSchemas read_tools(const std::filesystem::path& path) {
  const Result<json::value> parsed = parse_json(read_text(path));
  EXPECT_TRUE(parsed.ok()) << path;
  return parsed.ok() ? ToolSchemas::read(parsed.value()).value() : ToolSchemas();
}

std::vector<Case> read_cases(const std::filesystem::path& path, const ToolSchemas& tools) {
  std::vector<Case> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Result<json::value> parsed = parse_json(line);
    EXPECT_TRUE(parsed.ok()) << line;
    if (!parsed.ok()) continue;
    const json::object& record = parsed.value().get_object();
    const std::string family(record.at("family").get_string());
    Case c;
    c.label = family + ": " + std::string(record.at("name").get_string());
    c.format = find_tool_format(family);
    EXPECT_NE(c.format, nullptr) << family;
    if (!c.format) continue;
    c.options.thinking = record.at("enable_thinking").get_bool();
    if (record.at("tools_given").get_bool()) c.options.tools = tools;
    c.output = record.at("model_output").get_string();
    c.is_partial = record.at("is_partial").get_bool();
    c.expected = record.at("expected_message").get_object();
    if (const json::value* warnings = record.if_contains("warnings")) c.warnings = *warnings;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::string trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\r\t");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \n\r\t") - begin + 1));
}

std::string without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' && c != '\n') out += c;
  }
  return out;
}

// As JSON, 1000 and 1000.0 are one number.
bool json_equal(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) {
    return std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(), b.get_array().end(),
                      json_equal);
  }
  if (!a.is_object()) return a == b;
  if (a.get_object().size() != b.get_object().size()) return false;
  for (const auto& [key, member] : a.get_object()) {
    const json::value* other = b.get_object().if_contains(key);
    if (!other || !json_equal(member, *other)) return false;
  }
  return true;
}

void expect_call(const ToolCall& call, const json::object& expected) {
  EXPECT_EQ(call.name, std::string(expected.at("name").get_string()));
  if (const json::value* id = expected.if_contains("id")) {
    EXPECT_EQ(call.id, std::string(id->get_string()));
  }
  if (const json::value* partial = expected.if_contains("arguments_partial")) {
    EXPECT_FALSE(call.complete);
    EXPECT_EQ(without_spaces(call.arguments), without_spaces(partial->get_string()));
    return;
  }
  EXPECT_TRUE(call.complete);
  const Result<json::value> arguments = parse_json(call.arguments);
  ASSERT_TRUE(arguments.ok()) << call.arguments;
  EXPECT_TRUE(json_equal(arguments.value(), expected.at("arguments"))) << call.arguments;
}

void expect_message(const Message& message, const Case& c) {
  EXPECT_EQ(trim(message.content), trim(c.expected.at("content").get_string()));
  EXPECT_EQ(trim(message.reasoning_content), trim(c.expected.at("reasoning_content").get_string()));
  const json::array& calls = c.expected.at("tool_calls").get_array();
  ASSERT_EQ(message.tool_calls.size(), calls.size()) << message_json(message);
  for (size_t i = 0; i < calls.size(); ++i) expect_call(message.tool_calls[i], calls[i].get_object());
  if (c.warnings.is_null()) return;
  json::array codes;
  for (const ParseWarning& warning : message.warnings) codes.emplace_back(warning_name(warning.code));
  EXPECT_EQ(codes, c.warnings.get_array()) << message_json(message);
}

void append_all(Message& message, const std::vector<Delta>& deltas) {
  for (const Delta& delta : deltas) append_delta(message, delta);
}

// Runs all cases of a file and prints the counts per family, so that missing cases are noticed.
void run_file(const std::filesystem::path& path, const ToolSchemas& tools, void (*check)(const Case&)) {
  std::map<std::string_view, int> n_cases;
  for (const Case& c : read_cases(path, tools)) {
    SCOPED_TRACE(c.label);
    check(c);
    ++n_cases[c.format->name];
  }
  std::string counts;
  int n_all = 0;
  for (const auto& [family, n] : n_cases) {
    counts += fmt::format(" {} {}", family, n);
    n_all += n;
  }
  fmt::print("{}: {} cases:{}\n", path.filename().string(), n_all, counts);
  EXPECT_GT(n_all, 0) << path;
}

void run_all_files(void (*check)(const Case&)) {
  const ToolSchemas tools = read_tools(kOwnCases / "tools.json");
  run_file(kOwnCases / "cases.jsonl", tools, check);
  if (!std::filesystem::exists(kOracle)) {
    fmt::print("oracle absent: only the cases of this repository ran\n");
    return;
  }
  run_file(kOracle / "toolcalls.jsonl", read_tools(kOracle / "toolcalls_tools.json"), check);
}

TEST(MessageParser, every_case_parses_to_the_expected_message) {
  run_all_files([](const Case& c) { expect_message(parse_message(*c.format, c.options, c.output, c.is_partial), c); });
}

TEST(MessageParser, own_cases_cover_every_tool_format) {
  std::map<std::string_view, int> n_cases;
  for (const Case& c : read_cases(kOwnCases / "cases.jsonl", {})) ++n_cases[c.format->name];
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) EXPECT_GT(n_cases[(*f)->name], 2) << (*f)->name;
}

TEST(MessageParser, any_split_in_two_gives_the_same_message) {
  run_all_files([](const Case& c) {
    const std::string whole = message_json(parse_message(*c.format, c.options, c.output, c.is_partial));
    for (size_t at = 0; at <= c.output.size(); ++at) {
      MessageParser parser(*c.format, c.options);
      Message message;
      append_all(message, parser.push(std::string_view(c.output).substr(0, at)));
      append_all(message, parser.push(std::string_view(c.output).substr(at)));
      if (!c.is_partial) append_all(message, parser.finish());
      ASSERT_EQ(message_json(message), whole) << "split at " << at;
    }
  });
}

// Byte by byte, after each byte: output is never retracted (except by CallFailed), equals a parse of the prefix alone,
// and is valid UTF-8.
TEST(MessageParser, streamed_output_only_grows) {
  run_all_files([](const Case& c) {
    MessageParser parser(*c.format, c.options);
    Message message;
    for (size_t n = 1; n <= c.output.size(); ++n) {
      const Message before = message;
      const std::vector<Delta> deltas = parser.push(std::string_view(c.output).substr(n - 1, 1));
      append_all(message, deltas);
      ASSERT_TRUE(message.content.starts_with(before.content)) << n;
      ASSERT_TRUE(message.reasoning_content.starts_with(before.reasoning_content)) << n;
      bool has_failed = false;
      for (const Delta& delta : deltas) has_failed |= std::holds_alternative<CallFailed>(delta);
      ASSERT_GE(message.tool_calls.size() + (has_failed ? 1 : 0), before.tool_calls.size()) << n;
      for (size_t i = 0; i < std::min(message.tool_calls.size(), before.tool_calls.size()); ++i) {
        ASSERT_EQ(message.tool_calls[i].name, before.tool_calls[i].name) << n;
        ASSERT_TRUE(message.tool_calls[i].arguments.starts_with(before.tool_calls[i].arguments)) << n;
      }
      const std::string prefix = c.output.substr(0, n);
      ASSERT_EQ(message_json(message), message_json(parse_message(*c.format, c.options, prefix, true))) << n;
      ASSERT_TRUE(is_valid_utf8(message_json(message))) << n;
    }
    if (!c.is_partial) append_all(message, parser.finish());
    expect_message(message, c);
  });
}

TEST(MessageParser, buffered_calls_never_emit_call_failed) {
  run_all_files([](const Case& c) {
    ParserOptions options = c.options;
    options.buffer_calls = true;
    MessageParser parser(*c.format, options);
    Message message;
    for (const char byte : c.output) {
      const std::vector<Delta> deltas = parser.push(std::string_view(&byte, 1));
      for (const Delta& delta : deltas) ASSERT_FALSE(std::holds_alternative<CallFailed>(delta));
      append_all(message, deltas);
      for (const ToolCall& call : message.tool_calls) ASSERT_TRUE(call.complete);
    }
    if (c.is_partial) return;
    append_all(message, parser.finish());
    expect_message(message, c);
  });
}

const ToolSchemas& weather_tools() {
  static const ToolSchemas tools = read_tools(kOwnCases / "tools.json");
  return tools;
}

std::string first_content(const ToolFormat& format, std::string_view text) {
  MessageParser parser(format, {.tools = weather_tools(), .reasoning_open = false});
  Message message;
  append_all(message, parser.push(text));
  return message.content;
}

TEST(MessageParser, only_possible_markers_are_held_back) {
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) {
    SCOPED_TRACE((*f)->name);
    const std::string lead = (*f)->name == "gpt-oss" ? "<|channel|>final<|message|>" : "";
    EXPECT_EQ(first_content(**f, lead + "A plain answer, <b>"), "A plain answer, <b>");
    EXPECT_EQ(first_content(**f, lead + "x <"), (*f)->name.starts_with("mistral") ? "x <" : "x ");
    EXPECT_EQ(first_content(**f, lead + "x [TOOL"), (*f)->name.starts_with("mistral") ? "x " : "x [TOOL");
  }
  EXPECT_EQ(first_content(k_tool_format_plain, "see <thi"),
            "see <thi");  // reasoning can only start at the beginning of a message
  EXPECT_EQ(first_content(k_tool_format_plain, "<thi"), "");
}

TEST(MessageParser, invalid_utf8_becomes_replacement_characters) {
  for (const std::string_view bad : {"\xED\xA0\x80", "\xF0\x80\x80\x41", "\xE2\x80\x41", "\xFF", "\xC3"}) {
    const std::string text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"x\": \"a" + std::string(bad);
    const Message cut = parse_message(*find_tool_format("qwen3"), {.tools = weather_tools()}, text);
    EXPECT_TRUE(is_valid_utf8(cut.content));
    EXPECT_EQ(cut.content, replace_invalid_utf8(text));
    const Message whole =
        parse_message(*find_tool_format("qwen3"), {.tools = weather_tools()}, text + "b\"}}\n</tool_call>");
    ASSERT_EQ(whole.tool_calls.size(), 1u) << whole.content;
    EXPECT_TRUE(parse_json(whole.tool_calls[0].arguments).ok());
  }
}

TEST(MessageParser, reasoning_open_overrides_the_formats_default) {
  const ToolFormat& qwen3 = *find_tool_format("qwen3");
  EXPECT_EQ(parse_message(qwen3, {.reasoning_open = true}, "hm</think>yes").reasoning_content, "hm");
  EXPECT_EQ(parse_message(qwen3, {.reasoning_open = true}, "<think>hm</think>yes").reasoning_content, "hm");
  const ToolFormat& qwen35 = *find_tool_format("qwen3.5");
  EXPECT_EQ(parse_message(qwen35, {.reasoning_open = false}, "yes").content, "yes");
}

TEST(MessageParser, call_in_unterminated_reasoning_causes_a_warning) {
  const ToolFormat& qwen3 = *find_tool_format("qwen3");
  const std::string call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>";
  const auto codes = [&](std::string_view text, const ToolSchemas& tools) {
    std::vector<std::string_view> names;
    for (const ParseWarning& warning : parse_message(qwen3, {.tools = tools}, text).warnings) {
      names.push_back(warning_name(warning.code));
    }
    return names;
  };
  EXPECT_EQ(codes("<think>Let me see.\n" + call, weather_tools()),
            std::vector{warning_name(WarningCode::malformed_call)});
  EXPECT_TRUE(codes("<think>Let me see.\n" + call, {}).empty()) << "no tools in the request";
  EXPECT_TRUE(codes("<think>Shall I write <tool_call>?", weather_tools()).empty());
  EXPECT_TRUE(codes("<think>Like " + call + "?</think>No.", weather_tools()).empty());
}

// Processor seconds to parse `n_bytes` of a repeated pattern, byte by byte and at once.
double parse_seconds(const ToolFormat& format, const std::string& pattern, size_t n_bytes) {
  std::string text;
  while (text.size() < n_bytes) text += pattern;
  const std::clock_t begin = std::clock();
  MessageParser parser(format, {.tools = weather_tools(), .reasoning_open = false});
  for (const char c : text) parser.push(std::string_view(&c, 1));
  parser.finish();
  parse_message(format, {.tools = weather_tools()}, text);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(MessageParser, parse_time_is_linear_for_hostile_text) {
  const std::string patterns[] = {
      "<",
      "{",
      "{\"name\": \"now\", ",
      "<tool_call>",
      "<|tool_call>call:now{a:<|\"|>",
      "\n",
      "</param",
      "[TOOL_CALLS]",
      "<|channel|>",
      "<|start|>assistant",
      "<think>",
      "\\",
      "[",
      "\"",
      "<｜tool▁calls▁begin｜>",
      "<|end|>",
      "<|",
      ", ",
      "<tool_call>\n<function=write_file>\n<parameter=text>\n</parameter>",
      "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>",
  };
  constexpr size_t kBytes = 20'000;
  constexpr double kPlentySeconds = 0.05;  // linear work takes a few milliseconds, unless a sanitizer slows it down
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) {
    for (const std::string& pattern : patterns) {
      double whole = parse_seconds(**f, pattern, kBytes);
      double quarter = parse_seconds(**f, pattern, kBytes / 4);
      const auto is_linear = [&] { return whole < kPlentySeconds || whole < 9 * quarter; };  // 4; 16 if it is quadratic
      for (int again = 0; again < 8 && !is_linear(); ++again) {  // the minimum of each: load only adds to it
        whole = std::min(whole, parse_seconds(**f, pattern, kBytes));
        quarter = std::min(quarter, parse_seconds(**f, pattern, kBytes / 4));
      }
      EXPECT_TRUE(is_linear()) << (*f)->name << ": " << pattern << ": " << whole << " s, a quarter " << quarter << " s";
    }
  }
}

}  // namespace
}  // namespace zinc
