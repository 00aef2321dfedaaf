#include "server/access.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

HttpRequest request(std::vector<HttpHeader> headers) {
  HttpRequest out;
  out.headers = std::move(headers);
  out.client = "10.0.0.1";
  return out;
}

int status_of(const std::optional<ApiError>& error) { return error ? error->status : 200; }

TEST(Access, only_a_whole_key_opens) {
  const Access access({.keys = {"secret", "other"}, .allowed_hosts = {}, .allowed_origins = {}});
  EXPECT_EQ(status_of(access.check_key(request({{"authorization", "Bearer secret"}}))), 200);
  EXPECT_EQ(status_of(access.check_key(request({{"authorization", "bearer other"}}))), 200);
  EXPECT_EQ(status_of(access.check_key(request({{"x-api-key", "secret"}}))), 200);
  for (const char* wrong : {"Bearer secre", "Bearer secrets", "Bearer ", "Bearer", "Basic secret", "secret"}) {
    EXPECT_EQ(status_of(access.check_key(request({{"authorization", wrong}}))), 401) << wrong;
  }
  EXPECT_EQ(status_of(access.check_key(request({}))), 401);
}

TEST(Access, without_keys_everyone_may) { EXPECT_EQ(status_of(Access({}).check_key(request({}))), 200); }

TEST(Access, name_that_is_not_ours_is_refused_unless_a_key_protects) {
  for (const char* host : {"localhost:8080", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", ""}) {
    EXPECT_EQ(status_of(Access({}).check_page(request({{"host", host}}))), 200) << host;
  }
  for (const char* host : {"evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(status_of(Access({}).check_page(request({{"host", host}}))), 403) << host;
  }
  const Access keyed({.keys = {"k"}, .allowed_hosts = {}, .allowed_origins = {}});
  EXPECT_EQ(status_of(keyed.check_page(request({{"host", "llm.example"}}))), 200);
  const Access named({.keys = {}, .allowed_hosts = {"llm.example"}, .allowed_origins = {}});
  EXPECT_EQ(status_of(named.check_page(request({{"host", "llm.example:80"}}))), 200);
}

TEST(Access, page_of_another_origin_is_refused_unless_allowed) {
  const auto from = [](const char* origin) { return request({{"host", "localhost:8080"}, {"origin", origin}}); };
  EXPECT_EQ(status_of(Access({}).check_page(from("http://localhost:8080"))), 200);
  for (const char* origin : {"http://localhost:3000", "https://evil.example", "null", "garbage"}) {
    EXPECT_EQ(status_of(Access({}).check_page(from(origin))), 403) << origin;
  }
  const Access open({.keys = {}, .allowed_hosts = {}, .allowed_origins = {"https://ui.example"}});
  EXPECT_EQ(status_of(open.check_page(from("https://ui.example"))), 200);
  EXPECT_EQ(open.cors_headers(from("https://ui.example")).front().second, "https://ui.example");
  EXPECT_TRUE(open.cors_headers(from("https://evil.example")).empty());
}

TEST(Access, turns_are_shared_by_key_or_address) {
  EXPECT_EQ(Access({}).client_of(request({})).name, "10.0.0.1");
  const Access keyed({.keys = {"a", "b"}, .allowed_hosts = {}, .allowed_origins = {}});
  const Client a = keyed.client_of(request({{"x-api-key", "a"}}));
  EXPECT_EQ(a.name, keyed.client_of(request({{"authorization", "Bearer a"}})).name);
  EXPECT_NE(a.name, keyed.client_of(request({{"x-api-key", "b"}})).name);
}

TEST(Access, of_several_keys_each_owns_what_it_says) {
  const Access keyed({.keys = {"a", "b"}, .allowed_hosts = {}, .allowed_origins = {}});
  const CacheOwner a = keyed.client_of(request({{"x-api-key", "a"}})).cache_owner;
  EXPECT_NE(a, kEverybody);
  EXPECT_EQ(a, keyed.client_of(request({{"authorization", "Bearer a"}})).cache_owner);
  EXPECT_NE(a, keyed.client_of(request({{"x-api-key", "b"}})).cache_owner);
  const Access single({.keys = {"a"}, .allowed_hosts = {}, .allowed_origins = {}});
  EXPECT_EQ(single.client_of(request({{"x-api-key", "a"}})).cache_owner, kEverybody);
  EXPECT_EQ(Access({}).client_of(request({})).cache_owner, kEverybody);
}

TEST(Access, a_page_of_an_allowed_origin_may_send_the_headers_it_asks_for) {
  const Access access({.keys = {}, .allowed_hosts = {}, .allowed_origins = {"https://page.example"}});
  HttpRequest preflight = request({{"origin", "https://page.example"},
                                   {"access-control-request-headers", "content-type,x-stainless-lang,openai-project"}});
  const auto allowed = [&] {
    for (const HttpHeader& header : access.cors_headers(preflight)) {
      if (header.first == "Access-Control-Allow-Headers") return header.second;
    }
    return std::string();
  };
  EXPECT_EQ(allowed(), "content-type,x-stainless-lang,openai-project");
  preflight.headers[1].second = "x\r\ny: z";
  EXPECT_EQ(allowed().find("y: z"), std::string::npos);
}

TEST(Access, names_of_hosts_have_no_case) {
  const Access access({});
  EXPECT_EQ(status_of(access.check_page(request({{"host", "LocalHost:8080"}}))), 200);
}

}  // namespace
}  // namespace zinc
