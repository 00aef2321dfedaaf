// Routes and fields of llama.cpp's server and of vLLM.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/support/api_fixture.h"
#include "tests/support/gguf_writer.h"

namespace zinc {
namespace {

class CompatibleRoutes : public ApiTest {
 protected:
  json::value get(std::string path, int status = 200) {
    const auto reply = start("GET", std::move(path), "");
    EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; }));
    EXPECT_EQ(reply->response.status, status);
    return reply->response.body.empty() ? json::value() : parse_json(reply->response.body).value();
  }
  std::string hint_for(std::string method, std::string path) {
    const auto reply = start(std::move(method), std::move(path), "{}");
    EXPECT_EQ(reply->response.status, 404);
    return reply->response.body;
  }
};

TEST_F(CompatibleRoutes, completion_has_llama_cpps_fields) {
  for (const char* path : {"/completion", "/completions"}) {
    const json::object answer = ask_json(path, {{"prompt", "SAY[[one two]]"},
                                                {"n_predict", 16},
                                                {"cache_prompt", true},
                                                {"n_probs", 2},
                                                {"return_tokens", true},
                                                {"samplers", json::array{"top_k"}}});
    EXPECT_EQ(answer.at("content").get_string(), "one two");
    EXPECT_TRUE(answer.at("stop").as_bool());
    EXPECT_EQ(answer.at("stop_type").get_string(), "eos");
    const size_t n_tokens = answer.at("tokens").get_array().size();
    EXPECT_EQ(answer.at("tokens_predicted").get_int64(), static_cast<int64_t>(n_tokens));
    EXPECT_EQ(answer.at("completion_probabilities").get_array().size(), n_tokens);
    EXPECT_EQ(answer.at("completion_probabilities").at(0).at("id"), answer.at("tokens").at(0));
    EXPECT_EQ(answer.at("completion_probabilities").at(0).at("top_logprobs").get_array().size(), 2u);
    EXPECT_TRUE(answer.at("timings").is_object());
    EXPECT_EQ(answer.at("generation_settings").at("n_predict").get_int64(), 16);
  }
  const json::object cut = ask_json("/completion", {{"prompt", "SAY[[one two three]]"}, {"n_predict", 1}});
  EXPECT_EQ(cut.at("stop_type").get_string(), "limit");
  EXPECT_TRUE(cut.at("tokens").get_array().empty()) << "only on request";
  const json::object word = ask_json("/completion", {{"prompt", "SAY[[one two]]"}, {"stop", json::array{" two"}}});
  EXPECT_EQ(word.at("stop_type").get_string(), "word");
  EXPECT_EQ(word.at("stopping_word").get_string(), " two");
  ask_json("/completion", {{"prompt", "SAY[[x]]"}, {"n_predict", -1}});
  EXPECT_EQ(scripted_.engine().last_request().options.max_tokens, 0) << "no limit";
}

TEST_F(CompatibleRoutes, completion_streams_events_without_done_marker) {
  const auto reply = ask("/completion", R"({"prompt": "SAY[[one two]]", "stream": true, "return_tokens": true})");
  std::string text;
  size_t n_tokens = 0;
  bool is_last = false;
  for (const SseEvent& event : events_of(reply->stream)) {
    EXPECT_FALSE(is_last);
    const json::value part = parse_json(event.data).value();
    text += text_of(part.at("content").get_string());
    n_tokens += part.at("tokens").get_array().size();
    is_last = part.at("stop").as_bool();
    if (!is_last) continue;
    EXPECT_EQ(part.at("tokens_predicted").get_int64(), static_cast<int64_t>(n_tokens));
  }
  EXPECT_TRUE(is_last);
  EXPECT_EQ(text, "one two");
}

TEST_F(CompatibleRoutes, paths_without_v1_are_the_same_routes) {
  EXPECT_EQ(ask_json("/chat/completions", chat("SAY[[x]]")).at("object").get_string(), "chat.completion");
  EXPECT_EQ(ask_json("/responses", {{"input", "SAY[[x]]"}}).at("object").get_string(), "response");
  EXPECT_EQ(get("/v1/health").at("status").get_string(), "ok");
  const auto reply = ask("/embedding", R"({"content": "x"})");
  const json::value embedding = parse_json(reply->response.body).value();
  EXPECT_EQ(embedding.at(0).at("embedding").at(0).get_array().size(), 2u);
}

TEST_F(CompatibleRoutes, props_have_llama_cpps_members) {
  const json::value props = get("/props");
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").get_int64(), 4096);
  EXPECT_EQ(props.at("total_slots").get_int64(), 4);
  EXPECT_NE(props.at("chat_template").get_string().find("im_start"), json::string::npos);
  EXPECT_TRUE(props.at("model_path").is_string());
  EXPECT_NE(expect_error("/props", json::object(), "", 501).find("restart"), std::string::npos);
  EXPECT_EQ(get("/slots").get_array().size(), 4u);
  EXPECT_EQ(get("/slots").at(0).at("is_processing"), json::value(false));
  EXPECT_TRUE(get("/lora-adapters").get_array().empty());
}

TEST_F(CompatibleRoutes, every_path_of_reranking_says_why_it_is_not_supported) {
  for (const char* path : {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"}) {
    EXPECT_NE(expect_error(path, {{"query", "x"}}, "", 501).find("reranker"), std::string::npos) << path;
  }
}

TEST_F(CompatibleRoutes, vllm_routes_answer) {
  EXPECT_TRUE(get("/version").at("version").is_string());
  EXPECT_EQ(get("/load").at("server_load").get_int64(), 0);
  EXPECT_TRUE(get("/ping").is_null());
  const json::object tokens = ask_json("/tokenize", with(chat("hi"), "return_token_strs", true));
  EXPECT_EQ(tokens.at("count"), ask_json("/apply-template", chat("hi")).at("count"));
  EXPECT_EQ(tokens.at("token_strs").get_array().size(), tokens.at("tokens").get_array().size());
  const json::object text =
      ask_json("/detokenize", {{"tokens", ask_json("/tokenize", {{"content", "hi"}}).at("tokens")}});
  EXPECT_EQ(text.at("content").get_string(), "hi");
  EXPECT_EQ(text.at("prompt").get_string(), "hi");
}

TEST_F(CompatibleRoutes, misspelled_path_gets_a_hint) {
  EXPECT_NE(hint_for("POST", "/v1/chat/completion").find("did you mean /v1/chat/completions?"), std::string::npos);
  EXPECT_NE(hint_for("POST", "/v1/message").find("/v1/messages"), std::string::npos);
  EXPECT_NE(hint_for("POST", "/api/chats").find("/api/chat"), std::string::npos);
  EXPECT_EQ(hint_for("GET", "/nowhere/at/all").find("did you mean"), std::string::npos);
}

// A model whose vocabulary has the tokens for fill-in-the-middle.
class InfillTest : public CompatibleRoutes {
 protected:
  InfillTest() {
    std::vector<std::string> tokens;
    for (int byte = 0, next = 0x100; byte < 256; ++byte) {  // GPT-2's byte alphabet
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      append_utf8(tokens.emplace_back(), static_cast<char32_t>(printable ? byte : next++));
    }
    for (const char* text : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"})
      tokens.push_back(text);
    std::vector<int32_t> types(256, 1);
    types.resize(tokens.size(), 3);
    GgufWriter writer;
    writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
    writer.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
    writer.add("tokenizer.ggml.merges", std::vector<std::string>());
    const auto path = std::filesystem::temp_directory_path() / fmt::format("zinc-infill-{}.gguf", ::getpid());
    writer.write(path);
    {
      const Result<GgufFile> file = GgufFile::open(path);
      tokenizer_ = Tokenizer::load(file.value()).value();
    }
    std::filesystem::remove(path);
    ServedModel model = scripted_.model();
    model.name = "coder";
    model.tokenizer = *tokenizer_;
    scripted_.models().add(std::move(model));
  }
  std::string prompt_text() {
    std::string out;
    for (const TokenId id : scripted_.engine().last_request().prompt) out += tokenizer_->bytes(id);
    return out;
  }

  std::optional<Tokenizer> tokenizer_;
};

TEST_F(InfillTest, prompt_is_prefix_suffix_middle) {
  ask_json("/infill", {{"model", "coder"}, {"input_prefix", "def f("}, {"input_suffix", ")"}, {"n_predict", 4}});
  EXPECT_EQ(prompt_text(), "<|fim_prefix|>def f(<|fim_suffix|>)<|fim_middle|>");
  ask_json("/infill", {{"model", "coder"},
                       {"input_prefix", "a"},
                       {"prompt", "b"},
                       {"input_suffix", "<|fim_middle|>"},
                       {"input_extra", json::array{json::object{{"filename", "x.py"}, {"text", "y"}}}}});
  EXPECT_EQ(prompt_text(), "<|file_sep|>x.py\ny\n<|fim_prefix|>ab<|fim_suffix|><|fim_middle|><|fim_middle|>");
  const std::vector<TokenId> tokens = scripted_.engine().last_request().prompt;
  EXPECT_EQ(std::ranges::count(tokens, tokenizer_->fim_tokens()->middle), 1) << "text does not become a special token";
  ask_json("/v1/completions", {{"model", "coder"}, {"prompt", "a"}, {"suffix", "b"}});
  EXPECT_EQ(prompt_text(), "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
  ask_json("/api/generate", {{"model", "coder"}, {"prompt", "a"}, {"suffix", "b"}, {"stream", false}});
  EXPECT_EQ(prompt_text(), "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
  const json::object shown = ask_json("/api/show", {{"model", "coder"}});
  EXPECT_EQ(shown.at("capabilities").get_array().back().get_string(), "insert");
}

TEST_F(InfillTest, model_without_the_tokens_refuses) {
  const json::object infill{{"model", "scripted"}, {"input_prefix", "a"}, {"input_suffix", "b"}};
  EXPECT_NE(expect_error("/infill", infill, "suffix").find("fill-in-the-middle"), std::string::npos);
}

}  // namespace
}  // namespace zinc
