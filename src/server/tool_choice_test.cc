// Every way to force or restrict tool calls, in each API dialect.
#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"
#include "tests/support/contains_all.h"

namespace zinc {
namespace {

constexpr std::string_view kFunction =
    R"({"name": "add", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}})";

// In the syntax of the scripted model.
constexpr std::string_view kCall = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 1}}\n</tool_call>";

class ToolChoiceTest : public ApiTest {
 protected:
  json::object chat_with_tools(std::string_view choice) {
    json::object body = chat("SAY[[x]]");
    body["tools"] = parse_json(fmt::format(R"([{{"type": "function", "function": {}}}])", kFunction)).value();
    body["tool_choice"] = parse_json(choice).value();
    return body;
  }
  json::object messages_with_tools(std::string_view choice) {
    json::object body = chat("SAY[[x]]");
    body["max_tokens"] = 10;
    body["tools"] = parse_json(R"([{"name": "add", "input_schema": {"type": "object"}}])").value();
    body["tool_choice"] = parse_json(choice).value();
    return body;
  }
  json::object responses_with_tools(std::string_view choice) {
    json::object body{{"input", "SAY[[x]]"}};
    body["tools"] = parse_json(R"([{"type": "function", "name": "add", "parameters": {"type": "object"}}])").value();
    body["tool_choice"] = parse_json(choice).value();
    return body;
  }
  bool is_constrained(const std::string& path, const json::object& body) {
    ask_json(path, body);
    return scripted_.engine().last_request().options.constraint.grammar != nullptr;
  }
  // Whether the grammar of the last request allows another call after the first.
  bool allows_second_call() {
    const std::shared_ptr<Constraint> grammar = scripted_.engine().last_request().options.constraint.grammar;
    if (!grammar) return true;
    const Tokenizer& tokenizer = scripted_.model().tokenizer;
    std::vector<TokenId> ids;
    tokenizer.encode(kCall, {.parse_special = true}, ids);
    Constraint::Cursor cursor;
    for (const TokenId id : ids) EXPECT_TRUE(grammar->accept(cursor, id).value()) << tokenizer.decode(ids);
    EXPECT_TRUE(grammar->allows(cursor, tokenizer.eog_tokens().front()).value());
    ids.clear();
    tokenizer.encode(fmt::format("\n{}", kCall), {.parse_special = true}, ids);
    return std::ranges::all_of(ids, [&](TokenId id) { return grammar->accept(cursor, id).value(); });
  }
};

TEST_F(ToolChoiceTest, every_spelling_of_a_forced_call_constrains_the_output) {
  for (
      const char* choice :
      {R"("required")", R"({"type": "function", "function": {"name": "add"}})",
       R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "add"}}]}})"}) {
    EXPECT_TRUE(is_constrained("/v1/chat/completions", chat_with_tools(choice))) << choice;
  }
  for (const char* choice :
       {R"("required")", R"({"type": "function", "name": "add"})",
        R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]})"}) {
    EXPECT_TRUE(is_constrained("/v1/responses", responses_with_tools(choice))) << choice;
  }
  for (const char* choice : {R"({"type": "any"})", R"({"type": "tool", "name": "add"})"}) {
    EXPECT_TRUE(is_constrained("/v1/messages", messages_with_tools(choice))) << choice;
  }
  EXPECT_FALSE(is_constrained("/v1/chat/completions", chat_with_tools(R"("auto")")));
  EXPECT_FALSE(is_constrained("/v1/messages", messages_with_tools(R"({"type": "auto"})")));
}

TEST_F(ToolChoiceTest, a_named_function_is_called_exactly_once) {
  const json::value named = {{"type", "function"}, {"name", "add"}};
  json::object chat_body = chat_with_tools(to_json(named));
  chat_body["messages"] = chat(fmt::format("FLOOD[[{}]]", kCall)).at("messages");
  const json::object chat_answer = ask_json("/v1/chat/completions", chat_body);
  EXPECT_EQ(chat_answer.at("choices").at(0).at("message").at("tool_calls").get_array().size(), 1u);
  EXPECT_EQ(chat_answer.at("choices").at(0).at("finish_reason").get_string(), "tool_calls");
  EXPECT_FALSE(allows_second_call());
  json::object responses_body = responses_with_tools(to_json(named));
  responses_body["input"] = fmt::format("FLOOD[[{}]]", kCall);
  const json::object response = ask_json("/v1/responses", responses_body);
  EXPECT_EQ(response.at("output").get_array().size(), 1u) << to_json(response);
  EXPECT_TRUE(response.at("parallel_tool_calls").get_bool()) << "as in the request";
  EXPECT_FALSE(allows_second_call());
  json::object messages_body = messages_with_tools(R"({"type": "tool", "name": "add"})");
  messages_body["messages"] = chat_body.at("messages");
  messages_body["max_tokens"] = 1000;
  const json::object message = ask_json("/v1/messages", messages_body);
  EXPECT_EQ(message.at("content").get_array().size(), 1u) << to_json(message);
  EXPECT_EQ(message.at("stop_reason").get_string(), "tool_use");
  EXPECT_FALSE(allows_second_call());
  EXPECT_TRUE(scripted_.engine().wait_until_idle());
}

TEST_F(ToolChoiceTest, a_required_call_may_be_several_unless_parallel_calls_are_off) {
  ask_json("/v1/chat/completions", chat_with_tools(R"("required")"));
  EXPECT_TRUE(allows_second_call());
  ask_json("/v1/messages", messages_with_tools(R"({"type": "any"})"));
  EXPECT_TRUE(allows_second_call());
  ask_json("/v1/chat/completions", with(chat_with_tools(R"("required")"), "parallel_tool_calls", false));
  EXPECT_FALSE(allows_second_call());
  ask_json("/v1/messages", messages_with_tools(R"({"type": "any", "disable_parallel_tool_use": true})"));
  EXPECT_FALSE(allows_second_call());
}

TEST_F(ToolChoiceTest, strict_tools_constrain_calls_and_are_not_shown_to_the_template) {
  json::object body = chat_with_tools(R"("auto")");
  body.at("tools").at(0).at("function").get_object()["strict"] = true;
  EXPECT_TRUE(is_constrained("/v1/chat/completions", body));
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_EQ(prompt.find("\"strict\""), std::string::npos);
}

TEST_F(ToolChoiceTest, keyword_that_is_not_enforced_is_a_warning_and_a_400_if_strict) {
  json::object body = chat_with_tools(R"("required")");
  json::object& function = body.at("tools").at(0).at("function").get_object();
  function["parameters"] = parse_json(R"({"type": "object", "patternProperties": {"a": {}}})").value();
  for (int i = 0; i < 2; ++i) {  // the second request shares the constraint of the first
    const auto reply = ask("/v1/chat/completions", to_json(body));
    const json::value answer = parse_json(reply->response.body).value();
    const json::value& warning = answer.at("warnings").at(0);
    EXPECT_EQ(warning.at("code").get_string(), "schema_not_enforced");
    EXPECT_TRUE(
        contains_all(text_of(warning.at("message").get_string()), {"'add'", "\"patternProperties\"", "any JSON"}));
    EXPECT_EQ(reply->log.at("notes").at(0), warning.at("message"));
  }
  function["strict"] = true;
  EXPECT_TRUE(contains_all(expect_error("/v1/chat/completions", body, "tools"), {"'add'", "\"patternProperties\""}));
  function["parameters"] = parse_json(R"({"type": "object", "properties": {"a": {"oneOf": [{"minimum": 1},
                                           {"maximum": 5}]}}})")
                               .value();
  EXPECT_TRUE(
      contains_all(expect_error("/v1/chat/completions", body, "tools"), {"#/properties/a", "\"oneOf\"", "strict"}));
  function["strict"] = false;
  EXPECT_EQ(ask_json("/v1/chat/completions", body).at("warnings").get_array().size(), 1u);
}

TEST_F(ToolChoiceTest, unknown_choice_or_tool_is_a_400) {
  for (const char* choice :
       {R"("maybe")", R"({"type": "custom"})", R"({"type": "function", "function": {"name": "sub"}})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}})", "5"}) {
    const auto reply = ask("/v1/chat/completions", to_json(chat_with_tools(choice)));
    EXPECT_EQ(reply->response.status, 400) << choice;
  }
}

}  // namespace
}  // namespace zinc
