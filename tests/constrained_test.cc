// Structured output from models with random weights: every output matches its JSON schema, and concurrent unconstrained
// outputs do not change.
#include <gtest/gtest.h>

#include "base/json.h"
#include "constrain/constraint_cache.h"
#include "constrain/json_schema.h"
#include "tests/support/serving.h"

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

}  // namespace
}  // namespace zinc
