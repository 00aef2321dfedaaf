#include "text/tool_schema.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

ParameterTypes types_of(std::string_view schema) {
  const std::string tools =
      "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"p\": " +
      std::string(schema) + "}}}}]";
  return ToolSchemas::read(parse_json(tools).value()).value().types("f", "p");
}

TEST(ToolSchemas, types_come_from_the_schema) {
  EXPECT_EQ(types_of(R"({"type": "string"})"), kStringType);
  EXPECT_EQ(types_of(R"({"type": "integer"})"), kNumberType);
  EXPECT_EQ(types_of(R"({"type": ["string", "null"]})"), kStringType | kNullType);
  EXPECT_EQ(types_of(R"({"enum": ["a", "b"]})"), kStringType);
  EXPECT_EQ(types_of(R"({"const": 3})"), kNumberType);
  EXPECT_EQ(types_of(R"({"anyOf": [{"type": "array"}, {"type": "null"}]})"), kArrayType | kNullType);
}

TEST(ToolSchemas, invalid_schemas_mean_any_type) {
  for (const char* schema : {"{}", "3", "null", R"({"type": "strnig"})", R"({"type": 5})", R"({"type": [[]]})",
                             R"({"anyOf": [{"type": "string"}, {}]})", R"({"anyOf": 1})", R"({"$ref": "#/x"})"}) {
    EXPECT_EQ(types_of(schema), 0) << schema;
  }
}

TEST(ToolSchemas, nested_alternatives_are_limited) {
  std::string schema = "{\"type\": \"string\"}";
  for (int i = 0; i < 12; ++i) schema = "{\"anyOf\": [" + schema + "]}";
  EXPECT_EQ(types_of(schema), 0);
}

// 300 alternatives that refer to 300 alternatives, four times: 8 billion paths.
TEST(ToolSchemas, references_cannot_multiply_the_work) {
  json::object levels;
  levels["4"] = {{"type", "string"}};
  for (int level = 0; level < 4; ++level) {
    const json::object next{{"$ref", "#/properties/" + std::to_string(level + 1)}};
    json::object alternatives;
    alternatives["anyOf"] = json::array(300, next);
    levels[std::to_string(level)] = std::move(alternatives);
  }
  json::object function{{"name", "f"}};
  function["parameters"] = json::object{{"properties", std::move(levels)}};
  const ToolSchemas tools = ToolSchemas::read(json::array{std::move(function)}).value();
  EXPECT_EQ(tools.types("f", "0"), 0);
  EXPECT_EQ(tools.types("f", "4"), kStringType);
}

TEST(ToolSchemas, functions_without_wrapper_are_accepted) {
  const ToolSchemas tools = ToolSchemas::read(parse_json(R"([{"name": "f"}])").value()).value();
  EXPECT_TRUE(tools.has_function("f"));
  EXPECT_FALSE(tools.has_function("g"));
  EXPECT_EQ(tools.types("f", "x"), 0);
  EXPECT_EQ(tools.types("g", "x"), kStringType);
}

TEST(ToolSchemas, invalid_tools_are_errors) {
  for (const char* text :
       {"{}", "3", "[3]", "[{}]", R"([{"name": 3}])", R"([{"name": ""}])", R"([{"function": {}}])"}) {
    const Result<ToolSchemas> tools = ToolSchemas::read(parse_json(text).value());
    ASSERT_FALSE(tools.ok()) << text;
    EXPECT_NE(tools.error().message.find("tools"), std::string::npos);
  }
  EXPECT_TRUE(ToolSchemas::read(nullptr).value().empty());
}

}  // namespace
}  // namespace zinc
