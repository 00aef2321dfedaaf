#include "server/access_control.h"

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

TEST(AccessControl, only_an_exact_key_is_accepted) {
  const AccessControl access({.keys = {"secret", "other"}, .allowed_hosts = {}, .allowed_origins = {}});
  EXPECT_EQ(status_of(access.check_key(request({{"authorization", "Bearer secret"}}))), 200);
  EXPECT_EQ(status_of(access.check_key(request({{"authorization", "bearer other"}}))), 200);
  EXPECT_EQ(status_of(access.check_key(request({{"x-api-key", "secret"}}))), 200);
  EXPECT_EQ(status_of(access.check_key(request({{"api-key", "secret"}}))), 200) << "Azure's name";
  EXPECT_EQ(status_of(access.check_key(request({{"api-key", "secre"}}))), 401);
  for (const char* wrong : {"Bearer secre", "Bearer secrets", "Bearer ", "Bearer", "Basic secret", "secret"}) {
    EXPECT_EQ(status_of(access.check_key(request({{"authorization", wrong}}))), 401) << wrong;
  }
  EXPECT_EQ(status_of(access.check_key(request({}))), 401);
}

TEST(AccessControl, without_keys_every_request_is_accepted) {
  EXPECT_EQ(status_of(AccessControl({}).check_key(request({}))), 200);
}

TEST(AccessControl, unknown_host_name_is_rejected_unless_a_key_is_required) {
  for (const char* host : {"localhost:8080", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", ""}) {
    EXPECT_EQ(status_of(AccessControl({}).check_origin(request({{"host", host}}))), 200) << host;
  }
  for (const char* host : {"evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(status_of(AccessControl({}).check_origin(request({{"host", host}}))), 403) << host;
  }
  const AccessControl keyed({.keys = {"k"}, .allowed_hosts = {}, .allowed_origins = {}});
  EXPECT_EQ(status_of(keyed.check_origin(request({{"host", "llm.example"}}))), 200);
  const AccessControl named({.keys = {}, .allowed_hosts = {"llm.example"}, .allowed_origins = {}});
  EXPECT_EQ(status_of(named.check_origin(request({{"host", "llm.example:80"}}))), 200);
}

TEST(AccessControl, cross_origin_request_is_rejected_unless_allowed) {
  const auto from = [](const char* origin) { return request({{"host", "localhost:8080"}, {"origin", origin}}); };
  EXPECT_EQ(status_of(AccessControl({}).check_origin(from("http://localhost:8080"))), 200);
  for (const char* origin : {"http://localhost:3000", "https://evil.example", "null", "garbage"}) {
    EXPECT_EQ(status_of(AccessControl({}).check_origin(from(origin))), 403) << origin;
  }
  const AccessControl open({.keys = {}, .allowed_hosts = {}, .allowed_origins = {"https://ui.example"}});
  EXPECT_EQ(status_of(open.check_origin(from("https://ui.example"))), 200);
  EXPECT_EQ(open.cors_headers(from("https://ui.example")).front().second, "https://ui.example");
  EXPECT_TRUE(open.cors_headers(from("https://evil.example")).empty());
}

TEST(AccessControl, local_pages_and_apps_are_allowed_where_they_are_trusted) {
  const AccessControl access({.keys = {}, .allowed_hosts = {}, .allowed_origins = {}, .trusts_local_apps = true});
  const auto from = [](const char* origin) { return request({{"host", "localhost:8080"}, {"origin", origin}}); };
  for (const char* origin : {"http://localhost:3000", "https://127.0.0.1:5173", "http://[::1]:1", "app://obsidian.md",
                             "tauri://localhost", "vscode-webview://1a2b", "file://", "http://ui.localhost"}) {
    EXPECT_EQ(status_of(access.check_origin(from(origin))), 200) << origin;
    EXPECT_EQ(access.cors_headers(from(origin)).front().second, origin);
  }
  for (const char* origin :
       {"null", "https://evil.example", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
        "http://printer.local", "chrome-extension://abc", "http://localhost@evil.example"}) {
    EXPECT_EQ(status_of(access.check_origin(from(origin))), 403) << origin;
    EXPECT_TRUE(access.cors_headers(from(origin)).empty()) << origin;
  }
  for (const char* host : {"host.docker.internal:8080", "my-pc.local", "a.localhost"}) {
    EXPECT_EQ(status_of(access.check_origin(request({{"host", host}}))), 200) << host;
    EXPECT_EQ(status_of(AccessControl({}).check_origin(request({{"host", host}}))), 403) << host;
  }
  EXPECT_EQ(status_of(access.check_origin(request({{"host", "local.evil.example"}}))), 403);
}

TEST(AccessControl, named_keys_can_be_replaced_and_keep_their_usage) {
  const auto named = [](std::string name, std::string_view key) {
    return ApiKeyOptions{.digest = digest_of_key(key), .name = std::move(name), .cache_share = 0.5};
  };
  AccessControl access({.keys = {"plain"},
                        .allowed_hosts = {},
                        .allowed_origins = {},
                        .named_keys = {named("alice", "a"), named("bob", "b")}});
  const Client alice = access.client_of(request({{"x-api-key", "a"}}));
  ASSERT_TRUE(alice.key);
  EXPECT_EQ(alice.cache_share, 0.5);
  EXPECT_FALSE(access.client_of(request({{"x-api-key", "plain"}})).key);
  alice.key->count_tokens(3, 4);
  access.set_named_keys({named("alice", "new")});
  EXPECT_EQ(status_of(access.check_key(request({{"x-api-key", "a"}}))), 401);
  EXPECT_EQ(status_of(access.check_key(request({{"x-api-key", "b"}}))), 401);
  EXPECT_EQ(status_of(access.check_key(request({{"x-api-key", "plain"}}))), 200);
  EXPECT_EQ(access.client_of(request({{"x-api-key", "new"}})).key->usage().n_prompt_tokens, 3u);
}

TEST(AccessControl, client_is_identified_by_key_or_address) {
  EXPECT_EQ(AccessControl({}).client_of(request({})).name, "10.0.0.1");
  const AccessControl keyed({.keys = {"a", "b"}, .allowed_hosts = {}, .allowed_origins = {}});
  const Client a = keyed.client_of(request({{"x-api-key", "a"}}));
  EXPECT_EQ(a.name, keyed.client_of(request({{"authorization", "Bearer a"}})).name);
  EXPECT_NE(a.name, keyed.client_of(request({{"x-api-key", "b"}})).name);
}

TEST(AccessControl, each_of_several_keys_has_its_own_cache_namespace) {
  const AccessControl keyed({.keys = {"a", "b"}, .allowed_hosts = {}, .allowed_origins = {}});
  const CacheNamespace a = keyed.client_of(request({{"x-api-key", "a"}})).cache_namespace;
  EXPECT_NE(a, kSharedNamespace);
  EXPECT_EQ(a, keyed.client_of(request({{"authorization", "Bearer a"}})).cache_namespace);
  EXPECT_NE(a, keyed.client_of(request({{"x-api-key", "b"}})).cache_namespace);
  const AccessControl single({.keys = {"a"}, .allowed_hosts = {}, .allowed_origins = {}});
  EXPECT_EQ(single.client_of(request({{"x-api-key", "a"}})).cache_namespace, kSharedNamespace);
  EXPECT_EQ(AccessControl({}).client_of(request({})).cache_namespace, kSharedNamespace);
}

TEST(AccessControl, preflight_of_an_allowed_origin_echoes_the_requested_headers) {
  const AccessControl access({.keys = {}, .allowed_hosts = {}, .allowed_origins = {"https://page.example"}});
  HttpRequest preflight = request({{"origin", "https://page.example"},
                                   {"access-control-request-headers", "content-type,x-stainless-lang,openai-project"}});
  const auto header_of = [&](std::string_view name) {
    for (const HttpHeader& header : access.cors_headers(preflight)) {
      if (header.first == name) return header.second;
    }
    return std::string();
  };
  const auto allowed = [&] { return header_of("Access-Control-Allow-Headers"); };
  EXPECT_EQ(allowed(), "content-type,x-stainless-lang,openai-project");
  preflight.headers[1].second = "x\r\ny: z";
  EXPECT_EQ(allowed().find("y: z"), std::string::npos);
  for (const char* shown : {"x-request-id", "x-zinc-ignored-fields"})
    EXPECT_NE(header_of("Access-Control-Expose-Headers").find(shown), std::string::npos) << shown;
}

TEST(AccessControl, host_names_are_case_insensitive) {
  const AccessControl access({});
  EXPECT_EQ(status_of(access.check_origin(request({{"host", "LocalHost:8080"}}))), 200);
}

}  // namespace
}  // namespace zinc
