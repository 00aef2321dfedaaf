// Structured output and forced tool calls from models with random weights: every output matches its JSON schema, and
// concurrent unconstrained outputs do not change.
#include <gtest/gtest.h>

#include "base/json.h"
#include "constrain/constraint_cache.h"
#include "constrain/json_schema.h"
#include "constrain/output_grammar.h"
#include "tests/support/schema_validator.h"
#include "tests/support/serving.h"
#include "text/message_parser.h"

namespace zinc {
namespace {

constexpr std::string_view kSchema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "mood": {"enum": ["good", "bad", null]},
    "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,5}$"}, "minItems": 1, "maxItems": 3},
    "address": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 6}, "zip": {"type": "integer"}},
                "required": ["zip"], "additionalProperties": false}
  },
  "required": ["name", "age", "tags"],
  "additionalProperties": false
})";

bool is_document(const std::string& text) {
  const Result<json::value> parsed = parse_json(text);
  if (!parsed.ok() || !parsed.value().is_object()) return false;
  const json::object& all = parsed.value().get_object();
  for (const json::key_value_pair& entry : all) {
    const json::value& value = entry.value();
    if (entry.key() == "name") {
      if (!value.is_string() || value.get_string().empty()) return false;
    } else if (entry.key() == "age") {
      if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > 120) return false;
    } else if (entry.key() == "mood") {
      if (!value.is_null() && value != "good" && value != "bad") return false;
    } else if (entry.key() == "tags") {
      if (!value.is_array() || value.get_array().empty() || value.get_array().size() > 3) return false;
      for (const json::value& tag : value.get_array()) {
        if (!tag.is_string() || tag.get_string().size() < 2 || tag.get_string().size() > 5) return false;
      }
    } else if (entry.key() == "address") {
      if (!value.is_object() || !value.get_object().contains("zip")) return false;
    } else {
      return false;
    }
  }
  return all.contains("name") && all.contains("age") && all.contains("tags");
}

class ConstrainedTest : public testing::TestWithParam<std::string> {};

TEST_P(ConstrainedTest, every_output_matches_its_json_schema) {
  constexpr int kAnswers = 250;
  const std::unique_ptr<Engine> engine = make_engine(
      {.name = GetParam()}, {.max_sequences = 16, .context = 1600, .step_tokens = 128, .queue_limit = 1000});
  ConstraintCache constraints(engine->tokenizer());
  std::vector<std::shared_ptr<RecordingSink>> output;
  for (uint64_t i = 0; i < kAnswers; ++i) {
    Request request{.prompt = random_tokens(engine->tokenizer(), 5, static_cast<uint32_t>(i))};
    request.options.sampling = {.temperature = i % 2 == 0 ? 1.5f : 0.0f, .seed = i};
    request.options.max_tokens = 1500;  // some emit much white space
    const auto make = [] { return json_schema_grammar(parse_json(kSchema).value()); };
    Result<std::shared_ptr<Constraint>> constraint = constraints.get(kSchema, make);
    ASSERT_TRUE(constraint.ok()) << constraint.error().message;
    request.options.constraint.grammar = constraint.value();
    output.push_back(submit(*engine, std::move(request)));
  }
  run_all(*engine);
  for (const auto& answer : output) {
    EXPECT_EQ(answer->outcome.reason, StopReason::end_token) << answer->text;
    EXPECT_TRUE(is_document(answer->text)) << answer->text;
  }
  EXPECT_EQ(pages_in_use(*engine), 0);
}

TEST_P(ConstrainedTest, constrained_outputs_do_not_depend_on_the_batch) {
  const ModelInstance model = load_model({.name = GetParam()});
  const std::unique_ptr<Engine> engine =
      make_engine({.name = GetParam()}, {.max_sequences = 8, .context = 256, .step_tokens = 64});
  ConstraintCache constraints(engine->tokenizer());
  std::vector<Request> requests(12);
  std::vector<std::shared_ptr<RecordingSink>> output;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = random_tokens(engine->tokenizer(), 10 + i, static_cast<uint32_t>(i));
    requests[i].options.sampling = {.temperature = 1, .top_p = 0.9f, .seed = i};
    requests[i].options.max_tokens = 60;
    if (i % 2 == 0) requests[i].options.constraint.grammar = constraints.get("object", json_object_grammar).value();
    output.push_back(submit(*engine, requests[i]));
  }
  run_all(*engine);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_output(*output[i], generate_alone(model, requests[i], 256))) << output[i]->text;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ConstrainedTest,
                         testing::Values("qwen3-q8_0", "gemma3-f16", "qwen35moe-q8_0", "gpt-oss-mxfp4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A sink that also records the order in which requests of one step get their tokens.
struct OrderSink : RecordingSink {
  OrderSink(std::string& order, char name) : order(order), name(name) {}
  void tokens(std::string_view piece, std::span<const OutputToken> more) override {
    order += name;
    RecordingSink::tokens(piece, more);
  }
  std::string& order;
  char name;
};

TEST(ConstrainedBatchTest, rows_that_wait_for_a_mask_come_after_all_others) {
  const std::unique_ptr<Engine> engine =
      make_engine({.name = "qwen3-q8_0"}, {.max_sequences = 4, .context = 256, .step_tokens = 64});
  ConstraintCache constraints(engine->tokenizer());
  std::string order;
  for (const char name : std::string_view("cucu")) {  // c: constrained, u: not
    Request request{.prompt = random_tokens(engine->tokenizer(), 8, static_cast<uint32_t>(name))};
    request.options.sampling = {.temperature = 1, .seed = 1};
    request.options.max_tokens = 12;
    request.options.ignore_eos = true;
    if (name == 'c') {
      request.options.constraint.grammar =
          constraints.get("text",
                          [] {
                            return json_schema_grammar({{"type", "string"}, {"minLength", 200}});
                          })
              .value();
    }
    request.sink = std::make_shared<OrderSink>(order, name);
    ASSERT_TRUE(engine->submit(std::move(request)).ok());
  }
  run_all(*engine);
  ASSERT_EQ(order.size(), 48u);
  const std::string last_steps = order.substr(order.size() - 40);  // all four are decoding
  for (size_t i = 0; i < last_steps.size(); i += 4) EXPECT_EQ(last_steps.substr(i, 4), "uucc") << order;
}

const json::value kTools = parse_json(R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 12}, "unit": {"enum": ["celsius", "kelvin"]},
                   "days": {"type": "integer", "minimum": 1, "maximum": 14},
                   "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 2}},
    "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "set", "parameters": {"type": "object",
    "properties": {"on": {"type": "boolean"}, "level": {"type": "number", "minimum": 0, "maximum": 1},
                   "where": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                             "required": ["x", "y"], "additionalProperties": false}},
    "required": ["on", "where"], "additionalProperties": false}}}
])")
                               .value();

struct Family {
  std::string_view model, format;
};

class ForcedToolsTest : public testing::TestWithParam<Family> {
 protected:
  void expect_valid_calls(int n_calls) {
    const ToolFormat& format = *find_tool_format(GetParam().format);
    const ToolSchemas schemas = ToolSchemas::read(kTools).value();
    const std::unique_ptr<Engine> engine = make_engine(
        {.name = GetParam().model}, {.max_sequences = 16, .context = 1024, .step_tokens = 128, .queue_limit = 2000});
    ConstraintCache constraints(engine->tokenizer());
    const std::shared_ptr<Constraint> forced =
        constraints.get("forced", [&] { return grammar(format, schemas, *constraints.trie()); }).value();
    std::vector<std::shared_ptr<RecordingSink>> output;
    for (int i = 0; i < n_calls; ++i) {
      Request request{.prompt = random_tokens(engine->tokenizer(), 5, static_cast<uint32_t>(i))};
      request.options.sampling = {.temperature = i % 2 == 0 ? 1.5f : 0.0f, .seed = static_cast<uint64_t>(i)};
      request.options.max_tokens = 900;
      request.options.show_control = true;
      request.options.constraint.grammar = forced;
      output.push_back(submit(*engine, std::move(request)));
    }
    run_all(*engine);
    for (const auto& sink : output) expect_valid(format, schemas, *sink);
  }

 private:
  static Result<Grammar> grammar(const ToolFormat& format, const ToolSchemas& schemas, const TokenTrie& vocabulary) {
    OutputSyntax syntax{.format = format,
                        .content = OutputSyntax::Content::none,
                        .tool_schemas = &schemas,
                        .allows_parallel_calls = false,
                        .may_reason = false};
    for (const json::value& tool : kTools.get_array()) {
      const json::object& function = tool.at("function").get_object();
      syntax.tools.push_back({std::string(function.at("name").get_string()), &function.at("parameters"), true});
    }
    return output_grammar(std::move(syntax), vocabulary);
  }

  static void expect_valid(const ToolFormat& format, const ToolSchemas& schemas, const RecordingSink& sink) {
    EXPECT_EQ(sink.outcome.reason, StopReason::end_token) << sink.text;
    const Message message = parse_message(format, {.tools = schemas, .reasoning_open = false}, sink.text);
    ASSERT_EQ(message.tool_calls.size(), 1u) << sink.text;
    EXPECT_EQ(message.content, "") << sink.text;
    const ToolCall& call = message.tool_calls.front();
    const json::value& schema = kTools.at(call.name == "weather" ? 0 : 1).at("function").at("parameters");
    EXPECT_TRUE(call.complete && (call.name == "weather" || call.name == "set")) << sink.text;
    const Result<json::value> arguments = parse_json(call.arguments);
    ASSERT_TRUE(arguments.ok()) << sink.text;
    EXPECT_TRUE(SchemaValidator(schema).holds(schema, arguments.value())) << sink.text;
  }
};

TEST_P(ForcedToolsTest, arguments_satisfy_their_schema_in_1000_of_1000_calls) { expect_valid_calls(1000); }

INSTANTIATE_TEST_SUITE_P(Families, ForcedToolsTest,
                         testing::Values(Family{"qwen3-q8_0", "qwen3"}, Family{"qwen35moe-q8_0", "qwen3.5"},
                                         Family{"gpt-oss-mxfp4", "gpt-oss"}, Family{"gemma3-f16", "gemma4"}),
                         [](const auto& info) {
                           std::string name(info.param.format);
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc
