// Where in an answer its form holds, by what the model's family writes around it.
#include <gtest/gtest.h>

#include "server/prepare.h"
#include "tests/support/says.h"
#include "tests/support/scripted_engine.h"

namespace zinc {
namespace {

class AnswerFormTest : public testing::Test {
 protected:
  ChatRequest asked(FormRequest::Kind kind = FormRequest::Kind::json_object) const {
    ChatRequest request;
    request.messages = {{{"role", "user"}, {"content", "hello"}}};
    request.form.kind = kind;
    request.form.field = "response_format";
    return request;
  }
  static json::value tools() {
    return parse_json(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])").value();
  }
  ModelRef of_family(const char* name) {
    ServedModel model = scripted_.model();
    model.tool_format = find_tool_format(name);
    return std::make_shared<const ServedModel>(std::move(model));
  }
  AnswerForm form(const ModelRef& model, ChatRequest request) {
    const OrApiError<PreparedRequest> prepared = prepare(model, std::move(request));
    const auto* made = std::get_if<PreparedRequest>(&prepared);
    if (!made) ADD_FAILURE() << std::get<ApiError>(prepared).message;
    return made ? made->answer.form : AnswerForm();
  }
  TokenId token(std::string_view mark) const {
    std::vector<TokenId> ids;
    scripted_.model().tokenizer.encode(mark, {.parse_special = true}, ids);
    return ids.front();
  }

  ScriptedModel scripted_{ZINC_SOURCE_DIR};
};

TEST_F(AnswerFormTest, holds_from_the_start_where_nothing_is_thought_or_called) {
  ChatRequest request = asked();
  request.thinking = false;
  const AnswerForm made = form(of_family("qwen3"), request);
  EXPECT_TRUE(made.constraint);
  EXPECT_TRUE(made.begins_after.empty());
  EXPECT_TRUE(made.instead.empty());
  EXPECT_FALSE(form(of_family("qwen3"), asked(FormRequest::Kind::any)).constraint);
}

TEST_F(AnswerFormTest, holds_behind_a_thought_and_not_for_a_call) {
  ChatRequest request = asked();
  request.tools = tools();
  const AnswerForm made = form(of_family("qwen3"), request);
  ASSERT_EQ(made.instead.size(), 2u);
  EXPECT_EQ(made.instead[0].token, token("<think>"));
  EXPECT_EQ(made.instead[0].until, "</think>");
  EXPECT_EQ(made.instead[1].token, token("<tool_call>"));
  EXPECT_EQ(made.instead[1].until, "");
}

TEST_F(AnswerFormTest, gpt_oss_has_it_in_its_final_message) {
  const AnswerForm made = form(of_family("gpt-oss"), asked());
  EXPECT_EQ(made.begins_after, (std::vector<std::string>{"<|channel|>final", "<|message|>"}));
  EXPECT_FALSE(made.may_end_before);
  ChatRequest request = asked();
  request.tools = tools();
  EXPECT_TRUE(form(of_family("gpt-oss"), request).may_end_before);
}

TEST_F(AnswerFormTest, what_cannot_be_had_together_is_refused_by_name) {
  ChatRequest request = asked();
  request.tools = tools();
  const auto prepared = prepare(of_family("llama3"), request);
  ASSERT_TRUE(std::holds_alternative<ApiError>(prepared));
  EXPECT_TRUE(says(std::get<ApiError>(prepared).message, {"'response_format' and 'tools'", "cannot be told"}));
  request = asked();
  request.messages.push_back({{"role", "assistant"}, {"content", "{"}});
  request.continues_last = true;
  const auto continued = prepare(of_family("qwen3"), request);
  ASSERT_TRUE(std::holds_alternative<ApiError>(continued));
  EXPECT_TRUE(says(std::get<ApiError>(continued).message, {"continue_final_message"}));
}

TEST_F(AnswerFormTest, requests_with_the_same_schema_share_what_is_known_of_it) {
  ChatRequest request = asked(FormRequest::Kind::json_schema);
  request.form.schema = {{"type", "integer"}};
  const AnswerForm first = form(of_family("qwen3"), request);
  EXPECT_EQ(form(of_family("qwen3"), request).constraint, first.constraint);
  request.form.schema = {{"type", "boolean"}};
  EXPECT_NE(form(of_family("qwen3"), request).constraint, first.constraint);
}

}  // namespace
}  // namespace zinc
