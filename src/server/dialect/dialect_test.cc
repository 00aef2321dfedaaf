// How each API dialect writes a response.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

using DialectTest = ApiTest;

TEST_F(DialectTest, chat_returns_the_text_unchanged) {
  const std::string text = "Same. Same. Same.\n# A heading\n- \xE4\xBD\xA0";  // nothing is trimmed or repaired
  const json::object response = ask_json("/v1/chat/completions", chat("SAY[[" + text + "]]"));
  const json::object& choice = response.at("choices").at(0).get_object();
  EXPECT_EQ(choice.at("message").at("content").get_string(), text);
  EXPECT_EQ(choice.at("finish_reason").get_string(), "stop");
  EXPECT_EQ(response.at("object").get_string(), "chat.completion");
  EXPECT_GT(response.at("usage").at("prompt_tokens").get_int64(), 0);
  EXPECT_EQ(response.at("usage").at("prompt_tokens_details").at("cached_tokens").get_int64(), 0);
}

TEST_F(DialectTest, streamed_chat_returns_the_same_text_and_ends_with_done) {
  const auto reply =
      ask("/v1/chat/completions", to_json(with(with(chat("SAY[[<think>why</think>\xC3\xA4 b\nc]]"), "stream", true),
                                               "stream_options", {{"include_usage", true}})));
  const std::vector<SseEvent> events = events_of(reply->stream);
  EXPECT_EQ(joined(events, [](const json::object& c) { return delta_field(c, "content"); }), "\xC3\xA4 b\nc");
  EXPECT_EQ(joined(events, [](const json::object& c) { return delta_field(c, "reasoning_content"); }), "why");
  EXPECT_EQ(delta_field(parse_json(events[0].data).value().get_object(), "role"), "assistant");
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back().data, "[DONE]");
  const json::value usage = parse_json(events[events.size() - 2].data).value();
  EXPECT_TRUE(usage.at("choices").get_array().empty());
  EXPECT_GT(usage.at("usage").at("completion_tokens").get_int64(), 0);
  const json::value last = parse_json(events[events.size() - 3].data).value();
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason").get_string(), "stop");
}

TEST_F(DialectTest, streamed_chat_counts_tokens_if_progress_is_requested) {
  for (const bool asks : {true, false}) {
    json::object body = with(with(chat("SAY[[one two three four]]"), "stream", true), "return_progress", asks);
    const auto reply = ask("/v1/chat/completions", to_json(with(body, "stream_options", {{"include_usage", true}})));
    std::vector<int64_t> counts;
    int64_t n_all = 0;
    for (const SseEvent& event : events_of(reply->stream)) {
      if (event.data == "[DONE]") continue;
      const json::object chunk = parse_json(event.data).value().get_object();
      if (const json::value* n = chunk.if_contains("completion_tokens")) counts.push_back(n->get_int64());
      if (chunk.contains("usage") && chunk.at("usage").is_object()) {
        n_all = chunk.at("usage").at("completion_tokens").get_int64();
      }
    }
    EXPECT_EQ(counts.empty(), !asks);
    if (counts.empty()) continue;
    EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end()));
    EXPECT_GT(counts.front(), 0);
    EXPECT_LE(counts.back(), n_all);
  }
}

TEST_F(DialectTest, tool_call_has_json_arguments) {
  const json::object response = ask_json("/v1/chat/completions", with(chat(kCallText), "tools", kTools));
  const json::value& choice = response.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").get_string(), "tool_calls");
  EXPECT_EQ(choice.at("message").at("reasoning_content").get_string(), "hm");
  EXPECT_EQ(choice.at("message").at("content").get_string(), "Let me see.");
  const json::value& call = choice.at("message").at("tool_calls").at(0);
  EXPECT_EQ(call.at("function").at("name").get_string(), "weather");
  const json::value arguments = parse_json(call.at("function").at("arguments").get_string().c_str()).value();
  EXPECT_EQ(arguments.at("city").get_string(), "K\xC3\xB6ln");
  EXPECT_EQ(call.at("id").get_string().size(), 9u);
}

TEST_F(DialectTest, streamed_tool_call_deltas_add_up_to_the_call) {
  const auto reply = ask("/v1/chat/completions", to_json(with(with(chat(kCallText), "tools", kTools), "stream", true)));
  std::string name, arguments, id, finish;
  for (const SseEvent& event : events_of(reply->stream)) {
    if (event.data == "[DONE]") continue;
    const json::value chunk = parse_json(event.data).value();
    const json::value& choice = chunk.at("choices").at(0);
    if (choice.at("finish_reason").is_string()) finish = text_of(choice.at("finish_reason").get_string());
    const json::value* calls = choice.at("delta").get_object().if_contains("tool_calls");
    if (!calls) continue;
    const json::object& call = calls->at(0).get_object();
    EXPECT_EQ(call.at("index").get_int64(), 0);
    if (call.contains("id")) id += text_of(call.at("id").get_string());
    const json::object& function = call.at("function").get_object();
    if (function.contains("name")) name += text_of(function.at("name").get_string());
    arguments += text_of(function.at("arguments").get_string());
  }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_EQ(parse_json(arguments).value().at("city").get_string(), "K\xC3\xB6ln");
}

TEST_F(DialectTest, malformed_tool_call_is_returned_as_content_with_a_warning) {
  const json::object response = ask_json(
      "/v1/chat/completions",
      with(chat("SAY[[<tool_call>\n{\"name\": \"weather\", \"arguments\": {oops\n</tool_call>]]"), "tools", kTools));
  const json::value& choice = response.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").get_string(), "stop");
  EXPECT_FALSE(choice.at("message").get_object().contains("tool_calls"));
  EXPECT_NE(std::string_view(choice.at("message").at("content").get_string()).find("oops"), std::string_view::npos);
  EXPECT_EQ(response.at("warnings").at(0).at("code").get_string(), "malformed_call");
}

TEST_F(DialectTest, streamed_tool_call_indices_skip_malformed_calls) {
  const std::string broken = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": }}\n</tool_call>\n";
  const std::string good = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>\n";
  json::object body = with(chat("SAY[[" + broken + good + broken + good + "]]"), "tools", kTools);
  std::vector<int64_t> indices;
  for (const SseEvent& event : events_of(ask("/v1/chat/completions", to_json(with(body, "stream", true)))->stream)) {
    if (event.data == "[DONE]") continue;
    const json::value chunk = parse_json(event.data).value();
    const json::value* calls = chunk.at("choices").at(0).at("delta").get_object().if_contains("tool_calls");
    if (calls) indices.push_back(calls->at(0).at("index").get_int64());
  }
  ASSERT_FALSE(indices.empty());
  EXPECT_EQ(indices.front(), 0);
  EXPECT_EQ(indices.back(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(indices));
}

TEST_F(DialectTest, without_parallel_tool_calls_generation_stops_after_the_first) {
  const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>\n";
  const json::object one = ask_json(
      "/v1/chat/completions", with(with(chat("FLOOD[[" + call + "]]"), "tools", kTools), "parallel_tool_calls", false));
  EXPECT_EQ(one.at("choices").at(0).at("message").at("tool_calls").get_array().size(), 1u);
  EXPECT_EQ(one.at("choices").at(0).at("finish_reason").get_string(), "tool_calls");
  EXPECT_TRUE(scripted_.engine().wait_until_idle());
  const json::object two = ask_json("/v1/chat/completions", with(chat("SAY[[" + call + call + "]]"), "tools", kTools));
  EXPECT_EQ(two.at("choices").at(0).at("message").at("tool_calls").get_array().size(), 2u);
}

TEST_F(DialectTest, tool_choice_none_hides_the_tools) {
  ask_json("/v1/chat/completions", with(with(chat("SAY[[x]]"), "tools", kTools), "tool_choice", "none"));
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_EQ(prompt.find("weather"), std::string::npos);
}

TEST_F(DialectTest, logprobs_cover_every_token_streamed_or_not) {
  const json::object body = with(with(chat("SAY[[a b c]]"), "logprobs", true), "top_logprobs", 2);
  const json::object response = ask_json("/v1/chat/completions", body);
  const json::array& tokens = response.at("choices").at(0).at("logprobs").at("content").get_array();
  EXPECT_EQ(static_cast<int64_t>(tokens.size()), response.at("usage").at("completion_tokens").get_int64());
  EXPECT_EQ(tokens[0].at("top_logprobs").get_array().size(), 2u);
  size_t n = 0;
  for (const SseEvent& event : events_of(ask("/v1/chat/completions", to_json(with(body, "stream", true)))->stream)) {
    if (event.data == "[DONE]") continue;
    const json::value chunk = parse_json(event.data).value();
    const json::value& logprobs = chunk.at("choices").at(0).at("logprobs");
    if (logprobs.is_object()) n += logprobs.at("content").get_array().size();
  }
  EXPECT_EQ(n, tokens.size());
}

TEST_F(DialectTest, completions_accept_strings_and_token_ids) {
  const json::object response =
      ask_json("/v1/completions", {{"prompt", json::array{"SAY[[a]]", "SAY[[b]]"}}, {"max_tokens", 50}});
  EXPECT_EQ(response.at("choices").at(0).at("text").get_string(), "a");
  EXPECT_EQ(response.at("choices").at(1).at("text").get_string(), "b");
  EXPECT_EQ(response.at("object").get_string(), "text_completion");
  std::vector<TokenId> tokens;
  scripted_.model().tokenizer.encode("SAY[[c]]", {}, tokens);
  const json::object echoed = ask_json(
      "/v1/completions", {{"prompt", json::array(tokens.begin(), tokens.end())}, {"echo", true}, {"max_tokens", 9}});
  EXPECT_EQ(echoed.at("choices").at(0).at("text").get_string(), "SAY[[c]]c");
  expect_error("/v1/completions", {{"prompt", json::array{1, 999999}}}, "prompt");
  expect_error("/v1/completions", {{"prompt", json::array{1, "x"}}}, "prompt");
  expect_error("/v1/completions", {{"prompt", "x"}, {"suffix", "y"}}, "suffix");
}

TEST_F(DialectTest, echo_has_logprobs_of_the_prompt) {
  const json::object body{{"prompt", "SAY[[b]]"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}};
  const json::object response = ask_json("/v1/completions", body);
  const json::value& logprobs = response.at("choices").at(0).at("logprobs");
  const int64_t n_prompt = response.at("usage").at("prompt_tokens").get_int64();
  EXPECT_EQ(static_cast<int64_t>(logprobs.at("tokens").get_array().size()), n_prompt + 1);
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_NEAR(logprobs.at("token_logprobs").at(1).get_double(), -0.5, 1e-6);
  EXPECT_EQ(response.at("choices").at(0).at("text").get_string(), "SAY[[b]]b");
  const json::object only = ask_json("/v1/completions", with(body, "max_tokens", 0));
  EXPECT_EQ(static_cast<int64_t>(only.at("choices").at(0).at("logprobs").at("tokens").get_array().size()), n_prompt);
  EXPECT_EQ(only.at("choices").at(0).at("text").get_string(), "SAY[[b]]");
  EXPECT_EQ(only.at("usage").at("completion_tokens").get_int64(), 0);
  const json::object vllm = ask_json("/v1/completions", {{"prompt", "SAY[[b]]"}, {"prompt_logprobs", 0}});
  EXPECT_EQ(static_cast<int64_t>(vllm.at("choices").at(0).at("prompt_logprobs").get_array().size()), n_prompt);
  expect_error("/v1/completions", with(body, "stream", true), "stream");
  EXPECT_EQ(start("GET", "/tokenizer_info", "")->response.status, 200);
}

TEST_F(DialectTest, completions_default_to_openais_16_tokens) {
  const json::object response = ask_json("/v1/completions", {{"prompt", "FLOOD[[a b c d e f]]"}});
  EXPECT_EQ(response.at("usage").at("completion_tokens").get_int64(), 16);
  EXPECT_EQ(response.at("choices").at(0).at("finish_reason").get_string(), "length");
}

TEST_F(DialectTest, anthropic_message_has_blocks) {
  json::object body = with(chat(kCallText), "max_tokens", 500);
  body["tools"] = parse_json(R"([{"name": "weather", "input_schema": {"type": "object", "properties":
    {"city": {"type": "string"}}}}])")
                      .value();
  const json::object response = ask_json("/v1/messages", body);
  const json::array& content = response.at("content").get_array();
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0].at("thinking").get_string(), "hm");
  EXPECT_EQ(content[1].at("text").get_string(), "Let me see.");
  EXPECT_EQ(content[2].at("input").at("city").get_string(), "K\xC3\xB6ln");
  EXPECT_EQ(response.at("stop_reason").get_string(), "tool_use");

  const std::vector<SseEvent> events = events_of(ask("/v1/messages", to_json(with(body, "stream", true)))->stream);
  EXPECT_EQ(events.front().name, "message_start");
  EXPECT_EQ(events.back().name, "message_stop");
  int n_open = 0, n_blocks = 0;
  for (const SseEvent& event : events) {
    const json::value data = parse_json(event.data).value();
    EXPECT_EQ(data.at("type").get_string(), event.name);
    if (event.name == "content_block_start") {
      EXPECT_EQ(data.at("index").get_int64(), n_blocks++);
      EXPECT_EQ(++n_open, 1);
    }
    if (event.name == "content_block_stop") {
      EXPECT_EQ(--n_open, 0);
    }
  }
  EXPECT_EQ(n_blocks, 3);
}

TEST_F(DialectTest, anthropic_tool_results_become_tool_messages) {
  const json::value body =
      parse_json(R"({"max_tokens": 50, "system": [{"type": "text", "text": "Be brief."}], "messages": [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""},
      {"type": "tool_use", "id": "abcdefghi", "name": "weather", "input": {"city": "Ulm"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "abcdefghi", "content": [{"type": "text",
      "text": "SAY[[rain]]"}]}]}]})")
          .value();
  const json::object response = ask_json("/v1/messages", body);
  EXPECT_EQ(response.at("content").at(0).at("text").get_string(), "rain");
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_NE(prompt.find("<tool_response>"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("\"city\": \"Ulm\""), std::string::npos) << prompt;
  const json::object count = ask_json("/v1/messages/count_tokens", body);
  EXPECT_EQ(count.at("input_tokens").get_int64(),
            static_cast<int64_t>(scripted_.engine().last_request().prompt.size()));
}

TEST_F(DialectTest, anthropic_errors_have_anthropics_format) {
  const json::object response = ask_json("/v1/messages", chat("x"), 400);
  EXPECT_EQ(response.at("type").get_string(), "error");
  EXPECT_EQ(response.at("error").at("type").get_string(), "invalid_request_error");
}

TEST_F(DialectTest, billing_header_checksum_does_not_change_the_prompt) {
  const auto tokens_with = [&](std::string_view checksum) {
    ask_json("/v1/messages",
             with(with(chat("SAY[[x]]"), "max_tokens", 5), "system",
                  json::string(
                      fmt::format("x-anthropic-billing-header: cc_version=2.1; cch={};You are helpful.", checksum))));
    return scripted_.engine().last_request().prompt;
  };
  EXPECT_EQ(tokens_with("a5145"), tokens_with("00f3e"));
}

TEST_F(DialectTest, responses_have_items_and_numbered_events) {
  json::object body{{"input", kCallText}, {"instructions", "Be brief."}};
  body["tools"] = parse_json(R"([{"type": "function", "name": "weather", "strict": true, "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}}}}])")
                      .value();
  const json::object response = ask_json("/v1/responses", body);
  const json::array& output = response.at("output").get_array();
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0].at("type").get_string(), "reasoning");
  EXPECT_EQ(output[1].at("content").at(0).at("text").get_string(), "Let me see.");
  EXPECT_EQ(output[2].at("name").get_string(), "weather");
  EXPECT_EQ(response.at("status").get_string(), "completed");

  const std::vector<SseEvent> events = events_of(ask("/v1/responses", to_json(with(body, "stream", true)))->stream);
  int64_t number = 0;
  for (const SseEvent& event : events) {
    EXPECT_EQ(parse_json(event.data).value().at("sequence_number").get_int64(), number++);
  }
  EXPECT_EQ(events.front().name, "response.created");
  ASSERT_EQ(events.back().name, "response.completed");
  const json::value last = parse_json(events.back().data).value();
  EXPECT_EQ(last.at("response").at("output").get_array().size(), 3u);
}

TEST_F(DialectTest, responses_echo_only_known_small_fields) {
  const std::string long_text(600, 'x');
  json::object body{{"input", "SAY[[a]]"}, {"metadata", {{"trip", "7"}}}};
  body["reasoning"] = {{"effort", "low"}, {"more", long_text}};
  body["text"] = {{"format", {{"type", "text"}, {"more", long_text}}}};
  body["tools"] = parse_json(R"([{"type": "function", "name": "weather", "strict": true, "more": [1, 2], "parameters":
    {"type": "object", "properties": {}}}])")
                      .value();
  const json::object response = ask_json("/v1/responses", body);
  EXPECT_EQ(response.at("metadata"), body.at("metadata"));
  EXPECT_EQ(response.at("reasoning").at("effort").get_string(), "low");
  EXPECT_EQ(response.at("tools").at(0).at("name").get_string(), "weather");
  EXPECT_TRUE(response.at("tools").at(0).at("strict").get_bool());
  EXPECT_EQ(to_json(response).find("more"), std::string::npos);

  const auto expect_invalid = [&](const json::value& metadata) {
    expect_error("/v1/responses", {{"input", "SAY[[a]]"}, {"metadata", metadata}}, "metadata");
  };
  expect_invalid({{"trip", long_text}});
  expect_invalid({{long_text.substr(0, 65), "7"}});
  expect_invalid({{"trip", json::array{1, 2, 3}}});
  json::object many;
  for (int i = 0; i < 17; ++i) many[std::to_string(i)] = "7";
  expect_invalid(many);
}

TEST_F(DialectTest, anthropic_system_messages_keep_their_place) {
  const json::value body = parse_json(R"({"max_tokens": 9, "system": "head", "messages": [
    {"role": "user", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "inline"}]},
    {"role": "user", "content": "SAY[[x]]"}]})")
                               .value();
  EXPECT_EQ(ask_json("/v1/messages", body).at("content").at(0).at("text").get_string(), "x");
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_NE(prompt.find("system\ninline"), std::string::npos) << prompt;
  EXPECT_LT(prompt.find("user\na"), prompt.find("inline")) << prompt;
}

TEST_F(DialectTest, anthropic_assistant_prefix_is_continued) {
  const json::value body = parse_json(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "SAY[[x]]"},
    {"role": "assistant", "content": "Sure: "}]})")
                               .value();
  ask_json("/v1/messages", body);
  EXPECT_TRUE(scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt).ends_with("Sure: "));
}

TEST_F(DialectTest, anthropic_thread_is_rejected_in_the_form_the_tool_runner_expects) {
  const json::object response =
      ask_json("/v1/messages", with(with(chat("x"), "max_tokens", 5), "thread", {{"id", "t"}}), 400);
  const json::value& details = response.at("error").at("details");
  EXPECT_EQ(details.at("error_code").get_string(), "thread_unsupported_request");
  EXPECT_EQ(details.at("unsupported"), json::array{"thread"});
}

TEST_F(DialectTest, tools_that_the_server_cannot_run_are_left_out_with_a_note) {
  const struct {
    const char *path, *body;
  } cases[] = {{"/v1/responses", R"({"input": "SAY[[x]]", "tools": [{"type": "web_search"},
                 {"type": "function", "name": "weather", "parameters": {"type": "object"}}]})"},
               {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "SAY[[x]]"}], "tools":
                 [{"type": "custom", "custom": {"name": "c"}},
                 {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]})"},
               {"/v1/messages", R"({"max_tokens": 5, "messages": [{"role": "user", "content": "SAY[[x]]"}], "tools":
                 [{"type": "web_search_20250305", "name": "web_search"},
                 {"name": "weather", "input_schema": {"type": "object"}}]})"}};
  for (const auto& request : cases) {
    const auto reply = ask(request.path, request.body);
    EXPECT_EQ(reply->response.status, 200) << request.path << reply->response.body;
    const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
    EXPECT_NE(prompt.find("\"weather\""), std::string::npos) << request.path;
    EXPECT_EQ(prompt.find("web_search"), std::string::npos) << request.path;
    EXPECT_NE(to_json(reply->log).find("was left out"), std::string::npos) << to_json(reply->log);
  }
}

TEST_F(DialectTest, responses_expand_namespaces_and_name_them_in_calls) {
  json::object body = parse_json(R"({"client_metadata": {"a": "b"}, "tools": [{"type": "namespace", "name": "agents",
    "description": "d", "tools": [{"type": "function", "name": "close", "parameters": {"type": "object"}}]}]})")
                          .value()
                          .get_object();
  body["input"] = "SAY[[<tool_call>\n{\"name\": \"agents__close\", \"arguments\": {}}\n</tool_call>]]";
  for (const bool stream : {false, true}) {
    const auto reply = ask("/v1/responses", to_json(with(body, "stream", stream)));
    EXPECT_TRUE(reply->headers.empty()) << "client_metadata is known";
    const std::string text = stream ? events_of(reply->stream).back().data : reply->response.body;
    const json::value parsed = parse_json(text).value();
    const json::value& call = (stream ? parsed.at("response") : parsed).at("output").at(0);
    EXPECT_EQ(call.at("name").get_string(), "close");
    EXPECT_EQ(call.at("namespace").get_string(), "agents");
    json::array items{
        json::object{{"role", "user"}, {"content", "x"}}, call,
        json::object{{"type", "function_call_output"}, {"call_id", call.at("call_id")}, {"output", "SAY[[done]]"}}};
    ask_json("/v1/responses", with(body, "input", items));
    const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
    EXPECT_NE(prompt.find("\"name\": \"agents__close\", \"arguments\""), std::string::npos) << prompt;
  }
}

TEST_F(DialectTest, namespace_without_a_name_is_rejected) {
  const json::value tools = parse_json(R"([{"type": "namespace"}, {"type": "function", "name": "f"}])").value();
  expect_error("/v1/responses", {{"input", "SAY[[x]]"}, {"tools", tools}}, "tools[0].name");
  const json::value number =
      parse_json(R"([{"type": "namespace", "name": 1}, {"type": "function", "name": "f"}])").value();
  expect_error("/v1/responses", {{"input", "SAY[[x]]"}, {"tools", number}}, "tools[0].name");
}

TEST_F(DialectTest, reasoning_survives_as_encrypted_content) {
  const json::object response = ask_json("/v1/responses", {{"input", "SAY[[<think>deep \xC3\xA4</think>a]]"},
                                                           {"store", false},
                                                           {"include", json::array{"reasoning.encrypted_content"}}});
  json::object reasoning = response.at("output").at(0).get_object();
  reasoning.erase("content");
  const json::array items{json::object{{"role", "user"}, {"content", "x"}}, reasoning,
                          json::object{{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}},
                          json::object{{"type", "function_call_output"}, {"call_id", "c"}, {"output", "SAY[[b]]"}}};
  ask_json("/v1/responses", {{"input", items}});
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_NE(prompt.find("deep \xC3\xA4"), std::string::npos) << prompt;
}

TEST_F(DialectTest, responses_have_logprobs_of_the_content) {
  const json::object body{{"input", "SAY[[<think>why</think>a b]]"}, {"top_logprobs", 2}};
  const json::object response = ask_json("/v1/responses", body);
  const json::array& logprobs = response.at("output").at(1).at("content").at(0).at("logprobs").get_array();
  ASSERT_FALSE(logprobs.empty());
  std::string text;
  for (const json::value& token : logprobs) text += text_of(token.at("token").get_string());
  EXPECT_NE(text.find("a b"), std::string::npos) << text;
  EXPECT_EQ(text.find("why"), std::string::npos) << text;
  EXPECT_EQ(logprobs[0].at("top_logprobs").get_array().size(), 2u);
  const auto events = events_of(ask("/v1/responses", to_json(with(body, "stream", true)))->stream);
  const json::value last = parse_json(events.back().data).value();
  EXPECT_FALSE(last.at("response").at("output").at(1).at("content").at(0).at("logprobs").get_array().empty());
}

TEST_F(DialectTest, truncation_auto_leaves_out_the_oldest_turns) {
  json::array items{json::object{{"role", "system"}, {"content", "HEAD"}}};
  for (int i = 0; i < 20; ++i) {
    items.push_back(json::object{{"role", "user"}, {"content", fmt::format("TURN{} {}", i, std::string(500, 'x'))}});
    items.push_back(json::object{{"role", "assistant"}, {"content", "y"}});
  }
  items.push_back(json::object{{"role", "user"}, {"content", "SAY[[a]]"}});
  expect_error("/v1/responses", {{"input", items}}, "messages");
  const auto reply = ask("/v1/responses", to_json(json::object{{"input", items}, {"truncation", "auto"}}));
  EXPECT_EQ(reply->response.status, 200) << reply->response.body;
  const Request request = scripted_.engine().last_request();
  const std::string prompt = scripted_.model().tokenizer.decode(request.prompt);
  EXPECT_LT(request.prompt.size(), 4096u);
  EXPECT_NE(prompt.find("HEAD"), std::string::npos);
  EXPECT_EQ(prompt.find("TURN0 "), std::string::npos);
  EXPECT_NE(prompt.find("TURN19 "), std::string::npos);
  EXPECT_NE(to_json(reply->log).find("left out"), std::string::npos);
}

TEST_F(DialectTest, context_management_is_accepted_without_effect) {
  const json::object response =
      ask_json("/v1/messages",
               {{"max_tokens", 20},
                {"messages", json::array{json::object{{"role", "user"}, {"content", "SAY[[hi]]"}}}},
                {"context_management", {{"edits", json::array{json::object{{"type", "clear_thinking_20251015"}}}}}}});
  EXPECT_EQ(response.at("content").at(0).at("text").get_string(), "hi");
}

TEST_F(DialectTest, long_list_of_embedding_inputs_is_submitted_in_batches) {
  json::array inputs;
  for (int i = 0; i < 2048; ++i) inputs.emplace_back(fmt::format("text {}", i));
  EXPECT_EQ(ask_json("/v1/embeddings", {{"input", inputs}}).at("data").get_array().size(), 2048u);
  inputs.emplace_back("one too many");
  expect_error("/v1/embeddings", {{"input", inputs}}, "input");
}

TEST_F(DialectTest, embeddings_are_numbers_or_base64) {
  const json::object response = ask_json("/v1/embeddings", {{"input", json::array{"a", "b"}}});
  EXPECT_EQ(response.at("data").get_array().size(), 2u);
  EXPECT_NEAR(response.at("data").at(1).at("embedding").at(1).get_double(), 0.8, 1e-6);
  const json::object coded = ask_json("/v1/embeddings", {{"input", "a"}, {"encoding_format", "base64"}});
  EXPECT_EQ(coded.at("data").at(0).at("embedding").get_string(), "mpkZP83MTD8=");
  EXPECT_EQ(ask_json("/v1/embeddings", {{"input", json::array{"", "a"}}}).at("data").get_array().size(), 2u);
  const json::object cut = ask_json("/v1/embeddings", {{"input", "a"}, {"dimensions", 1}});
  ASSERT_EQ(cut.at("data").at(0).at("embedding").get_array().size(), 1u);
  EXPECT_NEAR(cut.at("data").at(0).at("embedding").at(0).to_number<double>(), 1.0, 1e-6) << "normalized again";
  expect_error("/v1/embeddings", {{"input", json::array{"a", 5}}}, "input");
  expect_error("/v1/embeddings", {{"input", "a"}, {"dimensions", 5}}, "dimensions");
}

}  // namespace
}  // namespace zinc
