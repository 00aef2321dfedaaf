#include <gtest/gtest.h>

#include <algorithm>

#include "server/http_server.h"
#include "server/load/load_report.h"

#include <thread>

namespace zinc {
namespace {

TEST(RequestMix, kinds_follow_their_weights_and_are_evenly_spread) {
  const auto mix = RequestMix::parse("{\"name\":\"a\",\"weight\":3}\n\n{\"name\":\"b\"}\n", "mix");
  ASSERT_TRUE(mix.ok()) << mix.error().message;
  std::string order;
  for (size_t i = 0; i < 8; ++i) order += mix.value().kind(i).name;
  EXPECT_EQ(std::ranges::count(order, 'a'), 6);
  EXPECT_EQ(order.find("bb"), std::string::npos);
  EXPECT_EQ(order.substr(0, 4), order.substr(4));
}

TEST(RequestMix, request_is_reproducible_and_shares_only_the_shared_prefix_of_its_kind) {
  const auto mix = RequestMix::parse(
      R"({"shared_words": 5, "prompt_words": 7, "max_tokens": 9, "body": {"temperature": 1, "seed": 3}})", "mix");
  ASSERT_TRUE(mix.ok());
  const json::object one = mix.value().body(0), two = mix.value().body(1);
  EXPECT_EQ(to_json(one), to_json(mix.value().body(0)));
  const json::array &first = one.at("messages").get_array(), &second = two.at("messages").get_array();
  EXPECT_EQ(to_json(first[0]), to_json(second[0]));
  EXPECT_NE(to_json(first[1]), to_json(second[1]));
  const std::string_view text = first[1].at("content").get_string();
  EXPECT_EQ(std::ranges::count(text, ' '), 6);
  EXPECT_EQ(one.at("temperature").to_number<int>(), 1);
  EXPECT_EQ(one.at("seed").to_number<int>(), 3);
  EXPECT_EQ(one.at("max_tokens").to_number<int>(), 9);
  EXPECT_TRUE(one.at("stream").get_bool());
}

TEST(RequestMix, error_names_the_line) {
  const auto message = [](std::string_view lines) {
    const auto mix = RequestMix::parse(lines, "m.jsonl");
    return mix.ok() ? "" : mix.error().message;
  };
  EXPECT_NE(message("{}\n{\"weight\": 0}").find("m.jsonl, line 2: 'weight' is 0"), std::string::npos);
  EXPECT_NE(message("{\"wait\": 1}").find("unknown field 'wait'"), std::string::npos);
  EXPECT_NE(message("[").find("line 1"), std::string::npos);
  EXPECT_NE(message("\n\n").find("no requests"), std::string::npos);
}

TEST(Percentiles, are_measured_values) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const Percentiles p = percentiles(values);
  EXPECT_EQ(p.p50, 50);
  EXPECT_EQ(p.p95, 95);
  EXPECT_EQ(p.p99, 99);
  EXPECT_EQ(p.largest, 100);
  EXPECT_EQ(percentiles({}).largest, 0);
  EXPECT_EQ(percentiles({7}).p99, 7);
}

// A server that streams "w w w" with usage, and rejects every fourth request.
class StreamingServer {
 public:
  StreamingServer() : server_(std::move(HttpServer::listen({.host = "127.0.0.1", .port = 0}, {}).value())) {
    server_->set_handlers(
        [this](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
          paths_ = request.path;
          if (++n_requests_ % 4 == 0) return reply->send({.status = 503, .body = "busy"});
          reply->start_stream();
          for (int i = 0; i < 3; ++i) reply->write("data: {\"choices\":[{\"delta\":{\"content\":\"w \"}}]}\n\n");
          reply->write(
              "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":5,"
              "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n");
          reply->end_stream();
        },
        [](int status, std::string_view message) {
          return HttpResponse{.status = status, .body = std::string(message)};
        },
        [](const json::object&) {});
    thread_ = std::jthread([this] { server_->run(); });
  }
  ~StreamingServer() { server_->stop(); }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_->port()); }
  const std::string& path() const { return paths_; }

 private:
  std::unique_ptr<HttpServer> server_;
  int n_requests_ = 0;
  std::string paths_;
  std::jthread thread_;
};

TEST(RunLoad, counts_tokens_and_failures_of_closed_and_open_loops) {
  for (const double per_second : {0.0, 2000.0}) {
    const StreamingServer server;
    const LoadResult figures =
        run_load({.url = server.url(), .key = "k", .n_requests = 16, .n_streams = 4, .per_second = per_second},
                 RequestMix::standard());
    EXPECT_EQ(figures.n_requests, 16u);
    EXPECT_EQ(figures.n_failed, 4u);
    EXPECT_EQ(figures.first_error, "HTTP 503: busy");
    EXPECT_EQ(figures.n_completion, 12 * 5);
    EXPECT_EQ(figures.n_cached, 12 * 4);
    EXPECT_GT(figures.first_token_s.p50, 0);
    EXPECT_GT(figures.tokens_per_s(), 0);
    EXPECT_EQ(server.path(), "/v1/chat/completions");
  }
}

TEST(RunLoad, outputs_are_compared_with_a_sequential_run) {
  const StreamingServer server;
  const LoadResult figures =
      run_load({.url = server.url() + "/v1/", .key = {}, .n_requests = 3, .n_streams = 3, .baseline_url = server.url()},
               RequestMix::standard());
  ASSERT_TRUE(figures.baseline);
  EXPECT_EQ(figures.baseline->n_compared, 2u);  // one of the second round is rejected
  EXPECT_EQ(figures.baseline->n_equal, 2u);
  EXPECT_NE(load_markdown({&figures, 1}).find("2 of 2 outputs equal"), std::string::npos);
}

TEST(RunLoad, unreachable_server_fails_every_request) {
  const LoadResult figures =
      run_load({.url = "http://127.0.0.1:1", .key = {}, .n_requests = 2, .n_streams = 2}, RequestMix::standard());
  EXPECT_EQ(figures.n_failed, 2u);
  EXPECT_EQ(figures.tokens_per_s(), 0);
}

}  // namespace
}  // namespace zinc
