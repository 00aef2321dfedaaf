// Every way to force or restrict tool calls, in each API dialect.
#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

constexpr std::string_view kFunction =
    R"({"name": "add", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}})";

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

TEST_F(ToolChoiceTest, strict_tools_constrain_calls_and_are_not_shown_to_the_template) {
  json::object body = chat_with_tools(R"("auto")");
  body.at("tools").at(0).at("function").get_object()["strict"] = true;
  EXPECT_TRUE(is_constrained("/v1/chat/completions", body));
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_EQ(prompt.find("\"strict\""), std::string::npos);
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
