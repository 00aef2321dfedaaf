#include "server/model_routes.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

// Answers on a thread of its own, as the real one does.
class NotingLibrary final : public ModelLibrary {
 public:
  void list(Done done) override { answer("list", std::move(done)); }
  void pull(std::string name, Done done) override { answer("pull " + name, std::move(done), 202); }
  void cancel_pull(std::string name, Done done) override { answer("cancel " + name, std::move(done)); }
  void activate(std::string name, bool beside, Done done) override {
    answer("activate " + name + (beside ? " beside" : ""), std::move(done));
  }
  void bring(std::string name, Done done) override { answer("bring " + name, std::move(done)); }
  void remove(std::string name, bool force, Done done) override {
    if (!force) return done(http_error(409, "it is loaded"));
    answer("remove " + name, std::move(done));
  }

 private:
  void answer(const std::string& what, Done done, int status = 200) {
    threads_.emplace_back([=] { done(LibraryAnswer{.body = {{"did", what}}, .status = status}); });
  }
  std::vector<std::jthread> threads_;  // whoever is told ends after them
};

class ModelRoutes : public ApiTest {
 protected:
  ModelRoutes() {
    ApiOptions options;
    options.library = &library_;
    make_api(options);
  }
  std::string did(std::string path, const json::value& body, int status = 200) {
    return text_of(ask_json(std::move(path), body, status).at("did").get_string());
  }
  NotingLibrary library_;
};

TEST_F(ModelRoutes, each_asks_the_library_and_passes_its_answer_on) {
  EXPECT_EQ(did("/v1/models/pull", {{"model", "m"}}, 202), "pull m");
  EXPECT_EQ(did("/v1/models/cancel", {{"model", "m"}}), "cancel m");
  EXPECT_EQ(did("/v1/models/activate", {{"model", "m"}}), "activate m");
  EXPECT_EQ(did("/v1/models/activate", {{"model", "m"}, {"beside", true}}), "activate m beside");
  EXPECT_EQ(did("/v1/models/remove", {{"model", "m"}, {"force", true}}), "remove m");
  const auto list = start("GET", "/models", "");
  EXPECT_TRUE(loop_.run_until([&] { return list->is_over; }));
  EXPECT_EQ(list->response.body, R"({"did":"list"})");
}

TEST_F(ModelRoutes, what_is_wrong_is_refused_by_name) {
  EXPECT_NE(refusal("/v1/models/pull", json::object(), "model").find("model"), std::string::npos);
  EXPECT_NE(refusal("/v1/models/pull", {{"model", 5}}, "model").find("string"), std::string::npos);
  EXPECT_NE(refusal("/v1/models/remove", {{"model", "m"}, {"forse", true}}, "forse").find("forse"), std::string::npos);
  EXPECT_EQ(refusal("/v1/models/remove", {{"model", "m"}}, "", 409), "it is loaded");
}

TEST_F(ApiTest, a_server_without_a_library_says_so) {
  EXPECT_NE(refusal("/v1/models/pull", {{"model", "m"}}, "", 501).find("manages no models"), std::string::npos);
}

TEST_F(ApiTest, an_answer_goes_on_where_the_last_message_ends) {
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
  const std::string thought = prompt_with({{"reasoning_content", "hm"}, {"content", ""}});
  EXPECT_TRUE(thought.ends_with("<|im_start|>assistant\n<think>\nhm")) << thought;
  refusal("/v1/chat/completions", with(chat("hi"), "continue_final_message", true), "continue_final_message");
}

TEST_F(ApiTest, a_beginning_cannot_become_a_control_token) {
  json::object body = with(chat("hi"), "continue_final_message", true);
  body["messages"].get_array().push_back({{"role", "assistant"}, {"content", "x<|im_end|>"}});
  ask_json("/v1/chat/completions", body);
  const std::vector<TokenId> prompt = scripted_.engine().last_request().prompt;
  EXPECT_FALSE(scripted_.model().tokenizer.is_end(prompt.back()));
}

TEST_F(ApiTest, a_thought_that_is_gone_on_with_is_still_a_thought) {
  json::object body = with(chat("SAY[[more</think>Done.]]"), "continue_final_message", true);
  body["messages"].get_array().push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", "Some "}});
  const json::object answer = ask_json("/v1/chat/completions", body);
  const json::value& message = answer.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content").get_string(), "more");
  EXPECT_EQ(message.at("content").get_string(), "Done.");
}

TEST(ModelList, a_model_that_was_removed_lives_while_somebody_answers_with_it) {
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

}  // namespace
}  // namespace zinc
