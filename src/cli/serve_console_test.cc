#include "cli/serve_console.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(ServeConsole, greeting_has_the_addresses_of_page_and_api) {
  EXPECT_EQ(greeting("http://127.0.0.1:8080", {"a", "b"}),
            "Model: a, b\nChat:  http://127.0.0.1:8080\nAPI:   http://127.0.0.1:8080/v1\nCtrl-C stops the server.\n");
  EXPECT_NE(greeting("http://127.0.0.1:8080", {}).find("choose one on the page"), std::string::npos);
}

TEST(ServeConsole, request_is_one_readable_line) {
  EXPECT_EQ(request_line({{"method", "POST"},
                          {"path", "/v1/chat/completions"},
                          {"status", 200},
                          {"seconds", 1.25},
                          {"model", "smollm2"},
                          {"prompt_tokens", 31},
                          {"completion_tokens", 128},
                          {"finish", "end_token"}},
                         "14:05:09"),
            "14:05:09 POST /v1/chat/completions 200 in 1.2 s: smollm2, 31 prompt + 128 tokens, end_token");
  EXPECT_EQ(request_line({{"method", "GET"}, {"path", "/a\nb"}, {"status", 404}, {"seconds", 0.01}}, "00:00:00"),
            "00:00:00 GET /a\\nb 404 in 0.0 s");
  EXPECT_EQ(request_line({{"method", "POST"},
                          {"path", "/tokenize"},
                          {"status", 200},
                          {"seconds", 0.01},
                          {"ignored_fields", "temprature, x"}},
                         "00:00:00"),
            "00:00:00 POST /tokenize 200 in 0.0 s: unknown fields ignored: temprature, x");
}

TEST(ServeConsole, requests_that_the_page_repeats_are_shown_only_if_they_fail) {
  const auto is_shown = [](const char* method, const char* path, int status) {
    return is_shown_on_terminal({{"method", method}, {"path", path}, {"status", status}, {"seconds", 0.01}});
  };
  EXPECT_TRUE(is_shown("POST", "/v1/chat/completions", 200));
  EXPECT_TRUE(is_shown("GET", "/health", 200));
  EXPECT_TRUE(is_shown("POST", "/v1/models/activate", 200));
  for (const char* path : {"/", "/props", "/models", "/v1/models"}) {
    EXPECT_FALSE(is_shown("GET", path, 200)) << path;
    EXPECT_TRUE(is_shown("GET", path, 401)) << path;
  }
  EXPECT_FALSE(is_shown("POST", "/apply-template", 200));
}

TEST(ServeConsole, drain_notice_counts_answers) {
  EXPECT_EQ(drain_notice(1, {.drain = 30}), "finishing 1 answer, 30 s at most; Ctrl-C again ends now");
  EXPECT_EQ(drain_notice(2, {.delay = 7, .drain = 5}),
            "accepting requests for 7 s more, finishing 2 answers, 5 s at most; Ctrl-C again ends now");
}

TEST(ServeConsole, log_format_can_be_chosen) {
  EXPECT_EQ(choose_log_format("json"), LogFormat::json);
  EXPECT_EQ(choose_log_format("text"), LogFormat::text);
}

}  // namespace
}  // namespace zinc
