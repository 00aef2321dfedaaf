// Fields of requests: sampling, limits, unknown and invalid ones.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

using RequestFields = ApiTest;

TEST_F(RequestFields, sampling_fields_reach_the_engine_unchanged) {
  json::object body = chat("SAY[[x]]");
  const json::object fields = parse_json(R"({"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1,
    "repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": -0.3, "repeat_last_n": 32,
    "dry_multiplier": 0.8, "dry_base": 1.5, "dry_allowed_length": 3, "dry_last_n": 100,
    "dry_sequence_breakers": ["\n"], "logit_bias": {"5": -100, "6": 1.5}, "seed": 42, "max_completion_tokens": 9,
    "ignore_eos": true, "stop": ["END", "\n\n"], "logprobs": true, "top_logprobs": 2})")
                                  .value()
                                  .get_object();
  for (const auto& member : fields) body[member.key()] = member.value();
  ask_json("/v1/chat/completions", body);
  const GenerationOptions set = scripted_.engine().last_request().options;
  EXPECT_FLOAT_EQ(set.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(set.sampling.repeat_penalty, 1.1f);
  EXPECT_FLOAT_EQ(set.sampling.presence_penalty, -0.3f);
  EXPECT_EQ(set.sampling.top_k, 7);
  EXPECT_EQ(set.sampling.dry_allowed_length, 3);
  EXPECT_EQ(set.sampling.dry_breakers, std::vector<std::string>{"\n"});
  ASSERT_EQ(set.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(set.sampling.logit_bias[0].token, 5);
  EXPECT_EQ(set.sampling.seed, 42u);
  EXPECT_EQ(set.max_tokens, 9);
  EXPECT_EQ(set.n_top_logprobs, 2);
  EXPECT_TRUE(set.ignore_eos);
  EXPECT_EQ(set.stop, (std::vector<std::string>{"END", "\n\n"}));

  ask_json("/v1/chat/completions", chat("SAY[[x]]"));
  const GenerationOptions plain = scripted_.engine().last_request().options;
  EXPECT_FLOAT_EQ(plain.sampling.temperature, 1.0f);
  EXPECT_EQ(plain.sampling.top_k, 0);
  EXPECT_FLOAT_EQ(plain.sampling.repeat_penalty, 1.0f);
  EXPECT_EQ(plain.max_tokens, 0);
  const std::string prompt = scripted_.model().tokenizer.decode(scripted_.engine().last_request().prompt);
  EXPECT_EQ(prompt.find("system"), std::string::npos) << "no system prompt is added";
}

TEST_F(RequestFields, default_dry_breakers_are_computed_once_per_model) {
  const auto breakers = [&](json::object body) {
    ask_json("/v1/chat/completions", with(std::move(body), "dry_multiplier", 0.8));
    return scripted_.engine().last_request().options.dry_breakers;
  };
  const auto first = breakers(chat("SAY[[x]]"));
  ASSERT_TRUE(first);
  EXPECT_EQ(breakers(chat("SAY[[x]]")), first);
  EXPECT_NE(breakers(with(chat("SAY[[x]]"), "dry_sequence_breakers", json::array{"x"})), first);
}

TEST_F(RequestFields, sampling_that_a_request_leaves_out_is_the_models) {
  ServedModel model = scripted_.model();
  model.name = "recommended";
  model.sampling_defaults.unset.temperature = 0.7f;
  model.sampling_defaults.unset.top_k = 20;
  model.sampling_defaults.unset.repeat_penalty = 1.2f;
  model.sampling_defaults.unset.dry_multiplier = 0.8f;
  model.sampling_defaults.not_thinking.temperature = 0.3f;
  scripted_.models().add(std::move(model));
  const auto sampling_with = [&](const char* name, json::value value) {
    ask_json("/v1/chat/completions", with(with(chat("SAY[[x]]"), "model", "recommended"), name, std::move(value)));
    return scripted_.engine().last_request().options.sampling;
  };
  EXPECT_FLOAT_EQ(sampling_with("top_p", 0.5).temperature, 0.7f);
  EXPECT_FLOAT_EQ(sampling_with("temperature", 0).temperature, 0.0f);
  EXPECT_EQ(sampling_with("temperature", 0).top_k, 20);
  EXPECT_FLOAT_EQ(sampling_with("top_p", 0.5).dry_multiplier, 0.8f);
  EXPECT_EQ(sampling_with("temperature", 0).dry_multiplier, 0) << "greedy: the most likely token";
  EXPECT_EQ(sampling_with("dry_multiplier", 0).dry_multiplier, 0);
  EXPECT_EQ(sampling_with("top_k", -1).top_k, 0);
  EXPECT_FLOAT_EQ(sampling_with("repetition_penalty", 1).repeat_penalty, 1.0f);
  EXPECT_FLOAT_EQ(sampling_with("enable_thinking", false).temperature, 0.3f);
  const json::value props = parse_json(start("GET", "/props", "")->response.body).value();
  EXPECT_NEAR(props.at("models").at(1).at("default_sampling").at("temperature").to_number<double>(), 0.7, 1e-6);
  scripted_.models().remove("recommended");
}

TEST_F(RequestFields, invalid_field_is_rejected_by_name) {
  const struct {
    const char *name, *value, *param = nullptr;  // default: the name
  } cases[] = {
      {"temperature", "\"hot\""},
      {"temperature", "3"},
      {"n", "0"},
      {"n", "129"},
      {"n", "1.5"},
      {"max_tokens", "0"},
      {"max_tokens", "-2"},
      {"max_tokens", "1e30"},
      {"stop", "5"},
      {"stop", "[1]", "stop[0]"},
      {"stop", "[\"\"]"},
      {"logit_bias", "{\"x\": 1}"},
      {"logit_bias", "{\"999999\": 1}"},
      {"top_logprobs", "2"},
      {"top_k", "-2"},
      {"min_tokens", "-1"},
      {"stop_token_ids", "[\"a\"]"},
      {"stop_token_ids", "[99999999]"},
      {"allowed_token_ids", "5"},
      {"guided_choice", "[]"},
      {"guided_regex", "\"(\""},
      {"structured_outputs", "{\"regex\": \"(\"}", "structured_outputs.regex"},
      {"use_beam_search", "true"},
      {"thinking", "{\"type\": \"deep\"}", "thinking.type"},
      {"stream", "\"yes\""},
      {"seed", "1.5"},
      {"tools", "{}"},
      {"tool_choice", "\"sometimes\""},
      {"response_format", "5"},
      {"response_format", "{}", "response_format.type"},
      {"response_format", "{\"type\": \"xml\"}", "response_format.type"},
      {"response_format", "{\"type\": \"json_schema\"}", "response_format.schema"},
      {"response_format", "{\"type\": \"json_schema\", \"json_schema\": {}}", "response_format.json_schema.schema"},
      {"response_format", "{\"type\": \"json_schema\", \"schema\": {\"not\": {}}}"},
      {"grammar", "\"root ::= nothing\""},
      {"grammar", "[]"},
      {"json_schema", "true"},
      {"functions", "[{}]"},
      {"reasoning_effort", "\"maximal\""},
      {"chat_template_kwargs", "[]"},
      {"thinking_budget", "-5"},
      {"guided_json", "\"{\""},
      {"chat_template", "\"x\""},
      {"parallel_tool_calls", "1"},
      {"dry_sequence_breakers", "[\"\"]"}};
  for (const auto& wrong : cases) {
    const std::string message =
        expect_error("/v1/chat/completions", with(chat("x"), wrong.name, parse_json(wrong.value).value()),
                     wrong.param ? wrong.param : wrong.name);
    EXPECT_FALSE(message.empty()) << wrong.name;
  }
  EXPECT_EQ(scripted_.engine().n_submitted(), 0);
}

TEST_F(RequestFields, unknown_fields_are_ignored_and_named_in_header_and_log) {
  const auto header = [](const TestReply& reply) {
    const auto found = std::ranges::find(reply.headers, "x-zinc-ignored-fields", &HttpHeader::first);
    return found == reply.headers.end() ? std::string() : found->second;
  };
  const auto reply = ask("/v1/chat/completions",
                         to_json(with(with(chat("SAY[[a]]"), "temprature", 1), "bad\r\nname", json::object())));
  EXPECT_EQ(reply->response.status, 200);
  EXPECT_EQ(header(*reply), "temprature, bad??name");
  EXPECT_EQ(reply->log.at("ignored_fields").get_string(), "temprature, bad??name");
  EXPECT_EQ(header(*ask("/v1/chat/completions", to_json(chat("SAY[[a]]")))), "");
  EXPECT_EQ(header(*ask("/v1/embeddings", R"({"input": "a", "x": 1})")), "x");
  EXPECT_EQ(header(*ask("/tokenize", R"({"content": "a", "x": 1})")), "x");
  EXPECT_EQ(header(*ask("/v1/messages", to_json(with(with(chat("SAY[[a]]"), "max_tokens", 5), "x", 1)))), "x");
  for (const bool stream : {false, true}) {
    const json::object ollama =
        with(with(chat("SAY[[a]]"), "stream", stream), "options", {{"num_ctx", 9}, {"seed", 1}});
    EXPECT_EQ(header(*ask("/api/chat", to_json(with(ollama, "x", 1)))), "x, options.num_ctx");
  }
  const std::string unused = R"("x": 1, "template": "", "context": [], "images": null, "model": "scripted")";
  EXPECT_EQ(header(*ask("/api/generate", R"({"prompt": "SAY[[a]]", "stream": false, )" + unused + "}")), "x");
  EXPECT_EQ(header(*ask("/api/generate", "{" + unused + "}")), "x") << "a request that only loads the model";
  EXPECT_EQ(header(*ask("/api/embed", R"({"input": "a", "x": 1})")), "x");
  EXPECT_EQ(header(*ask("/api/show", R"({"name": "scripted", "x": 1})")), "x");
}

TEST_F(RequestFields, strict_fields_rejects_unknown_fields_by_name) {
  ApiOptions options;
  options.limits.strict_fields = true;
  make_api(options);
  expect_error("/v1/chat/completions", with(chat("SAY[[a]]"), "temprature", 1), "temprature");
  expect_error("/v1/embeddings", {{"input", "a"}, {"x", 1}}, "x");
  expect_error("/tokenize", {{"content", "a"}, {"x", 1}}, "x");
  for (const char* path : {"/api/chat", "/api/generate", "/api/embed", "/api/show"}) {
    const json::object body{{"prompt", "SAY[[a]]"}, {"messages", chat("SAY[[a]]").at("messages")}, {"input", "a"}};
    const json::object answer = ask_json(path, with(body, "unknown_field", 1), 400);
    EXPECT_NE(answer.at("error").get_string().find("unknown field"), json::string::npos) << path;
  }
}

TEST_F(RequestFields, fields_of_other_servers_reach_the_engine) {
  json::object body = chat("SAY[[x]]");
  const json::object fields = parse_json(R"({"min_tokens": 3, "stop_token_ids": [7], "skip_special_tokens": false,
    "allowed_token_ids": [7, 65], "n_predict": 9, "dry_penalty_last_n": 5, "thinking": {"type": "disabled"},
    "cache_salt": "s", "speculate": "off", "prediction": {"type": "content", "content": "x"}, "cache_prompt": true, "priority": 1, "request_id": "r"})")
                                  .value()
                                  .get_object();
  for (const auto& member : fields) body[member.key()] = member.value();
  const auto reply = ask("/v1/chat/completions", to_json(body));
  EXPECT_EQ(reply->response.status, 200) << reply->response.body;
  EXPECT_TRUE(reply->headers.empty()) << reply->headers[0].second;
  const Request request = scripted_.engine().last_request();
  EXPECT_EQ(request.options.min_tokens, 3);
  EXPECT_EQ(request.options.stop_tokens, std::vector<TokenId>{7});
  EXPECT_TRUE(request.options.show_control);
  EXPECT_TRUE(request.options.allowed_tokens->contains(65));
  EXPECT_FALSE(request.options.allowed_tokens->contains(66));
  EXPECT_EQ(request.options.max_tokens, 9);
  EXPECT_EQ(request.speculation, SpeculationMode::off);
  EXPECT_EQ(request.prediction.size(), 1u);
  EXPECT_EQ(request.options.sampling.dry_last_n, 5);
  EXPECT_NE(request.cache_namespace, kSharedNamespace);
}

TEST_F(RequestFields, minus_one_means_no_limit_or_off) {
  json::object body = with(with(chat("SAY[[a b c]]"), "max_tokens", -1), "top_k", -1);
  ask_json("/v1/chat/completions", with(with(body, "thinking_budget", -1), "seed", -1));
  EXPECT_EQ(scripted_.engine().last_request().options.max_tokens, 0);
  EXPECT_EQ(scripted_.engine().last_request().options.sampling.top_k, 0);
  const uint64_t seed = scripted_.engine().last_request().options.sampling.seed;
  ask_json("/v1/chat/completions", with(body, "seed", -1));
  EXPECT_NE(scripted_.engine().last_request().options.sampling.seed, seed) << "-1: a random seed";
  ask_json("/v1/completions", {{"prompt", "SAY[[a]]"}, {"max_tokens", -1}});
  EXPECT_EQ(scripted_.engine().last_request().options.max_tokens, 0);
  ask_json("/v1/responses", {{"input", "SAY[[a]]"}, {"max_output_tokens", -1}});
  EXPECT_EQ(scripted_.engine().last_request().options.max_tokens, 0);
}

TEST_F(RequestFields, stop_string_is_part_of_the_output_if_wanted) {
  json::object body = with(with(chat("SAY[[one two three]]"), "stop", " two"), "include_stop_str_in_output", true);
  const json::object answer = ask_json("/v1/chat/completions", body);
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content").get_string(), "one two");
}

TEST_F(RequestFields, chat_template_kwargs_have_a_size_limit) {
  json::object kwargs{{"x", std::string(65 << 10, 'x')}};
  for (const std::string_view path : {"/v1/chat/completions", "/v1/responses"}) {
    json::object body = chat("SAY[[a]]");
    if (path == "/v1/responses") body = {{"input", "SAY[[a]]"}};
    expect_error(std::string(path), with(body, "chat_template_kwargs", kwargs), "chat_template_kwargs");
    ask_json(std::string(path), with(body, "chat_template_kwargs", {{"x", 1}}));
  }
}

}  // namespace
}  // namespace zinc
