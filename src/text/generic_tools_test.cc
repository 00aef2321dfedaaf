#include "text/generic_tools.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

json::value tools() {
  return parse_json(R"([{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])").value();
}
json::array messages(std::string_view text) { return parse_json(text).value().get_array(); }
std::string content(const json::value& message) { return std::string(message.at("content").get_string()); }

TEST(GenericTools, functions_and_call_syntax_are_described_in_the_system_message) {
  json::array list = messages(R"([{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}])");
  add_generic_tools({.tools = tools(), .format = k_tool_format_plain}, list);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(content(list[0]).starts_with("Be kind.\n\n# Tools"));
  EXPECT_NE(content(list[0]).find(R"({"name":"add","parameters":{"type":"object"}})"), std::string::npos);
  EXPECT_NE(content(list[0]).find("<tool_call>\n{\"name\": \"function_name\", \"arguments\": "), std::string::npos);
  EXPECT_EQ(content(list[1]), "hi");
}

TEST(GenericTools, description_goes_where_the_template_renders_it) {
  json::array list = messages(R"([{"role":"user","content":"hi"}])");
  add_generic_tools({.tools = tools(), .format = k_tool_format_plain}, list);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("role"), "system");
  list = messages(R"([{"role":"user","content":"hi"}])");
  add_generic_tools({.tools = tools(), .format = k_tool_format_plain, .supports_system = false}, list);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(content(list[0]).starts_with("# Tools") && content(list[0]).ends_with("\n\nhi"));
}

TEST(GenericTools, earlier_calls_and_results_become_text_of_alternating_roles) {
  json::array list = messages(R"([{"role":"user","content":"2+3?"},
    {"role":"assistant","content":"Let me see.","tool_calls":[{"id":"1","type":"function","function":{"name":"add","arguments":{"a":2}}}]},
    {"role":"tool","tool_call_id":"1","content":"5"},{"role":"user","content":"thanks"}])");
  EXPECT_TRUE(has_tool_messages(list));
  add_generic_tools({.tools = nullptr, .format = k_tool_format_plain}, list);
  EXPECT_FALSE(has_tool_messages(list));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(content(list[1]), "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":2}}\n</tool_call>");
  EXPECT_EQ(content(list[2]), "<tool_response>\n5\n</tool_response>\n\nthanks");
}

}  // namespace
}  // namespace zinc
