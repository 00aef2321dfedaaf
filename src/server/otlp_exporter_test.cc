#include "server/otlp_exporter.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <future>

#include "server/api.h"
#include "server/http_server.h"
#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

constexpr std::string_view kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736", kParentId = "00f067aa0ba902b7";

json::object line() {
  return {{"time", "1700000000.250"},
          {"method", "POST"},
          {"path", "/v1/chat/completions"},
          {"status", 200},
          {"seconds", 2.0},
          {"prompt_tokens", 12},
          {"first_token_seconds", 0.5},
          {"traceparent", fmt::format("00-{}-{}-01", kTraceId, kParentId)}};
}

TEST(OtlpExporter, spans_continue_the_trace_of_the_client) {
  const json::array spans = spans_of(line());
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("traceId").get_string(), kTraceId);
  EXPECT_EQ(spans[0].at("parentSpanId").get_string(), kParentId);
  EXPECT_EQ(spans[0].at("name").get_string(), "POST /v1/chat/completions");
  EXPECT_EQ(spans[0].at("startTimeUnixNano").get_string(), "1700000000250000000");
  EXPECT_EQ(spans[0].at("endTimeUnixNano").get_string(), "1700000002250000000");
  EXPECT_NE(to_json(spans[0]).find(R"({"key":"gen_ai.usage.input_tokens","value":{"intValue":"12"}})"),
            std::string::npos);
  for (const size_t child : {1u, 2u}) {
    EXPECT_EQ(spans[child].at("traceId").get_string(), kTraceId);
    EXPECT_EQ(spans[child].at("parentSpanId"), spans[0].at("spanId"));
  }
  EXPECT_EQ(spans[1].at("endTimeUnixNano"), spans[2].at("startTimeUnixNano"));
}

TEST(OtlpExporter, request_without_a_trace_starts_one_and_an_unsampled_one_has_no_spans) {
  json::object plain = line();
  plain.erase("traceparent");
  const json::array spans = spans_of(plain);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("traceId").get_string().size(), 32u);
  EXPECT_FALSE(spans[0].as_object().contains("parentSpanId"));
  json::object unsampled = line();
  unsampled["traceparent"] = fmt::format("00-{}-{}-00", kTraceId, kParentId);
  EXPECT_TRUE(spans_of(unsampled).empty());
}

TEST(OtlpExporter, malformed_traceparent_is_not_one) {
  EXPECT_TRUE(is_traceparent(fmt::format("00-{}-{}-01", kTraceId, kParentId)));
  for (const std::string& text :
       {std::string(), std::string(55, '0'), fmt::format("ff-{}-{}-01", kTraceId, kParentId),
        fmt::format("00-{}-{}-01", std::string(32, '0'), kParentId),
        fmt::format("00-{}-{}-01", kTraceId, std::string(16, '0')), fmt::format("00-{}-{}-0g", kTraceId, kParentId),
        fmt::format("00-{}-{}-01-", kTraceId, kParentId)}) {
    EXPECT_FALSE(is_traceparent(text)) << text;
  }
}

TEST(OtlpExporter, spans_reach_a_collector) {
  const auto collector = std::move(HttpServer::listen({.host = "127.0.0.1", .port = 0}, {}).value());
  std::promise<HttpRequest> received;
  bool is_first = true;
  collector->set_handlers(
      [&](HttpRequest request, const std::shared_ptr<Reply>& reply) {
        if (std::exchange(is_first, false)) received.set_value(std::move(request));
        reply->send({.body = "{}"});
      },
      Api::protocol_error, [](const json::object&) {});
  std::thread thread([&] { collector->run(); });
  std::vector<std::string> errors;
  {
    OtlpExporter exporter(fmt::format("http://127.0.0.1:{}/", collector->port()),
                          [&](const std::string& error) { errors.push_back(error); });
    exporter.add(line());
  }  // sends the rest
  collector->stop();
  thread.join();
  EXPECT_TRUE(errors.empty()) << errors.front();
  std::future<HttpRequest> got = received.get_future();
  ASSERT_EQ(got.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  const HttpRequest request = got.get();
  EXPECT_EQ(request.path, "/v1/traces");
  EXPECT_EQ(request.header("content-type"), "application/json");
  const json::value body = parse_json(request.body).value();
  const json::value& sent = body.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans");
  EXPECT_EQ(sent.get_array().size(), 3u);
  EXPECT_EQ(body.at("resourceSpans").at(0).at("resource").at("attributes").at(0).at("key").get_string(),
            "service.name");
}

TEST(OtlpExporter, collector_that_is_away_is_reported_once) {
  boost::asio::io_context loop;  // a bound port on which no program listens, and which no other program can take
  const boost::asio::ip::tcp::socket bound(
      loop, boost::asio::ip::tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), 0));
  const uint16_t port = bound.local_endpoint().port();
  std::vector<std::string> errors;
  {
    OtlpExporter exporter(fmt::format("http://127.0.0.1:{}", port),
                          [&](const std::string& error) { errors.push_back(error); });
    exporter.add(line());
    exporter.add(line());
  }
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("could not be exported"), std::string::npos);
}

}  // namespace
}  // namespace zinc
