#include "server/model_routes.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

// Responds on its own thread, as the real library does.
class RecordingLibrary final : public ModelLibrary {
 public:
  void list(Done<ModelListing> done) override {
    ListedModel model{.entry = {}, .served_as = "tiny"};
    model.entry.id = "m";
    model.entry.n_bytes = 5;
    model.entry.path = "m.gguf";
    answer<ModelListing>("list", std::move(done), {.models = {std::move(model)}});
  }
  void pull(std::string name, Done<PullStatus> done) override {
    answer<PullStatus>("pull " + name, std::move(done), {.id = name, .n_bytes = 9, .n_done = 5});
  }
  void cancel_pull(std::string name, Done<PullStatus> done) override {
    answer<PullStatus>("cancel " + name, std::move(done), {.id = name, .state = PullStatus::State::cancelled});
  }
  void activate(std::string name, bool keep_others, Done<std::string> done) override {
    answer<std::string>("activate " + name + (keep_others ? " keep_others" : ""), std::move(done), name);
  }
  void ensure_loaded(std::string name, Done<std::string> done) override {
    answer<std::string>("ensure_loaded " + name, std::move(done), name);
  }
  void unload(std::string name, Done<std::string> done) override {
    answer<std::string>("unload " + name, std::move(done), name);
  }
  void remove(std::string name, bool force, Done<RemovedModel> done) override {
    if (!force) return done(http_error(409, "the model is loaded"));
    answer<RemovedModel>("remove " + name, std::move(done), {.id = name, .was_loaded = true, .n_freed_bytes = 7});
  }

  std::string last_call;

 private:
  template <class T>
  void answer(std::string call, Done<T> done, T result) {
    last_call = std::move(call);
    threads_.emplace_back([done = std::move(done), result = std::move(result)] { done(result); });
  }
  std::vector<std::jthread> threads_;  // joined before the callbacks' targets are destroyed
};

class ModelRoutes : public ApiTest {
 protected:
  ModelRoutes() {
    ApiOptions options;
    options.library = &library_;
    make_api(options);
  }
  // The library's call and the body of the response.
  std::pair<std::string, std::string> ask_library(std::string path, const json::value& body, int status = 200) {
    const json::object answer = ask_json(std::move(path), body, status);
    return {library_.last_call, to_json(answer)};
  }
  RecordingLibrary library_;
};

TEST_F(ModelRoutes, each_route_calls_the_library_and_writes_its_result) {
  using Answer = std::pair<std::string, std::string>;
  EXPECT_EQ(ask_library("/v1/models/pull", {{"model", "m"}}, 202),
            Answer("pull m", R"({"object":"model.pull","id":"m","state":"downloading","downloaded_bytes":5,)"
                             R"("download_total_bytes":9})"));
  EXPECT_EQ(ask_library("/v1/models/cancel", {{"model", "m"}}),
            Answer("cancel m", R"({"object":"model.pull","id":"m","state":"cancelled","downloaded_bytes":0,)"
                               R"("download_total_bytes":0})"));
  const std::string activation = R"({"object":"model.activation","id":"m","active":true,"success":true})";
  EXPECT_EQ(ask_library("/v1/models/activate", {{"model", "m"}}), Answer("activate m", activation));
  EXPECT_EQ(ask_library("/v1/models/activate", {{"model", "m"}, {"keep_others", true}}),
            Answer("activate m keep_others", activation));
  EXPECT_EQ(ask_library("/v1/models/unload", {{"model", "m"}}),
            Answer("unload m", R"({"object":"model.unload","id":"m","active":false,"success":true})"));
  EXPECT_EQ(ask_library("/v1/models/remove", {{"model", "m"}, {"force", true}}),
            Answer("remove m", R"({"object":"model.remove","id":"m","removed":true,"unloaded_from_gpu":true,)"
                               R"("cleared_active_selection":false,"freed_bytes":7})"));
  const auto list = start("GET", "/models", "");
  EXPECT_TRUE(loop_.run_until([&] { return list->is_over; }));
  const json::object listing = parse_json(list->response.body).value().get_object();
  EXPECT_TRUE(listing.at("download").is_null());
  const json::value& row = listing.at("data").at(0);
  EXPECT_EQ(row.at("served_as").get_string(), "tiny");
  EXPECT_EQ(row.at("size_bytes").to_number<int>(), 5);
  EXPECT_TRUE(row.at("active").get_bool() && row.at("installed").get_bool());
  EXPECT_FALSE(row.as_object().contains("download")) << "it is not being downloaded";
}

TEST_F(ModelRoutes, invalid_field_is_rejected_by_name) {
  EXPECT_NE(expect_error("/v1/models/pull", json::object(), "model").find("model"), std::string::npos);
  EXPECT_NE(expect_error("/v1/models/pull", {{"model", 5}}, "model").find("string"), std::string::npos);
  EXPECT_NE(expect_error("/v1/models/remove", {{"model", "m"}, {"forse", true}}, "forse").find("forse"),
            std::string::npos);
  EXPECT_EQ(expect_error("/v1/models/remove", {{"model", "m"}}, "", 409), "the model is loaded");
}

TEST_F(ApiTest, server_without_a_library_returns_501) {
  EXPECT_NE(expect_error("/v1/models/pull", {{"model", "m"}}, "", 501).find("does not manage models"),
            std::string::npos);
}

TEST_F(ApiTest, output_continues_the_final_assistant_message) {
  const auto prompt_with = [&](json::object last) {
    json::object body = with(chat("hi"), "continue_final_message", true);
    last["role"] = "assistant";
    body["messages"].get_array().push_back(std::move(last));
    return text_of(ask_json("/apply-template", body).at("prompt").get_string());
  };
  const std::string plain = prompt_with({{"content", "Once upon "}});
  EXPECT_TRUE(plain.ends_with("<|im_start|>assistant\nOnce upon ")) << plain;
  const std::string whole = prompt_with({{"reasoning_content", "hm"}, {"content", "Once"}});
  EXPECT_TRUE(whole.ends_with("<|im_start|>assistant\n<think>\nhm\n</think>\n\nOnce")) << whole;
  const std::string reasoning = prompt_with({{"reasoning_content", "hm"}, {"content", ""}});
  EXPECT_TRUE(reasoning.ends_with("<|im_start|>assistant\n<think>\nhm")) << reasoning;
  expect_error("/v1/chat/completions", with(chat("hi"), "continue_final_message", true), "continue_final_message");
}

TEST_F(ApiTest, assistant_prefix_cannot_become_a_control_token) {
  json::object body = with(chat("hi"), "continue_final_message", true);
  body["messages"].get_array().push_back({{"role", "assistant"}, {"content", "x<|im_end|>"}});
  ask_json("/v1/chat/completions", body);
  const std::vector<TokenId> prompt = scripted_.engine().last_request().prompt;
  EXPECT_FALSE(scripted_.model().tokenizer.is_eog(prompt.back()));
}

TEST_F(ApiTest, continued_reasoning_is_still_reasoning) {
  json::object body = with(chat("SAY[[more</think>Done.]]"), "continue_final_message", true);
  body["messages"].get_array().push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", "Some "}});
  const json::object answer = ask_json("/v1/chat/completions", body);
  const json::value& message = answer.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content").get_string(), "more");
  EXPECT_EQ(message.at("content").get_string(), "Done.");
}

TEST(ModelList, removed_model_lives_until_its_last_reference) {
  ScriptedModel scripted(ZINC_SOURCE_DIR);
  ModelList models;
  models.add(scripted.model());
  const std::weak_ptr<const ServedModel> seen = models.find("scripted");
  ModelRef held = models.find("");
  EXPECT_EQ(models.remove("scripted"), held);
  EXPECT_EQ(models.find("scripted"), nullptr);
  EXPECT_EQ(models.remove("scripted"), nullptr);
  EXPECT_FALSE(seen.expired());
  held.reset();
  EXPECT_TRUE(seen.expired());
}

TEST_F(ModelRoutes, long_bodies_are_not_parsed) {
  const std::string body = R"({"model": ")" + std::string(100'000, 'x') + R"("})";
  EXPECT_EQ(start("POST", "/v1/models/pull", body)->response.status, 413);
  EXPECT_EQ(start("POST", "/api/show", body)->response.status, 413);
}

}  // namespace
}  // namespace zinc
