// Which part of the output is constrained, depending on the model family's output format.
#include <gtest/gtest.h>

#include "server/prepare.h"
#include "tests/support/contains_all.h"
#include "tests/support/scripted_engine.h"

namespace zinc {
namespace {

class StructuredOutputTest : public testing::Test {
 protected:
  ChatRequest make_request(ResponseFormat::Kind kind = ResponseFormat::Kind::json_object) const {
    ChatRequest request;
    request.messages = {{{"role", "user"}, {"content", "hello"}}};
    request.response_format.kind = kind;
    request.response_format.field = "response_format";
    return request;
  }
  static json::value tools() {
    return parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])").value();
  }
  ModelRef model_of_family(const char* name) {
    ServedModel model = scripted_.model();
    model.tool_format = find_tool_format(name);
    return std::make_shared<const ServedModel>(std::move(model));
  }
  OutputConstraint constraint_of(const ModelRef& model, ChatRequest request) {
    const OrApiError<PreparedRequest> prepared = prepare(model, std::move(request));
    const auto* made = std::get_if<PreparedRequest>(&prepared);
    if (!made) ADD_FAILURE() << std::get<ApiError>(prepared).message;
    return made ? made->options.constraint : OutputConstraint();
  }
  TokenId token(std::string_view mark) const {
    std::vector<TokenId> ids;
    scripted_.model().tokenizer.encode(mark, {.parse_special = true}, ids);
    return ids.front();
  }

  ScriptedModel scripted_{ZINC_SOURCE_DIR};
};

TEST_F(StructuredOutputTest, constraint_starts_at_once_without_reasoning_and_tools) {
  ChatRequest request = make_request();
  request.thinking = false;
  const OutputConstraint made = constraint_of(model_of_family("qwen3"), request);
  EXPECT_TRUE(made.grammar);
  EXPECT_TRUE(made.starts_after.empty());
  EXPECT_TRUE(made.alternatives.empty());
  EXPECT_FALSE(constraint_of(model_of_family("qwen3"), make_request(ResponseFormat::Kind::text)).grammar);
}

TEST_F(StructuredOutputTest, constraint_starts_after_reasoning_and_does_not_apply_to_tool_calls) {
  ChatRequest request = make_request();
  request.tools = tools();
  const OutputConstraint made = constraint_of(model_of_family("qwen3"), request);
  ASSERT_EQ(made.alternatives.size(), 2u);
  EXPECT_EQ(made.alternatives[0].token, token("<think>"));
  EXPECT_EQ(made.alternatives[0].ends_with, "</think>");
  EXPECT_EQ(made.alternatives[1].token, token("<tool_call>"));
  EXPECT_EQ(made.alternatives[1].ends_with, "");
}

TEST_F(StructuredOutputTest, constraint_of_gpt_oss_applies_to_its_final_message) {
  const OutputConstraint made = constraint_of(model_of_family("gpt-oss"), make_request());
  EXPECT_EQ(made.starts_after, (std::vector<std::string>{"<|channel|>final", "<|message|>"}));
  EXPECT_FALSE(made.may_end_before_start);
  ChatRequest request = make_request();
  request.tools = tools();
  EXPECT_TRUE(constraint_of(model_of_family("gpt-oss"), request).may_end_before_start);
}

TEST_F(StructuredOutputTest, unsupported_combination_is_rejected_by_name) {
  ChatRequest request = make_request();
  request.tools = tools();
  const auto prepared = prepare(model_of_family("llama3"), request);
  ASSERT_TRUE(std::holds_alternative<ApiError>(prepared));
  EXPECT_TRUE(
      contains_all(std::get<ApiError>(prepared).message, {"'response_format' cannot be combined with 'tools'"}));
  request = make_request();
  request.messages.push_back({{"role", "assistant"}, {"content", "{"}});
  request.continue_final_message = true;
  const auto continued = prepare(model_of_family("qwen3"), request);
  ASSERT_TRUE(std::holds_alternative<ApiError>(continued));
  EXPECT_TRUE(contains_all(std::get<ApiError>(continued).message, {"continue_final_message"}));
}

TEST_F(StructuredOutputTest, requests_with_the_same_schema_share_the_constraint) {
  ChatRequest request = make_request(ResponseFormat::Kind::json_schema);
  request.response_format.schema = {{"type", "integer"}};
  const OutputConstraint first = constraint_of(model_of_family("qwen3"), request);
  EXPECT_EQ(constraint_of(model_of_family("qwen3"), request).grammar, first.grammar);
  request.response_format.schema = {{"type", "boolean"}};
  EXPECT_NE(constraint_of(model_of_family("qwen3"), request).grammar, first.grammar);
}

}  // namespace
}  // namespace zinc
