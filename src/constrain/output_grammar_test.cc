// Outputs sampled from the grammar of every tool-call family, parsed by the family's own parser.
#include "constrain/output_grammar.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "constrain/json_schema.h"
#include "gguf/gguf_file.h"
#include "tests/support/grammar_matcher.h"
#include "tests/support/schema_validator.h"
#include "text/message_parser.h"

namespace zinc {
namespace {

const json::value kTools = parse_json(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object",
    "properties": {
      "city": {"type": "string"},
      "unit": {"enum": ["celsius", "fahrenheit"]},
      "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
      "note": {"anyOf": [{"type": "string", "maxLength": 8}, {"type": "null"}]},
      "place": {"$ref": "#/$defs/place"}
    },
    "required": ["city", "days", "place"],
    "additionalProperties": false,
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90},
              "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2}},
              "required": ["lat"], "additionalProperties": false}}}}},
  {"type": "function", "function": {"name": "set_flag", "parameters": {
    "type": "object", "properties": {"on": {"type": "boolean"}, "level": {"type": ["integer", "null"]},
    "value": {}, "mixed": {"type": ["string", "number"]}}, "required": ["on"]}}},
  {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
  {"type": "function", "function": {"name": "log", "parameters": {"type": "object", "additionalProperties":
    {"type": "string"}, "minProperties": 1, "maxProperties": 3}}}
])")
                               .value();

std::vector<CallableTool> callable() {
  std::vector<CallableTool> out;
  for (const json::value& tool : kTools.get_array()) {
    const json::object& function = tool.at("function").get_object();
    out.push_back({std::string(function.at("name").get_string()), &function.at("parameters"), true});
  }
  return out;
}

class OutputGrammarTest : public testing::TestWithParam<const ToolFormat*> {
 protected:
  OutputGrammarTest() : file_(std::move(GgufFile::open(kModel).value())) {}

  OutputSyntax syntax(OutputSyntax::Content content) {
    return {.format = *GetParam(), .content = content, .tools = callable(), .tool_schemas = &schemas_};
  }
  Grammar grammar(OutputSyntax syntax) {
    Result<Grammar> made = output_grammar(std::move(syntax), trie_);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::move(made.value());
  }
  std::vector<std::string> markers() const {
    const ToolFormat& format = *GetParam();
    std::vector<std::string> out;
    if (format.calls.arguments == CallSyntax::Arguments::parameters) out.push_back("\n</parameter>\n");
    if (!format.calls.quote.empty()) out.push_back(trie_.mark_control_tokens(format.calls.quote));
    if (!format.channels.content_open.empty()) {
      out.push_back(trie_.mark_control_tokens(format.thinking.close) +
                    trie_.mark_control_tokens(format.channels.next_message) +
                    trie_.mark_control_tokens(format.calls.open));
    }
    return out;
  }
  Message parse(std::string text) const {
    std::erase(text, kControlTokenByte);
    return parse_message(*GetParam(), {.tools = schemas_, .reasoning_open = false}, text);
  }
  void expect_valid(const ToolCall& call, const std::string& text) const {
    EXPECT_TRUE(call.complete) << text;
    const Result<json::value> arguments = parse_json(call.arguments);
    ASSERT_TRUE(arguments.ok()) << text;
    const std::vector<CallableTool> tools = callable();
    const auto tool = std::ranges::find(tools, call.name, &CallableTool::name);
    ASSERT_NE(tool, tools.end()) << text;
    EXPECT_TRUE(SchemaValidator(*tool->parameters).holds(*tool->parameters, arguments.value())) << text << "\n"
                                                                                                << call.arguments;
  }

  static inline const std::filesystem::path kModel =
      std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models/qwen3-q8_0.gguf";
  GgufFile file_;
  Tokenizer tokenizer_ = std::move(Tokenizer::load(file_).value());
  TokenTrie trie_{tokenizer_};
  ToolSchemas schemas_ = ToolSchemas::read(kTools).value();
};

TEST_P(OutputGrammarTest, forced_calls_parse_and_satisfy_their_schemas) {
  std::mt19937 random(5);
  std::optional<GrammarMatcher> matcher(grammar(syntax(OutputSyntax::Content::none)));
  std::set<std::string> names;
  int n_sampled = 0;
  for (int i = 0; i < 300; ++i) {
    if (matcher->automaton().n_states() > 10'000) matcher.emplace(grammar(syntax(OutputSyntax::Content::none)));
    matcher->automaton().set_work_budget(1 << 24);
    const std::optional<std::string> text = matcher->sample(random, random() % 40, markers());
    if (!text) continue;
    ++n_sampled;
    const Message message = parse(*text);
    ASSERT_FALSE(message.tool_calls.empty()) << *text;
    EXPECT_EQ(message.content, "") << *text;
    for (const ToolCall& call : message.tool_calls) {
      names.insert(call.name);
      expect_valid(call, *text);
    }
    for (const ParseWarning& warning : message.warnings) EXPECT_NE(warning.code, WarningCode::malformed_call) << *text;
  }
  EXPECT_GT(n_sampled, 200);
  EXPECT_EQ(names.size(), 4u);
}

TEST_P(OutputGrammarTest, parallel_calls_can_be_forbidden) {
  std::mt19937 random(6);
  OutputSyntax single = syntax(OutputSyntax::Content::none);
  single.allows_parallel_calls = false;
  single.tools = {{"ping", single.tools[2].parameters, true}};
  GrammarMatcher matcher(grammar(std::move(single)));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(parse(matcher.sample(random, 200, markers()).value()).tool_calls.size(), 1u);
  }
}

TEST_P(OutputGrammarTest, content_may_stand_instead_of_a_call) {
  std::mt19937 random(7);
  OutputSyntax either = syntax(OutputSyntax::Content::grammar);
  either.content_grammar = json_schema_grammar(parse_json(R"({"enum": ["yes", "no"]})").value()).value();
  GrammarMatcher matcher(grammar(std::move(either)));
  int n_contents = 0, n_calls = 0;
  for (int i = 0; i < 200; ++i) {
    const std::optional<std::string> text = matcher.sample(random, 0, markers());
    if (!text) continue;
    const Message message = parse(*text);
    for (const ToolCall& call : message.tool_calls) expect_valid(call, *text);
    const bool is_answer = message.content == "\"yes\"" || message.content == "\"no\"";
    EXPECT_TRUE(is_answer != !message.tool_calls.empty()) << *text;
    ++(is_answer ? n_contents : n_calls);
  }
  EXPECT_GT(n_contents, 0);
  EXPECT_GT(n_calls, 0);
}

TEST_P(OutputGrammarTest, with_strict_tools_text_is_free_and_calls_are_not) {
  std::mt19937 random(8);
  GrammarMatcher matcher(grammar(syntax(OutputSyntax::Content::any_text)));
  const std::string_view open = GetParam()->channels.content_open;
  EXPECT_TRUE(matcher.matches(trie_.mark_control_tokens(open) + "Some text, with \"quotes\".\nAnd lines."));
  const CallSyntax& calls = GetParam()->calls;
  const std::string head = fmt::format("{}{}ping{}", calls.begin, calls.open, calls.before_arguments);
  EXPECT_TRUE(matcher.accepts_prefix(trie_.mark_control_tokens(head)));
  EXPECT_FALSE(matcher.accepts_prefix(trie_.mark_control_tokens(fmt::format("{}{}pong", calls.begin, calls.open))));
}

TEST_P(OutputGrammarTest, strict_schema_that_is_not_supported_is_an_error_with_the_tools_name) {
  const json::value schema = {{"type", "object"}, {"not", json::object()}};
  OutputSyntax strict = syntax(OutputSyntax::Content::none);
  strict.tools = {{"ping", &schema, true}};
  const Result<Grammar> made = output_grammar(strict, trie_);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("parameters of tool 'ping': #: \"not\" is not supported"), std::string::npos)
      << made.error().message;
  strict.tools.front().is_strict = false;
  const Result<Grammar> any_object = output_grammar(strict, trie_);
  ASSERT_TRUE(any_object.ok());
  EXPECT_EQ(any_object.value().unenforced,
            std::vector<std::string>{"parameters of tool 'ping': #: \"not\" is not supported; the arguments may be any "
                                     "JSON object"});
}

TEST_P(OutputGrammarTest, keyword_that_is_not_enforced_is_an_error_of_a_strict_tool_only) {
  const json::value schema =
      parse_json(R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"},
                     "uniqueItems": true}}})")
          .value();
  OutputSyntax strict = syntax(OutputSyntax::Content::none);
  strict.tools = {{"ping", &schema, true}};
  const Result<Grammar> made = output_grammar(strict, trie_);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("tool 'ping': #/properties/a: \"uniqueItems\" is not"), std::string::npos)
      << made.error().message;
  strict.tools.front().is_strict = false;
  const Result<Grammar> loose = output_grammar(strict, trie_);
  ASSERT_TRUE(loose.ok());
  ASSERT_EQ(loose.value().unenforced.size(), 1u);
  EXPECT_EQ(loose.value().unenforced[0].find("parameters of tool 'ping': #/properties/a: \"uniqueItems\" is not"), 0u)
      << loose.value().unenforced[0];
  EXPECT_EQ(output_grammar(syntax(OutputSyntax::Content::none), trie_).value().unenforced, std::vector<std::string>());
}

std::vector<const ToolFormat*> all_formats() {
  std::vector<const ToolFormat*> out;
  for (const ToolFormat* const* format = kToolFormats; *format; ++format) out.push_back(*format);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Families, OutputGrammarTest, testing::ValuesIn(all_formats()), [](const auto& info) {
  std::string name(info.param->name);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
