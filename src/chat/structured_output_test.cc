// Which part of the output is constrained, depending on the model family's output format.
#include <gtest/gtest.h>

#include "chat/engine_input.h"
#include "tests/support/contains_all.h"
#include "tests/support/family_model.h"

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
  ChatModel model_of_family(std::string_view name) {
    ChatModel model = qwen3_;
    model.tool_format = find_tool_format(name);
    return model;
  }
  OutputConstraint constraint_of(const ChatModel& model, const ChatRequest& request) {
    return options_of(model, request).constraint;
  }
  GenerationOptions options_of(const ChatModel& model, ChatRequest request) {
    const OrRequestError<EngineInput> input = engine_input(model, request);
    const auto* made = std::get_if<EngineInput>(&input);
    if (!made) ADD_FAILURE() << std::get<RequestError>(input).error.message;
    return made ? made->requests.front().options : GenerationOptions();
  }
  TokenId token(std::string_view mark) const {
    std::vector<TokenId> ids;
    qwen3_.tokenizer.encode(mark, {.parse_special = true}, ids);
    return ids.front();
  }

  const ChatModel qwen3_ = family_model(ZINC_SOURCE_DIR, "qwen3");
};

TEST_F(StructuredOutputTest, constraint_starts_at_once_without_reasoning_and_tools) {
  ChatRequest request = make_request();
  request.thinking = false;
  const GenerationOptions made = options_of(model_of_family("qwen3"), request);
  EXPECT_TRUE(made.constraint.grammar);
  EXPECT_FALSE(made.thinking.starts_open);
  EXPECT_FALSE(made.constraint.reasoning_open);
  EXPECT_FALSE(constraint_of(model_of_family("qwen3"), make_request(ResponseFormat::Kind::text)).grammar);
}

TEST_F(StructuredOutputTest, reasoning_comes_before_the_constraint) {
  const OutputConstraint made = constraint_of(model_of_family("qwen3"), make_request());
  EXPECT_EQ(made.reasoning_open, token("<think>"));
  EXPECT_TRUE(constraint_of(model_of_family("gpt-oss"), make_request()).has_reasoning_in_grammar);
}

TEST_F(StructuredOutputTest, model_that_does_not_think_has_no_reasoning_before_the_constraint) {
  ChatModel model = qwen3_;
  model.thinking = {};  // its vocabulary has the markers
  EXPECT_FALSE(constraint_of(model, make_request()).reasoning_open);
  ChatRequest asked = make_request();
  asked.thinking = true;
  EXPECT_TRUE(constraint_of(model, asked).reasoning_open);
}

TEST_F(StructuredOutputTest, response_format_and_tools_go_together_in_every_family) {
  for (const ToolFormat* const* format = kToolFormats; *format; ++format) {
    ChatRequest request = make_request();
    request.tools = tools();
    const ChatModel model = model_of_family((*format)->name);
    const OutputConstraint made = constraint_of(model, request);
    ASSERT_TRUE(made.grammar) << (*format)->name;
    Constraint::Cursor content, call;
    const auto write = [&](Constraint::Cursor& cursor, std::string_view text) {
      std::vector<TokenId> ids;
      model.tokenizer.encode(text, {.parse_special = true}, ids);
      return std::ranges::all_of(ids, [&](TokenId id) { return made.grammar->accept(cursor, id).value(); });
    };
    const std::string head((*format)->channels.content_open);
    EXPECT_TRUE(write(content, head + "{\"a\": 1}")) << (*format)->name;
    const CallSyntax& calls = (*format)->calls;
    EXPECT_TRUE(write(call, fmt::format("{}{}f{}", calls.begin, calls.open, calls.before_arguments)))
        << (*format)->name;
  }
}

TEST_F(StructuredOutputTest, a_call_is_forced_by_the_tool_choice) {
  ChatRequest request = make_request(ResponseFormat::Kind::text);
  request.tools = tools();
  EXPECT_FALSE(constraint_of(model_of_family("qwen3"), request).grammar) << "auto";
  request.tool_choice.requires_call = true;
  const OutputConstraint made = constraint_of(model_of_family("qwen3"), request);
  ASSERT_TRUE(made.grammar);
  Constraint::Cursor cursor;
  EXPECT_TRUE(made.grammar->allows(cursor, token("<tool_call>")).value());
  EXPECT_FALSE(made.grammar->allows(cursor, token("hello")).value());
  EXPECT_FALSE(made.grammar->allows(cursor, qwen3_.tokenizer.eog_tokens().front()).value());
  request.tool_choice = {.names = {"f"}};
  EXPECT_TRUE(constraint_of(model_of_family("qwen3"), request).grammar) << "allowed tools";
  request.tool_choice = {};
  request.strict_tools = {"f"};
  EXPECT_TRUE(constraint_of(model_of_family("qwen3"), request).grammar) << "strict";
}

TEST_F(StructuredOutputTest, tool_choice_that_cannot_be_obeyed_is_rejected) {
  const auto error_of = [&](ChatRequest request) {
    const OrRequestError<EngineInput> input = engine_input(model_of_family("qwen3"), request);
    const RequestError* error = std::get_if<RequestError>(&input);
    return error ? error->error.message : "";
  };
  ChatRequest request = make_request(ResponseFormat::Kind::text);
  request.tool_choice.requires_call = true;
  EXPECT_TRUE(contains_all(error_of(request), {"'tool_choice' requires a call", "'tools'"}));
  request.tools = tools();
  request.tool_choice.names = {"g"};
  EXPECT_TRUE(contains_all(error_of(request), {"'g'", "not in 'tools'"}));
  request.tool_choice.names = {"f"};
  request.strict_tools = {"f"};
  request.tools.at(0).at("function").at("parameters") = {{"not", json::object()}};
  EXPECT_TRUE(contains_all(error_of(request), {"tool 'f'", "\"not\" is not supported"}));
  request.strict_tools = {};
  EXPECT_EQ(error_of(request), "") << "arguments are any object";
  request = make_request();
  request.messages.push_back({{"role", "assistant"}, {"content", "{"}});
  request.continue_final_message = true;
  EXPECT_TRUE(contains_all(error_of(request), {"continue_final_message"}));
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
