#include "server/page.h"

#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

std::string header_of(const HttpResponse& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

HttpRequest get(std::string path, std::vector<HttpHeader> headers = {}) {
  HttpRequest request;
  request.method = "GET";
  request.path = std::move(path);
  request.headers = std::move(headers);
  return request;
}

bool has_page() { return kPageFiles[0].path != nullptr; }

TEST(Page, without_the_page_one_line_says_how_to_build_it) {
  if (has_page()) GTEST_SKIP() << "this build has the page";
  const auto response = page_response(get("/"));
  ASSERT_TRUE(response);
  EXPECT_NE(response->body.find("ZINC_WEB=ON"), std::string::npos);
  EXPECT_EQ(response->body.find('\n'), response->body.size() - 1);
}

TEST(Page, other_paths_are_left_to_the_api) {
  EXPECT_FALSE(page_response(get("/v1/models")));
  EXPECT_FALSE(page_response(get("/assets/../etc/passwd")));
  HttpRequest post = get("/");
  post.method = "POST";
  EXPECT_FALSE(page_response(post));
}

TEST(Page, every_file_is_served_with_the_content_security_policy) {
  if (!has_page()) GTEST_SKIP() << "this build has no page";
  for (const PageFile* file = kPageFiles; file->path; ++file) {
    const auto plain = page_response(get(file->path));
    ASSERT_TRUE(plain) << file->path;
    EXPECT_FALSE(plain->body.empty()) << file->path;
    EXPECT_EQ(header_of(*plain, "Content-Encoding"), "");
    const std::string policy = header_of(*plain, "Content-Security-Policy");
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
    const auto same = page_response(get(file->path, {{"if-none-match", file->etag}}));
    EXPECT_EQ(same->status, 304);
    EXPECT_TRUE(same->body.empty());
  }
}

TEST(Page, encoding_is_used_only_if_the_client_accepts_it) {
  if (!has_page()) GTEST_SKIP() << "this build has no page";
  const auto encoding = [](std::string accepted) {
    return header_of(*page_response(get("/", {{"accept-encoding", std::move(accepted)}})), "Content-Encoding");
  };
  EXPECT_EQ(encoding("gzip, deflate, br"), "br");
  EXPECT_EQ(encoding("gzip, br;q=0"), "gzip");
  EXPECT_EQ(encoding("gzip;q=0.5"), "gzip");
  EXPECT_EQ(encoding("deflate"), "");
}

TEST_F(ApiTest, page_needs_no_key_but_an_allowed_host) {
  make_api({.access = {.keys = {"secret"}, .allowed_hosts = {}, .allowed_origins = {}}});
  EXPECT_EQ(start("GET", "/", "")->response.status, 200);
  EXPECT_EQ(start("GET", "/models", "")->response.status, 401);
  make_api({});
  EXPECT_EQ(start("GET", "/", "", {{"host", "evil.example"}})->response.status, 403);
}

}  // namespace
}  // namespace zinc
