#include "server/http_parser.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

using State = HttpParser::State;

// Feeds `text` in pieces of `n` bytes, as a connection would: unconsumed bytes are passed again, with more appended.
HttpParser parse(std::string_view text, size_t n = 1 << 20, const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  std::string unparsed;
  while (!text.empty() && parser.state() != State::failed && parser.state() != State::done) {
    unparsed += text.substr(0, n);
    text.remove_prefix(std::min(n, text.size()));
    unparsed.erase(0, parser.push(unparsed));
  }
  return parser;
}

constexpr std::string_view kPost =
    "POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nContent-Length: 5\r\n\r\nhello";
constexpr std::string_view kChunked =
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";

TEST(HttpParser, request_does_not_depend_on_how_its_bytes_are_split) {
  for (const size_t n : {1u, 2u, 7u, 1000u}) {
    HttpParser parser = parse(kPost, n);
    ASSERT_EQ(parser.state(), State::done) << n;
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/completions");
    EXPECT_EQ(request.header("x-api-key"), "k");
    EXPECT_EQ(request.header("missing"), "");
    EXPECT_EQ(request.body, "hello");
    EXPECT_TRUE(request.keeps_alive);
  }
}

TEST(HttpParser, chunked_body_is_joined) {
  for (const size_t n : {1u, 3u, 1000u}) {
    HttpParser parser = parse(kChunked, n);
    ASSERT_EQ(parser.state(), State::done) << n;
    EXPECT_EQ(parser.take().body, "hello");
  }
}

TEST(HttpParser, bytes_of_the_next_request_are_not_consumed) {
  HttpParser parser({});
  const std::string two = std::string(kPost) + std::string(kPost);
  EXPECT_EQ(parser.push(two), kPost.size());
  EXPECT_EQ(parser.state(), State::done);
}

TEST(HttpParser, endless_header_is_rejected_with_431) {
  const HttpLimits limits{.header_bytes = 1000, .body_bytes = 10};
  const HttpParser parser = parse("GET / HTTP/1.1\r\nX: " + std::string(5000, 'a'), 100, limits);
  ASSERT_EQ(parser.state(), State::failed);
  EXPECT_EQ(parser.error_status(), 431);
}

TEST(HttpParser, content_length_over_the_limit_is_rejected_before_the_body_arrives) {
  const HttpLimits limits{.header_bytes = 1000, .body_bytes = 10};
  const HttpParser parser = parse("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n", 1 << 20, limits);
  ASSERT_EQ(parser.state(), State::failed);
  EXPECT_EQ(parser.error_status(), 413);
}

TEST(HttpParser, chunks_that_together_exceed_the_limit_are_rejected) {
  const HttpLimits limits{.header_bytes = 1000, .body_bytes = 4};
  const HttpParser parser = parse(kChunked, 5, limits);
  ASSERT_EQ(parser.state(), State::failed);
  EXPECT_EQ(parser.error_status(), 413);
}

TEST(HttpParser, malformed_input_is_rejected_with_400) {
  for (const std::string_view text : {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
                                      "\x16\x03\x01\x02\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                                      "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                                      "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                                      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    const HttpParser parser = parse(text);
    ASSERT_EQ(parser.state(), State::failed) << text;
    EXPECT_EQ(parser.error_status(), 400) << text;
    EXPECT_FALSE(parser.error_message().empty());
  }
}

TEST(HttpParser, expect_100_continue_is_detected) {
  const HttpParser parser = parse("POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(parser.state(), State::body);
  EXPECT_TRUE(parser.wants_continue());
}

TEST(HttpMessage, response_head_has_content_length_or_chunked_encoding) {
  const auto without_date = [](std::string head) {
    const size_t at = head.find("Date: "), end = head.find("\r\n", at);
    EXPECT_TRUE(head.substr(at, end - at).ends_with(" GMT")) << head;
    return head.erase(at, end + 2 - at);
  };
  EXPECT_EQ(without_date(response_head({.status = 404, .body = {}}, 3, true)),
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 3\r\n"
            "Connection: keep-alive\r\n\r\n");
  EXPECT_EQ(without_date(response_head({.status = 200, .body = {}, .content_type = ""}, -1, false)),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
}

TEST(HttpParser, chunk_headers_and_trailers_have_a_limit) {
  const HttpLimits limits;
  const std::string start = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string_view opening : {"1;", "0\r\nX: "}) {
    HttpParser parser(limits);
    std::string input = start + std::string(opening) + std::string(limits.header_bytes + 1, 'a');
    input.erase(0, parser.push(input));
    parser.push(input);
    ASSERT_EQ(parser.state(), HttpParser::State::failed) << opening;
    EXPECT_EQ(parser.error_status(), 431);
  }
}

}  // namespace
}  // namespace zinc
