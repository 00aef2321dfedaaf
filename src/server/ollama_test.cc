// Ollama's API: fields, streams and routes.
#include <gtest/gtest.h>

#include "server/keep_alive.h"
#include "server/ollama_fields.h"
#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

std::vector<json::object> lines_of(std::string_view stream) {
  std::vector<json::object> out;
  while (!stream.empty()) {
    const size_t end = stream.find('\n');
    EXPECT_NE(end, std::string_view::npos) << "unterminated line: " << stream;
    if (end == std::string_view::npos) break;
    out.push_back(parse_json(stream.substr(0, end)).value().get_object());
    stream.remove_prefix(end + 1);
  }
  return out;
}

// Records calls; a download makes one step per call of list().
class FakeLibrary final : public ModelLibrary {
 public:
  void list(Done<ModelListing> done) override {
    PullStatus pull{.id = "m", .state = states.front(), .n_bytes = 9, .n_done = 5};
    if (pull.state == PullStatus::State::failed) pull.error = "no such file";
    if (states.size() > 1) states.erase(states.begin());
    done(ModelListing{.pull = std::move(pull)});
  }
  void pull(std::string name, Done<PullStatus> done) override {
    calls.push_back("pull " + name);
    if (name == "unknown") return done(bad_field("model", "unknown model 'unknown'"));
    const bool is_installed = name == "here";
    done(PullStatus{.id = std::move(name),
                    .state = is_installed ? PullStatus::State::installed : PullStatus::State::downloading});
  }
  void cancel_pull(std::string, Done<PullStatus>) override {}
  void activate(std::string name, bool, Done<std::string> done) override {
    calls.push_back("activate " + name);
    done(name);
  }
  void ensure_loaded(std::string, Done<std::string> done) override { done(model_not_found("no such model")); }
  void unload(std::string name, Done<std::string> done) override {
    if (name == "unknown") return done(model_not_found("'unknown' is not loaded"));
    if (name == "idle") return done(http_error(404, "'idle' is not loaded"));
    calls.push_back("unload " + name);
    done(name);
  }
  void remove(std::string name, bool, Done<RemovedModel> done) override {
    calls.push_back("remove " + name);
    done(RemovedModel{.id = std::move(name)});
  }

  std::vector<std::string> calls;
  std::vector<PullStatus::State> states = {PullStatus::State::downloading, PullStatus::State::verifying,
                                           PullStatus::State::installed};
};

class OllamaTest : public ApiTest {
 protected:
  void use_library() {
    ApiOptions options;
    options.library = &library_;
    options.swaps_models = true;
    EventLoopPort port = loop_port();
    port.run_after = [this](std::chrono::milliseconds, std::function<void()> task) { loop_.post(std::move(task)); };
    make_api(options, std::move(port));
  }
  json::object get(std::string path) {
    const auto reply = start("GET", std::move(path), "");
    EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; }));
    EXPECT_EQ(reply->response.status, 200);
    return parse_json(reply->response.body).value().get_object();
  }
  std::vector<json::object> stream(std::string path, const json::object& body) {
    const auto reply = ask(std::move(path), to_json(body));
    EXPECT_TRUE(reply->streams) << reply->response.body;
    EXPECT_EQ(reply->response.content_type, "application/x-ndjson");
    return lines_of(reply->stream);
  }
  static json::object ollama_chat(std::string_view text) { return with(chat(text), "stream", false); }

  FakeLibrary library_;
};

void expect_end(const json::object& last) {
  EXPECT_TRUE(last.at("done").as_bool());
  for (const char* name : {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
                           "eval_duration"}) {
    EXPECT_TRUE(last.at(name).is_int64()) << name;
  }
}

TEST_F(OllamaTest, chat_streams_lines_unless_stream_is_false) {
  const std::vector<json::object> lines = stream("/api/chat", chat("SAY[[<think>hm</think>Hello there]]"));
  std::string content, thinking;
  for (const json::object& line : lines) {
    EXPECT_EQ(line.at("model").get_string(), "scripted");
    const json::object& message = line.at("message").get_object();
    EXPECT_EQ(message.at("role").get_string(), "assistant");
    content += text_of(message.at("content").get_string());
    if (const json::value* text = message.if_contains("thinking")) thinking += text_of(text->get_string());
  }
  EXPECT_EQ(content, "Hello there");
  EXPECT_EQ(thinking, "hm");
  EXPECT_FALSE(lines.front().at("done").as_bool());
  expect_end(lines.back());
  EXPECT_EQ(lines.back().at("done_reason").get_string(), "stop");

  const json::object whole = ask_json("/api/chat", ollama_chat("SAY[[Hello there]]"));
  EXPECT_EQ(whole.at("message").at("content").get_string(), "Hello there");
  expect_end(whole);
  EXPECT_GT(whole.at("eval_count").get_int64(), 0);
}

TEST_F(OllamaTest, tool_calls_have_objects_as_arguments) {
  const json::object call = with(chat(kCallText), "tools", kTools);
  const json::object whole = ask_json("/api/chat", with(call, "stream", false));
  const json::value& function = whole.at("message").at("tool_calls").at(0).at("function");
  EXPECT_EQ(function.at("name").get_string(), "weather");
  EXPECT_EQ(function.at("arguments").at("city").get_string(), "Köln");
  std::string city;
  for (const json::object& line : stream("/api/chat", call)) {
    if (const json::value* calls = line.at("message").get_object().if_contains("tool_calls"))
      city = text_of(calls->at(0).at("function").at("arguments").at("city").get_string());
  }
  EXPECT_EQ(city, "Köln");
  // The call and its result in the next turn, as the client package sends them.
  json::object next = ollama_chat("weather?");
  next["messages"].as_array().push_back(
      {{"role", "assistant"}, {"content", ""}, {"tool_calls", whole.at("message").at("tool_calls")}});
  next["messages"].as_array().push_back({{"role", "tool"}, {"content", "SAY[[rain]]"}, {"tool_name", "weather"}});
  EXPECT_EQ(ask_json("/api/chat", next).at("message").at("content").get_string(), "rain");
}

TEST_F(OllamaTest, generate_applies_the_template_unless_raw) {
  const json::object answer =
      ask_json("/api/generate",
               {{"model", "scripted:latest"}, {"prompt", "SAY[[x]]"}, {"system", "Be brief."}, {"stream", false}});
  EXPECT_EQ(answer.at("response").get_string(), "x");
  expect_end(answer);
  const auto prompt = [&] { return scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt); };
  EXPECT_NE(prompt().find("system"), std::string::npos);
  EXPECT_NE(prompt().find("Be brief."), std::string::npos);
  ask_json("/api/generate", {{"prompt", "SAY[[x]]"}, {"raw", true}, {"stream", false}});
  EXPECT_EQ(prompt(), "SAY[[x]]");
}

TEST_F(OllamaTest, options_reach_the_engine) {
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "options",
                             parse_json(R"({"temperature": 0.5, "top_k": 7, "seed": 3, "num_predict": 9, "num_ctx": 512,
                                            "stop": ["END"], "repeat_penalty": 1.1, "mirostat": 0})")
                                 .value()));
  GenerationOptions set = scripted_.engine().last_request().options;
  EXPECT_FLOAT_EQ(set.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(set.sampling.repeat_penalty, 1.1f);
  EXPECT_EQ(set.sampling.top_k, 7);
  EXPECT_EQ(set.sampling.seed, 3u);
  EXPECT_EQ(set.max_tokens, 9);
  EXPECT_EQ(set.stop, std::vector<std::string>{"END"});
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "options", {{"num_predict", -1}}));
  EXPECT_EQ(scripted_.engine().last_request().options.max_tokens, 0);
}

TEST_F(OllamaTest, format_constrains_and_think_switches) {
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "format", "json"));
  EXPECT_TRUE(scripted_.engine().last_request().options.constraint.grammar);
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "format", {{"type", "object"}}));
  EXPECT_TRUE(scripted_.engine().last_request().options.constraint.grammar);
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "think", false));
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_NE(prompt.find("<think>\n\n</think>"), std::string::npos);
}

TEST_F(OllamaTest, errors_are_plain_messages) {
  const auto message = [&](std::string path, const json::object& body, int status) {
    return text_of(ask_json(std::move(path), body, status).at("error").get_string());
  };
  EXPECT_NE(message("/api/chat", with(ollama_chat("x"), "model", "other"), 404).find("'other' not found"),
            std::string::npos);
  json::object image = ollama_chat("x");
  image["messages"].at(0).as_object()["images"] = json::array{"aGk="};
  EXPECT_NE(message("/api/chat", image, 400).find("text only"), std::string::npos);
  EXPECT_NE(message("/api/generate", {{"prompt", "x"}, {"images", json::array{"aGk="}}}, 400).find("text only"),
            std::string::npos);
  EXPECT_NE(message("/api/chat", with(ollama_chat("x"), "keep_alive", "soon"), 400).find("keep_alive"),
            std::string::npos);
  EXPECT_NE(
      message("/api/generate", {{"prompt", "x"}, {"suffix", "y"}, {"stream", false}}, 400).find("fill-in-the-middle"),
      std::string::npos);
  EXPECT_NE(message("/api/create", {}, 501).find("Modelfile"), std::string::npos);
  EXPECT_NE(message("/api/chats", {}, 404).find("/api/chat"), std::string::npos);
}

TEST_F(OllamaTest, error_in_a_stream_is_its_last_line) {
  const std::vector<json::object> lines = stream("/api/chat", chat("FAIL[[x]]"));
  EXPECT_NE(lines.back().at("error").get_string().find("device"), json::string::npos);
}

TEST_F(OllamaTest, models_are_listed_and_shown) {
  const json::object tags = get("/api/tags");
  EXPECT_EQ(tags.at("models").at(0).at("name").get_string(), "scripted");
  EXPECT_EQ(tags.at("models").at(0).at("digest").get_string().size(), 64u);
  EXPECT_EQ(tags.at("models").at(0).at("details").at("format").get_string(), "gguf");
  const json::object ps = get("/api/ps");
  EXPECT_EQ(ps.at("models").at(0).at("model").get_string(), "scripted");
  EXPECT_EQ(ps.at("models").at(0).at("context_length").get_int64(), 4096);
  EXPECT_TRUE(get("/api/version").at("version").is_string());
  const json::object shown = ask_json("/api/show", {{"model", "scripted:latest"}});
  EXPECT_EQ(shown.at("capabilities"), json::value(json::array{"completion", "tools", "thinking"}));
  EXPECT_NE(shown.at("template").get_string().find("im_start"), json::string::npos);
  EXPECT_NE(text_of(ask_json("/api/show", {{"name", "no"}}, 404).at("error").get_string()).find("'no' not found"),
            std::string::npos);
}

TEST_F(OllamaTest, embeddings_in_both_formats) {
  const json::object answer = ask_json("/api/embed", {{"input", json::array{"a", "b"}}, {"keep_alive", "5m"}});
  EXPECT_EQ(answer.at("embeddings").get_array().size(), 2u);
  EXPECT_EQ(answer.at("embeddings").at(0).get_array().size(), 2u);
  EXPECT_EQ(answer.at("prompt_eval_count").get_int64(), 2);
  EXPECT_EQ(ask_json("/api/embeddings", {{"prompt", "a"}}).at("embedding").get_array().size(), 2u);
  std::string text;
  while (text.size() < 20000) text += "word ";
  ask_json("/api/embed", {{"input", text}});
  EXPECT_EQ(scripted_.engine().last_request().prompt.size(), 4096u) << "cut to the context";
  ask_json("/api/embed", {{"input", text}, {"truncate", false}}, 400);
}

TEST_F(OllamaTest, request_without_input_loads_or_unloads) {
  use_library();
  const json::object loaded = ask_json("/api/chat", {{"model", "scripted"}, {"messages", json::array()}});
  EXPECT_EQ(loaded.at("done_reason").get_string(), "load");
  EXPECT_EQ(ask_json("/api/generate", {{"model", "scripted"}}).at("response").get_string(), "");
  EXPECT_TRUE(library_.calls.empty());
  const json::object gone = ask_json("/api/generate", {{"model", "scripted"}, {"keep_alive", 0}});
  EXPECT_EQ(gone.at("done_reason").get_string(), "unload");
  EXPECT_EQ(library_.calls, std::vector<std::string>{"unload scripted"});
}

TEST_F(OllamaTest, unloading_an_unknown_model_is_404) {
  use_library();
  for (const char* path : {"/api/chat", "/api/generate"}) {
    const json::object error = ask_json(path, {{"model", "unknown"}, {"keep_alive", 0}}, 404);
    EXPECT_NE(error.at("error").get_string().find("model 'unknown' not found"), json::string::npos) << path;
    const json::object idle = ask_json(path, {{"model", "idle"}, {"keep_alive", 0}});
    EXPECT_EQ(idle.at("done_reason").get_string(), "unload") << "installed, but not loaded";
  }
  ask_json("/api/generate", {{"keep_alive", 0}});
  EXPECT_EQ(library_.calls, std::vector<std::string>{"unload scripted"}) << "no name: the only model";
}

TEST_F(OllamaTest, idle_model_is_unloaded_after_keep_alive) {
  use_library();
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "keep_alive", "1ms"));
  EXPECT_TRUE(loop_.run_until([&] { return !library_.calls.empty(); }));
  EXPECT_EQ(library_.calls, std::vector<std::string>{"unload scripted"});
  ask_json("/api/chat", with(ollama_chat("SAY[[x]]"), "keep_alive", -1));
  EXPECT_EQ(library_.calls.size(), 1u);
}

TEST_F(OllamaTest, busy_model_is_not_unloaded) {
  use_library();
  const auto waiting = start("POST", "/api/chat", to_json(with(chat("WAIT[[x]]"), "keep_alive", 0)));
  int n_turns = 0;
  EXPECT_TRUE(loop_.run_until([&] { return ++n_turns > 20; }));
  EXPECT_TRUE(library_.calls.empty());
  waiting->disconnect();
  EXPECT_TRUE(loop_.run_until([&] { return !library_.calls.empty(); }));
}

TEST_F(OllamaTest, pull_reports_progress_line_by_line) {
  use_library();
  const std::vector<json::object> lines = stream("/api/pull", {{"model", "m"}});
  std::vector<std::string> states;
  for (const json::object& line : lines) states.push_back(text_of(line.at("status").get_string()));
  EXPECT_EQ(states, (std::vector<std::string>{"pulling manifest", "pulling m", "verifying sha256 digest", "success"}));
  EXPECT_EQ(lines[1].at("total").get_int64(), 9);
  EXPECT_EQ(lines[1].at("completed").get_int64(), 5);
  EXPECT_EQ(library_.calls, std::vector<std::string>{"pull m"}) << "started once";
  EXPECT_EQ(ask_json("/api/pull", {{"model", "here"}, {"stream", false}}).at("status").get_string(), "success");
  ask_json("/api/pull", {{"model", "unknown"}}, 400);
  library_.states = {PullStatus::State::failed};
  EXPECT_EQ(stream("/api/pull", {{"model", "m"}}).back().at("error").get_string(), "no such file");
}

TEST_F(OllamaTest, delete_removes_the_model) {
  use_library();
  const auto reply = start("DELETE", "/api/delete", R"({"model": "m"})");
  EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; }));
  EXPECT_EQ(library_.calls, std::vector<std::string>{"remove m"});
}

TEST(KeepAliveField, durations_of_every_notation) {
  const auto idle_ms = [](const json::value& value) -> std::optional<int64_t> {
    RequestErrors errors;
    const json::object body{{"keep_alive", value}};
    const auto time = read_keep_alive(FieldReader(body, "", errors));
    EXPECT_FALSE(errors.any());
    if (!time || !time->idle) return std::nullopt;
    return time->idle->count();
  };
  EXPECT_EQ(idle_ms("5m"), 300'000);
  EXPECT_EQ(idle_ms("1h30m"), 5'400'000);
  EXPECT_EQ(idle_ms("1.5s"), 1500);
  EXPECT_EQ(idle_ms("300ms"), 300);
  EXPECT_EQ(idle_ms("10"), 10'000);
  EXPECT_EQ(idle_ms(2), 2000);
  EXPECT_EQ(idle_ms(0), 0);
  EXPECT_EQ(idle_ms(-1), std::nullopt);
  EXPECT_EQ(idle_ms("-1m"), std::nullopt);
}

}  // namespace
}  // namespace zinc
