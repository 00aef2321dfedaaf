#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace zinc {
namespace {

std::string round_trip(std::string_view text) {
  const Result<json::value> parsed = parse_json(text);
  return parsed.ok() ? to_json(parsed.value()) : "error: " + parsed.error().message;
}

TEST(Json, order_and_kinds_are_kept) {
  EXPECT_EQ(round_trip(R"( {"z": 1, "a": [1.0, -2, true, null, "x"], "m": {}} )"),
            R"({"z":1,"a":[1.0,-2,true,null,"x"],"m":{}})");
  EXPECT_TRUE(parse_json("1.0").value().is_double());
  EXPECT_TRUE(parse_json("1").value().is_int64());
  EXPECT_TRUE(parse_json("18446744073709551615").value().is_uint64());
  EXPECT_TRUE(parse_json("18446744073709551616").value().is_double());
}

TEST(Json, doubles_print_in_shortest_form) {
  EXPECT_EQ(round_trip("[0.1, 100.0, 1e2, -0.0, 1e300, 5e-324, 0.30000000000000004, 1e-400]"),
            "[0.1,100.0,100.0,-0.0,1e+300,5e-324,0.30000000000000004,0.0]");
}

TEST(Json, every_double_round_trips) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    const std::string text = to_json(value);
    const Result<json::value> read = parse_json(text);
    ASSERT_TRUE(read.ok() && read.value().is_double()) << text;
    ASSERT_EQ(read.value().get_double(), value) << text;
    ASSERT_EQ(read.value().get_double(), std::strtod(text.c_str(), nullptr)) << text;
  }
}

TEST(Json, numbers_too_large_are_errors) {
  for (const char* text : {"1e309", "[-1e999]", "{\"n\": 1e99999999999999999999}"}) {
    const Result<json::value> parsed = parse_json(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find("at byte"), std::string::npos) << parsed.error().message;
  }
}

TEST(Json, infinity_and_nan_print_as_null) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_json(json::array{infinity, -infinity, std::nan("")}), "[null,null,null]");
}

TEST(Json, errors_give_the_byte_offset) {
  const auto message = [](std::string_view text) { return parse_json(text).error().message; };
  EXPECT_NE(message("{\"a\": 1,, }").find("at byte 8"), std::string::npos) << message("{\"a\": 1,, }");
  EXPECT_NE(message("{} x").find("after the value, at byte 3"), std::string::npos) << message("{} x");
  EXPECT_NE(message("[1, 2").find("at byte 5"), std::string::npos) << message("[1, 2");
  EXPECT_EQ(parse_json("").error().code, ErrorCode::invalid_input);
}

TEST(Json, invalid_json_is_an_error) {
  for (const std::string text : {"",
                                 " ",
                                 "{",
                                 "]",
                                 "{'a': 1}",
                                 "[1,]",
                                 "{\"a\": 1,}",
                                 "[01]",
                                 "[1.]",
                                 "[.5]",
                                 "[+1]",
                                 "[NaN]",
                                 "[Infinity]",
                                 "tru",
                                 "nul",
                                 "\"a",
                                 "\"\\x\"",
                                 "\"\\ud800\"",
                                 "\"\\udc00\"",
                                 "\"\n\"",
                                 "{} {}",
                                 "// c\n{}",
                                 "\xEF\xBB\xBF{}",
                                 "\"\xED\xA0\x80\"",
                                 "\"\xF0\x80\x80\x41\"",
                                 "\"\xE2\x80\x41\"",
                                 "\"\xFF\"",
                                 "[1 2]",
                                 "{1: 2}"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
  EXPECT_FALSE(parse_json(std::string_view("[]\0", 3)).ok());
}

TEST(Json, nesting_is_limited) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(64)).ok());
  EXPECT_FALSE(parse_json(nested(65)).ok());
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(parse_json(std::string(1'000'000, '{')).ok());
}

TEST(Json, strings_are_escaped_and_unescaped) {
  EXPECT_EQ(parse_json(R"("\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00")").value().get_string(), "\"\\/\b\f\n\r\té😀");
  EXPECT_EQ(to_json(json::string("\"\\/\b\f\n\r\t\x01é😀")), R"("\"\\/\b\f\n\r\t\u0001é😀")");
  EXPECT_EQ(parse_json(R"("a\u0000b")").value().get_string().size(), 3u);
}

TEST(Json, output_is_always_valid_utf8) {
  json::object object;
  object["k\xFF"] = "a\xE2\x80";
  EXPECT_EQ(to_json(object), "{\"k\xEF\xBF\xBD\":\"a\xEF\xBF\xBD\"}");
}

TEST(Json, pretty_text_is_indented_and_parses_to_the_same_value) {
  const json::value value = parse_json(R"({"a": [1, {"b": []}], "c": {}, "d": "x"})").value();
  const std::string pretty = to_pretty_json(value);
  EXPECT_EQ(pretty, "{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ],\n  \"c\": {},\n  \"d\": \"x\"\n}");
  EXPECT_EQ(parse_json(pretty).value(), value);
}

}  // namespace
}  // namespace zinc
