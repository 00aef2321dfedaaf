#include "server/http_parser.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fmt/format.h>

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

// Beast asserts that five bytes of it are there; src/CMakeLists.txt turns that assertion off.
TEST(HttpParser, final_chunk_may_arrive_in_pieces) {
  HttpParser parser({});
  std::string unparsed;
  for (const std::string_view piece :
       {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\n", "\r", "\n"}) {
    ASSERT_NE(parser.state(), State::failed) << parser.error_message();
    unparsed += piece;
    unparsed.erase(0, parser.push(unparsed));
  }
  ASSERT_EQ(parser.state(), State::done);
  EXPECT_EQ(parser.take().body, "");
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
  const HttpParser parser = parse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", 1 << 20, limits);
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
  for (const std::string_view text : {"hello\r\n\r\n", "GET / HTTP/9.9\r\nHost: a\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
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

// Each of them let a second request hide in the body of the first one, if a proxy in front reads it differently.
TEST(HttpParser, ambiguous_framing_is_rejected_with_400) {
  for (const std::string_view headers :
       {"Host: a\r\nTransfer-Encoding: xchunked\r\n", "Host: a\r\nTransfer-Encoding: chunked, identity\r\n",
        "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", "Host: a\r\nTransfer-Encoding: identity\r\n",
        "Host: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 3\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Host: a\r\nX: one\r\n two\r\n",
        "Host: a\r\nX: one\r\n\ttwo\r\n", "Host: a\r\nHost: b\r\n", ""}) {
    for (const size_t n : {1u, 1000u}) {
      const HttpParser parser = parse(fmt::format("GET /health HTTP/1.1\r\n{}\r\nGET /metrics", headers), n);
      ASSERT_EQ(parser.state(), State::failed) << headers;
      EXPECT_EQ(parser.error_status(), 400) << headers;
    }
  }
  const HttpParser old = parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  EXPECT_EQ(old.state(), State::failed);
  EXPECT_EQ(parse("GET / HTTP/1.0\r\n\r\n").state(), State::done) << "HTTP/1.0 has no Host header";
}

TEST(HttpParser, body_that_starts_with_a_space_is_not_a_folded_header) {
  for (const size_t n : {1u, 2u, 3u, 1000u}) {
    HttpParser parser = parse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n x", n);
    ASSERT_EQ(parser.state(), State::done) << n;
    EXPECT_EQ(parser.take().body, " x");
  }
}

TEST(HttpParser, absolute_form_and_double_slashes_name_the_same_path) {
  const auto read = [](std::string_view target) {
    return parse(fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target)).take();
  };
  EXPECT_EQ(read("http://Localhost:8091/health?x=1").path, "/health");
  EXPECT_EQ(read("http://Localhost:8091/health").header("host"), "localhost:8091");
  EXPECT_EQ(read("http://b").path, "/");
  EXPECT_EQ(read("//v1//chat///completions").path, "/v1/chat/completions");
  EXPECT_EQ(read("/redirect?to=http://b/c").path, "/redirect");
}

std::string compress(std::string_view text, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

HttpParser parse_encoded(std::string_view coding, std::string_view body, size_t n = 1 << 20) {
  return parse(fmt::format("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: {}\r\nContent-Length: {}\r\n\r\n{}", coding,
                           body.size(), body),
               n, {.header_bytes = 1000, .body_bytes = 100'000});
}

TEST(HttpParser, compressed_body_is_decompressed) {
  constexpr int kGzip = 15 + 16, kZlib = 15;
  const std::string text(50'000, 'x');
  for (const size_t n : {1u, 7u, 1u << 20}) {
    HttpParser gzip = parse_encoded("gzip", compress(text, kGzip), n);
    ASSERT_EQ(gzip.state(), State::done) << gzip.error_message();
    EXPECT_EQ(gzip.take().body, text);
    HttpParser deflate = parse_encoded("deflate", compress(text, kZlib), n);
    ASSERT_EQ(deflate.state(), State::done) << deflate.error_message();
    EXPECT_EQ(deflate.take().body, text);
  }
  EXPECT_EQ(parse_encoded("identity", "plain").take().body, "plain");
  EXPECT_EQ(parse_encoded("gzip", "").take().body, "");
}

TEST(HttpParser, bad_compressed_body_is_rejected) {
  const std::string bomb = compress(std::string(10 << 20, 'x'), 31);
  EXPECT_LT(bomb.size(), 100'000u);
  EXPECT_EQ(parse_encoded("gzip", bomb).error_status(), 413);
  EXPECT_LE(parse_encoded("gzip", bomb).n_body_bytes(), 100'000u);
  const std::string whole = compress("hello", 31);
  EXPECT_EQ(parse_encoded("gzip", whole.substr(0, whole.size() - 3)).error_status(), 400) << "truncated";
  EXPECT_EQ(parse_encoded("gzip", whole + "x").state(), State::failed) << "bytes after the end";
  EXPECT_EQ(parse_encoded("gzip", "plain text").state(), State::failed);
  for (const char* coding : {"br", "zstd", "gzip, gzip"}) EXPECT_EQ(parse_encoded(coding, "x").error_status(), 415);
}

TEST(HttpParser, expect_100_continue_is_detected) {
  const HttpParser parser = parse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n");
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
