#include "server/model_swap.h"

#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

// A library with one installed model that is not loaded. The test decides when loading finishes.
class LibraryWithOneMoreModel final : public ModelLibrary {
 public:
  explicit LibraryWithOneMoreModel(ScriptedModel& scripted) : scripted_(scripted) {}

  void list(Done<ModelListing> done) override {
    const auto row = [](std::string id, std::string path, std::optional<std::string> served_as) {
      ListedModel model{.entry = {}, .served_as = std::move(served_as)};
      model.entry.id = id;
      model.entry.name = "The " + id;
      model.entry.license = "MIT";
      model.entry.n_bytes = 5;
      model.entry.path = std::move(path);
      return model;
    };
    done(ModelListing{
        .memory = {.n_bytes = 100},
        .models = {row("catalog-id", "a.gguf", "scripted"), row("other", "b.gguf", {}), row("far", "", {})}});
  }
  void pull(std::string, Done<PullStatus>) override {}
  void cancel_pull(std::string, Done<PullStatus>) override {}
  void activate(std::string, bool, Done<std::string>) override {}
  void unload(std::string, Done<std::string>) override {}
  void remove(std::string, bool, Done<RemovedModel>) override {}
  void ensure_loaded(std::string name, Done<std::string> done) override {
    requested.push_back(name);
    if (name == "unknown") return done(model_not_found("model not found"));
    callbacks.push_back(std::move(done));
  }

  void unload_scripted() { scripted_.models().remove("scripted"); }
  // Finishes loading, as `other`.
  void finish_loading() {
    ServedModel other = *held_;
    other.name = "other";
    scripted_.models().add(std::move(other));
    for (const Done<std::string>& done : std::exchange(callbacks, {})) done("other");
  }

  std::vector<std::string> requested;
  std::vector<Done<std::string>> callbacks;

 private:
  ScriptedModel& scripted_;
  ModelRef held_ = scripted_.models().find("scripted");
};

// A model that the server loads at its start, under two names.
class StartupLoad : public ApiTest {
 protected:
  StartupLoad() {
    held_ = scripted_.models().remove("scripted");
    make_api({});
    api_->begin_load({"scripted", "alias"});
  }
  void finish() {
    ServedModel model = *held_;
    model.aliases = {"alias"};
    scripted_.models().add(std::move(model));
    api_->finish_load("scripted", scripted_.models().find("scripted"));
  }
  std::shared_ptr<TestReply> begin(const json::object& body) {
    return start("POST", "/v1/chat/completions", to_json(body));
  }

  ModelRef held_;
};

TEST_F(StartupLoad, requests_wait_and_health_says_loading) {
  EXPECT_NE(start("GET", "/health", "")->response.body.find("\"loading\""), std::string::npos);
  const auto not_ready = start("GET", "/ready", "")->response;
  EXPECT_EQ(not_ready.status, 503);
  EXPECT_EQ(not_ready.headers.front().first, "Retry-After");
  const auto unnamed = begin(chat("SAY[[one]]")), named = begin(with(chat("SAY[[two]]"), "model", "scripted")),
             aliased = begin(with(chat("SAY[[three]]"), "model", "alias"));
  const auto other = begin(with(chat("SAY[[x]]"), "model", "other"));
  EXPECT_EQ(other->response.status, 503) << "not the model that is being loaded";
  EXPECT_FALSE(unnamed->is_over || named->is_over || aliased->is_over);
  finish();
  ASSERT_TRUE(loop_.run_until([&] { return unnamed->is_over && named->is_over && aliased->is_over; }));
  EXPECT_NE(unnamed->response.body.find("one"), std::string::npos) << unnamed->response.body;
  EXPECT_NE(named->response.body.find("two"), std::string::npos) << named->response.body;
  EXPECT_NE(aliased->response.body.find("\"model\":\"alias\""), std::string::npos) << aliased->response.body;
  EXPECT_NE(start("GET", "/health", "")->response.body.find("\"ok\""), std::string::npos);
  EXPECT_EQ(start("GET", "/ready", "")->response.status, 200);
}

TEST_F(StartupLoad, failed_load_answers_the_waiting_requests) {
  const auto waiting = begin(chat("SAY[[one]]"));
  api_->finish_load("scripted", http_error(503, "the file is broken"));
  EXPECT_EQ(waiting->response.status, 503);
  EXPECT_NE(waiting->response.body.find("the file is broken"), std::string::npos);
  EXPECT_NE(begin(chat("x"))->response.body.find("zinc serve MODEL"), std::string::npos)
      << "what to do without a model";
}

TEST_F(StartupLoad, aliases_are_listed_and_counted_once) {
  finish();
  const json::object list = parse_json(start("GET", "/v1/models", "")->response.body).value().get_object();
  ASSERT_EQ(list.at("data").get_array().size(), 2u);
  EXPECT_EQ(list.at("data").at(1).at("id").get_string(), "alias");
  EXPECT_EQ(list.at("data").at(1).at("root").get_string(), "scripted");
  const std::string metrics = start("GET", "/metrics", "")->response.body;
  EXPECT_EQ(metrics.find("model_name=\"alias\""), std::string::npos);
}

class Swap : public ApiTest {
 protected:
  Swap() { make_api({.library = &library_, .swaps_models = true}); }

  std::shared_ptr<TestReply> begin(const char* model, std::string path = "/v1/chat/completions") {
    return start("POST", std::move(path), to_json(with(with(chat("SAY[[hello]]"), "model", model), "max_tokens", 50)));
  }
  std::string model_of(const std::shared_ptr<TestReply>& reply) {
    EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; })) << "no answer";
    EXPECT_EQ(reply->response.status, 200) << reply->response.body;
    return text_of(parse_json(reply->response.body).value().at("model").get_string());
  }
  json::object get(std::string path) {
    const auto reply = start("GET", std::move(path), "");
    EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; }));
    return parse_json(reply->response.body).value().get_object();
  }

  LibraryWithOneMoreModel library_{scripted_};
};

TEST_F(Swap, request_waits_for_the_model_it_names) {
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
    const auto reply = begin("other", path);
    EXPECT_FALSE(reply->is_over);
    library_.finish_loading();
    EXPECT_EQ(model_of(reply), "other");
    scripted_.models().remove("other");
  }
  EXPECT_EQ(library_.requested, (std::vector<std::string>{"other", "other"}));
}

TEST_F(Swap, request_prepared_on_the_worker_thread_waits_as_well) {
  const std::string text = "SAY[[hello]]" + std::string(ServerLimits().worker_bytes, ' ');
  const auto reply = start("POST", "/v1/chat/completions", to_json(with(chat(text), "model", "other")));
  EXPECT_TRUE(loop_.run_until([&] { return !library_.callbacks.empty(); }));
  library_.finish_loading();
  EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; }));
  EXPECT_NE(reply->response.body.find("prompt is too long"), std::string::npos) << reply->response.body;
}

TEST_F(Swap, requests_for_the_same_model_wait_together) {
  const auto first = begin("other"), second = begin("other");
  library_.unload_scripted();
  const auto nameless = start("POST", "/v1/chat/completions", to_json(chat("SAY[[hello]]")));
  const auto placeholder = begin("default");
  EXPECT_FALSE(nameless->is_over) << nameless->response.body;
  EXPECT_EQ(library_.requested, (std::vector<std::string>{"other"}));
  library_.finish_loading();
  for (const auto& reply : {first, second, nameless, placeholder}) EXPECT_EQ(model_of(reply), "other");
}

TEST_F(Swap, request_without_a_model_name_fails_if_nothing_is_loading) {
  library_.unload_scripted();
  expect_error("/v1/chat/completions", chat("hi"), "", 503);
  EXPECT_TRUE(library_.requested.empty());
}

TEST_F(Swap, model_may_be_served_under_another_name_than_requested) {
  const auto reply = begin("other-from-the-catalog");
  library_.finish_loading();
  EXPECT_EQ(model_of(reply), "other");
}

TEST_F(Swap, model_unloaded_at_once_still_serves_the_waiting_request) {
  const auto reply = begin("other");
  library_.finish_loading();
  scripted_.models().remove("other");
  EXPECT_EQ(model_of(reply), "other");
}

TEST_F(Swap, disconnected_client_is_skipped_after_loading) {
  const auto left = begin("other"), stays = begin("other");
  left->disconnect();
  library_.finish_loading();
  EXPECT_EQ(model_of(stays), "other");
  EXPECT_FALSE(left->is_over);
  EXPECT_EQ(scripted_.engine().n_submitted(), 1);
}

TEST_F(Swap, unknown_model_error_has_the_format_of_its_api) {
  const json::object openai = ask_json("/v1/chat/completions", with(chat("hi"), "model", "unknown"), 404);
  EXPECT_EQ(openai.at("error").at("code").get_string(), "model_not_found");
  const json::object anthropic =
      ask_json("/v1/messages", with(with(chat("hi"), "model", "unknown"), "max_tokens", 5), 404);
  EXPECT_EQ(anthropic.at("error").at("type").get_string(), "not_found_error");
}

TEST_F(Swap, disabled_swapping_keeps_the_loaded_model) {
  make_api({.library = &library_});
  EXPECT_NE(expect_error("/v1/chat/completions", with(chat("hi"), "model", "other"), "model", 404).find("scripted"),
            std::string::npos);
  EXPECT_TRUE(library_.requested.empty());
  EXPECT_EQ(get("/v1/models").at("data").get_array().size(), 1U);
  EXPECT_FALSE(get("/props").at("swaps_models").get_bool());
}

TEST_F(Swap, model_list_has_all_installed_models_and_marks_the_loaded_ones) {
  const json::object list = get("/v1/models");
  const json::array& data = list.at("data").get_array();
  ASSERT_EQ(data.size(), 2U) << to_json(list);
  EXPECT_EQ(data[0].at("id").get_string(), "scripted");
  EXPECT_TRUE(data[0].at("active").get_bool());
  EXPECT_EQ(data[0].at("display_name").get_string(), "The catalog-id");
  EXPECT_TRUE(data[0].get_object().contains("figures"));
  EXPECT_EQ(data[1].at("id").get_string(), "other");
  EXPECT_FALSE(data[1].at("active").get_bool());
  EXPECT_EQ(data[1].at("license").get_string(), "MIT");
  EXPECT_EQ(list.at("last_id").get_string(), "other");
  EXPECT_EQ(list.at("memory_bytes").get_int64(), 100);
  EXPECT_EQ(get("/v1/models/other"), data[1].get_object());
  EXPECT_EQ(get("/v1/models/far").at("error").at("code").get_string(), "model_not_found");
}

TEST_F(ApiTest, placeholder_names_select_the_only_model) {
  for (const char* name : {"", "default", "local-model", "scripted"}) {
    EXPECT_EQ(ask_json("/v1/chat/completions", with(chat("hi"), "model", name)).at("model").get_string(), "scripted");
  }
  for (const char* name : {"gpt-4o", "Default", "scripted2"}) {
    expect_error("/v1/chat/completions", with(chat("hi"), "model", name), "model", 404);
  }
  ServedModel second = scripted_.model();
  second.name = "second";
  scripted_.models().add(std::move(second));
  for (const char* name : {"", "default"}) {
    EXPECT_NE(expect_error("/v1/chat/completions", with(chat("hi"), "model", name), "model").find("scripted, second"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace zinc
