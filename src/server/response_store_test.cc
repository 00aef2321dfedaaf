#include "server/response_store.h"

#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

KeptResponse kept(std::string id, size_t n_bytes = 10) {
  json::object response{{"id", id}, {"output", json::array()}};
  return {.id = std::move(id), .input = {}, .response = std::move(response), .n_bytes = n_bytes};
}

TEST(ResponseStore, is_bounded_in_number_bytes_and_age) {
  ResponseStore::Clock::time_point now{};
  ResponseStore store({.n_responses = 2, .bytes = 100, .age = std::chrono::seconds(60)}, [&] { return now; });
  store.put(0, kept("a"));
  store.put(0, kept("b"));
  store.put(0, kept("c"));
  EXPECT_FALSE(store.find(0, "a"));
  EXPECT_TRUE(store.find(0, "b"));
  store.put(0, kept("large", 95));
  EXPECT_FALSE(store.find(0, "c"));
  EXPECT_TRUE(store.find(0, "large"));
  now += std::chrono::seconds(61);
  EXPECT_FALSE(store.find(0, "large"));
}

TEST(ResponseStore, one_namespace_cannot_displace_the_others) {
  ResponseStore store({.n_responses = 4, .bytes = 100, .age = std::chrono::seconds(60)});
  store.put(1, kept("a"));
  for (const char* id : {"b", "c", "d", "e"}) store.put(2, kept(id));
  EXPECT_TRUE(store.find(1, "a"));
  EXPECT_FALSE(store.find(2, "b"));
  store.put(2, kept("large", 85));
  EXPECT_TRUE(store.find(1, "a"));
  EXPECT_FALSE(store.find(2, "e"));
  EXPECT_TRUE(store.find(2, "large"));
}

TEST(ResponseStore, keeps_namespaces_apart) {
  ResponseStore store({});
  store.put(1, kept("a"));
  EXPECT_FALSE(store.find(2, "a"));
  EXPECT_FALSE(store.erase(2, "a"));
  EXPECT_TRUE(store.erase(1, "a"));
  EXPECT_FALSE(store.find(1, "a"));
}

class ResponseRoutesTest : public ApiTest {
 protected:
  json::value get(const std::string& path, int status = 200, std::string method = "GET") {
    const auto reply = start(std::move(method), path, "");
    EXPECT_EQ(reply->response.status, status) << reply->response.body;
    return parse_json(reply->response.body).value();
  }
  std::string last_prompt() { return scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt); }
};

TEST_F(ResponseRoutesTest, previous_response_id_continues_the_conversation) {
  for (const bool stream : {false, true}) {
    const auto reply = ask("/v1/responses", to_json(json::object{{"input", "FIRST SAY[[ONE]]"}, {"stream", stream}}));
    const json::value first = stream ? parse_json(events_of(reply->stream).back().data).value().at("response")
                                     : parse_json(reply->response.body).value();
    const json::object second =
        ask_json("/v1/responses", {{"input", "SAY[[TWO]]"}, {"previous_response_id", first.at("id")}});
    EXPECT_EQ(second.at("previous_response_id"), first.at("id"));
    const std::string prompt = last_prompt();
    EXPECT_LT(prompt.find("FIRST"), prompt.rfind("ONE"));
    EXPECT_LT(prompt.rfind("ONE"), prompt.rfind("TWO"));
    ask_json("/v1/responses", {{"input", "SAY[[THREE]]"}, {"previous_response_id", second.at("id")}});
    EXPECT_LT(last_prompt().find("FIRST"), last_prompt().rfind("TWO")) << "the whole chain";
    const json::object count =
        ask_json("/v1/responses/input_tokens", {{"input", "SAY[[THREE]]"}, {"previous_response_id", second.at("id")}});
    EXPECT_EQ(count.at("input_tokens").get_int64(),
              static_cast<int64_t>(scripted_.engine().last_request().prompt.size()));
  }
  const json::object error = ask_json("/v1/responses", {{"input", "x"}, {"previous_response_id", "resp_1"}}, 400);
  EXPECT_EQ(error.at("error").at("code").get_string(), "previous_response_not_found");
  expect_error("/v1/responses", {{"input", "x"}, {"previous_response_id", 1}}, "previous_response_id");
  ask_json("/v1/responses", {{"input", "SAY[[x]]"}, {"previous_response_id", nullptr}});
}

TEST_F(ResponseRoutesTest, llama_cpps_path_keeps_responses_too) {
  const json::object first = ask_json("/responses", {{"input", "FIRST SAY[[ONE]]"}});
  ask_json("/responses", {{"input", "SAY[[TWO]]"}, {"previous_response_id", first.at("id")}});
  EXPECT_NE(last_prompt().find("FIRST"), std::string::npos);
}

TEST_F(ResponseRoutesTest, item_references_stand_for_items_of_kept_responses) {
  const json::object first = ask_json("/v1/responses", {{"input", "SAY[[ONE]]"}});
  const json::array items{json::object{{"role", "user"}, {"content", "hi"}},
                          json::object{{"type", "item_reference"}, {"id", first.at("output").at(0).at("id")}},
                          json::object{{"role", "user"}, {"content", "SAY[[TWO]]"}}};
  ask_json("/v1/responses", {{"input", items}});
  EXPECT_NE(last_prompt().find("ONE"), std::string::npos);
  expect_error("/v1/responses", {{"input", json::array{json::object{{"type", "item_reference"}, {"id", "msg_x_0"}}}}},
               "input");
}

// A proxy in front of several servers finds in the id which of them keeps the response.
TEST_F(ResponseRoutesTest, ids_begin_with_the_name_of_the_replica) {
  make_api({.replica = "zinc-0"});
  const json::object first = ask_json("/v1/responses", {{"input", "FIRST SAY[[ONE]]"}});
  EXPECT_TRUE(text_of(first.at("id").get_string()).starts_with("resp_zinc-0."));
  const std::string item = text_of(first.at("output").at(0).at("id").get_string());
  EXPECT_TRUE(item.starts_with("msg_zinc-0.")) << item;
  ask_json("/v1/responses", {{"input", "SAY[[TWO]]"}, {"previous_response_id", first.at("id")}});
  EXPECT_NE(last_prompt().find("FIRST"), std::string::npos);
  const json::array items{json::object{{"role", "user"}, {"content", "hi"}},
                          json::object{{"type", "item_reference"}, {"id", item}},
                          json::object{{"role", "user"}, {"content", "SAY[[THREE]]"}}};
  ask_json("/v1/responses", {{"input", items}});
  EXPECT_NE(last_prompt().find("ONE"), std::string::npos);
}

// A reference is short, the item is not: a request of megabytes could become one of gigabytes.
TEST_F(ResponseRoutesTest, referenced_items_count_toward_the_size_limit) {
  ApiOptions options;
  options.limits.http.body_bytes = 4000;
  make_api(options);
  const json::object first = ask_json("/v1/responses", {{"input", "SAY[[" + std::string(500, 'x') + "]]"}});
  const json::object reference{{"type", "item_reference"}, {"id", first.at("output").at(0).at("id")}};
  json::array items(3, reference);
  items.push_back(json::object{{"role", "user"}, {"content", "SAY[[x]]"}});
  ask_json("/v1/responses", {{"input", items}});
  json::array too_many(20, reference);
  EXPECT_NE(expect_error("/v1/responses", {{"input", too_many}}, "input", 413).find("4000"), std::string::npos);
  expect_error("/v1/responses/input_tokens", {{"input", too_many}}, "input", 413);
}

TEST_F(ResponseRoutesTest, kept_responses_are_shown_listed_and_deleted) {
  const json::object first = ask_json("/v1/responses", {{"input", "SAY[[ONE]]"}});
  const std::string path = "/v1/responses/" + text_of(first.at("id").get_string());
  EXPECT_EQ(get(path), json::value(first));
  const json::value items = get(path + "/input_items");
  EXPECT_EQ(items.at("data").at(0).at("content").at(0).at("text").get_string(), "SAY[[ONE]]");
  EXPECT_EQ(items.at("first_id"), items.at("data").at(0).at("id"));
  EXPECT_TRUE(get(path, 200, "DELETE").at("deleted").get_bool());
  get(path, 404);
  get(path + "/input_items", 404);
  get(path, 404, "DELETE");
  EXPECT_EQ(start("POST", path, "{}")->response.status, 405);
}

TEST_F(ResponseRoutesTest, responses_without_store_are_not_kept) {
  const json::object first = ask_json("/v1/responses", {{"input", "SAY[[ONE]]"}, {"store", false}});
  EXPECT_FALSE(first.at("store").get_bool());
  get("/v1/responses/" + text_of(first.at("id").get_string()), 404);
  ApiOptions options;
  options.kept_responses.n_responses = 0;
  make_api(options);
  const json::object second = ask_json("/v1/responses", {{"input", "SAY[[ONE]]"}});
  EXPECT_FALSE(second.at("store").get_bool());
  get("/v1/responses/" + text_of(second.at("id").get_string()), 404);
}

TEST_F(ResponseRoutesTest, keys_do_not_see_each_others_responses) {
  make_api({.access = {.keys = {"a", "b"}, .allowed_hosts = {}, .allowed_origins = {}}});
  const auto first = start("POST", "/v1/responses", R"({"input": "SAY[[ONE]]"})", {{"x-api-key", "a"}});
  ASSERT_TRUE(loop_.run_until([&] { return first->is_over; }));
  const std::string id = text_of(parse_json(first->response.body).value().at("id").get_string());
  EXPECT_EQ(start("GET", "/v1/responses/" + id, "", {{"x-api-key", "a"}})->response.status, 200);
  EXPECT_EQ(start("GET", "/v1/responses/" + id, "", {{"x-api-key", "b"}})->response.status, 404);
  EXPECT_EQ(start("GET", "/v1/responses/" + id, "")->response.status, 401);
}

}  // namespace
}  // namespace zinc
