#include "server/api_keys.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

using std::chrono::seconds;

int status_of(const std::variant<std::shared_ptr<void>, ApiError>& admitted) {
  const ApiError* error = std::get_if<ApiError>(&admitted);
  return error ? error->status : 200;
}

TEST(ApiKeys, rate_limit_is_a_bucket_of_a_minutes_requests) {
  const auto key = std::make_shared<ApiKey>(ApiKeyOptions{.name = "alice", .requests_per_minute = 6});
  const ApiKey::Clock::time_point start;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(status_of(key->admit(start)), 200) << i;
  const auto refused = key->admit(start + seconds(3));
  ASSERT_EQ(status_of(refused), 429);
  EXPECT_EQ(std::get<ApiError>(refused).retry_after_s, 7);
  EXPECT_NE(std::get<ApiError>(refused).message.find("6 requests per minute"), std::string::npos);
  EXPECT_EQ(status_of(key->admit(start + seconds(10))), 200);
  EXPECT_EQ(status_of(key->admit(start + seconds(10))), 429);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(status_of(key->admit(start + seconds(1000))), 200) << "no more than a minute's";
  EXPECT_EQ(status_of(key->admit(start + seconds(1000))), 429);
  EXPECT_EQ(key->usage().n_requests, 13u);
  EXPECT_EQ(key->usage().n_over_rate, 3u);
}

TEST(ApiKeys, concurrent_requests_are_limited_until_a_lease_ends) {
  const auto key = std::make_shared<ApiKey>(ApiKeyOptions{.name = "alice", .concurrent_requests = 2});
  auto one = key->admit({});
  const auto two = key->admit({});
  EXPECT_EQ(key->usage().n_running, 2);
  EXPECT_EQ(status_of(key->admit({})), 429);
  one = std::shared_ptr<void>();
  EXPECT_EQ(key->usage().n_running, 1);
  EXPECT_EQ(status_of(key->admit({})), 200);
  EXPECT_EQ(key->usage().n_over_concurrency, 1u);
}

TEST(ApiKeys, file_gives_names_limits_and_keys_or_their_hashes) {
  const auto keys = parse_api_keys(R"({"keys": [
    {"name": "alice", "key": "a", "requests_per_minute": 60, "concurrent_requests": 4, "cache_share": 0.25},
    {"name": "bob", "sha256": "CA978112CA1BBDCAFAC231B39A23DC4DA786EFF8147C4E72B9807785AFEE48BB"}]})");
  ASSERT_FALSE(keys.ok()) << "both have the key 'a'";
  EXPECT_NE(keys.error().message.find("same key"), std::string::npos) << keys.error().message;
  const auto good = parse_api_keys(
      R"({"keys": [{"name": "alice", "key": "a", "requests_per_minute": 60, "cache_share": 0.25}, {"name": "bob", "key": "b"}]})");
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(good.value()[0].digest, digest_of_key("a"));
  EXPECT_EQ(good.value()[0].requests_per_minute, 60);
  EXPECT_EQ(good.value()[0].cache_share, 0.25);
  EXPECT_EQ(good.value()[1].concurrent_requests, 0);
}

TEST(ApiKeys, error_in_the_file_names_the_field) {
  const struct {
    const char *text, *word;
  } cases[] = {{"[]", "keys"},
               {"{\"keys\": []}", "no key"},
               {"{\"key\": []}", "'key'"},
               {R"({"keys": [{"key": "a"}]})", "keys[0].name"},
               {R"({"keys": [{"name": "a"}]})", "keys[0].key"},
               {R"({"keys": [{"name": "a", "key": ""}]})", "keys[0].key"},
               {R"({"keys": [{"name": "a", "key": "a", "sha256": "b"}]})", "keys[0].key"},
               {R"({"keys": [{"name": "a", "sha256": "b"}]})", "keys[0].sha256"},
               {R"({"keys": [{"name": "a", "key": "a", "cache_share": 2}]})", "keys[0].cache_share"},
               {R"({"keys": [{"name": "a", "key": "a", "requests_per_minute": 0}]})", "keys[0].requests_per_minute"},
               {R"({"keys": [{"name": "a", "key": "a", "rpm": 1}]})", "rpm"},
               {R"({"keys": [{"name": "a", "key": "a"}, {"name": "a", "key": "b"}]})", "two keys are named 'a'"}};
  for (const auto& [text, word] : cases) {
    const auto keys = parse_api_keys(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_NE(keys.error().message.find(word), std::string::npos) << keys.error().message;
  }
}

}  // namespace
}  // namespace zinc
