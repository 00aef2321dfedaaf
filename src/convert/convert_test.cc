// Errors of checkpoints that cannot be converted, and files that only a part of them has.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "convert/sentencepiece_model.h"
#include "convert/tokenizer_keys.h"
#include "gguf/gguf_file.h"
#include "tests/support/contains_all.h"
#include "tests/support/test_files.h"
#include "text/tokenizer.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

const fs::path kCheckpoints = fs::path(ZINC_SOURCE_DIR) / "tests" / "data" / "convert";

// A copy of a committed checkpoint, to be damaged.
fs::path copy_of(const char* name, const TestFolder& folder) {
  const fs::path copy = folder / name;
  fs::copy(kCheckpoints / name, copy, fs::copy_options::recursive);
  return copy;
}

std::string error_of(const fs::path& folder, const ConversionOptions& options = {}) {
  const auto conversion = plan_conversion(folder, options);
  return conversion.ok() ? "" : conversion.error().message;
}

void replace_in(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = contents(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " in " << path;
  put(path, text.replace(at, from.size(), to));
}

size_t n_files(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(Convert, folder_that_is_not_a_checkpoint_is_an_error) {
  const TestFolder folder;
  EXPECT_TRUE(contains_all(error_of(folder / "absent"), {"absent", "config.json"}));
  put(folder / "config.json", "{}");
  EXPECT_TRUE(contains_all(error_of(folder.path()), {"'architectures' is missing"}));
  put(folder / "config.json", R"({"architectures":["BertModel"]})");
  EXPECT_TRUE(contains_all(error_of(folder.path()), {"'BertModel'", "LlamaForCausalLM", "Qwen3NextForCausalLM"}));
  put(folder / "config.json", R"({"architectures":["LlamaForCausalLM"]})");
  EXPECT_TRUE(contains_all(error_of(folder.path()), {"neither model.safetensors nor"}));
  put(folder / "pytorch_model.bin", "");
  EXPECT_TRUE(contains_all(error_of(folder.path()), {"pickle", "save_pretrained"}));
}

TEST(Convert, missing_and_unknown_tensors_are_errors) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  replace_in(copy / "model.safetensors", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_prox.weight");
  EXPECT_TRUE(contains_all(error_of(copy), {"'model.layers.0.mlp.up_proj.weight' is missing"}));
  const fs::path other = copy_of("llama", folder);
  replace_in(other / "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EXPECT_TRUE(contains_all(error_of(other), {"'model.layers.1.", "no counterpart"}));
}

TEST(Convert, config_that_contradicts_the_weights_is_an_error) {
  const TestFolder folder;
  const fs::path copy = copy_of("llama", folder);
  replace_in(copy / "config.json", "\"head_dim\": 8", "\"head_dim\": 16");
  EXPECT_TRUE(contains_all(error_of(copy), {"k_proj.weight' is [16,32]", "config"}) ||
              contains_all(error_of(copy), {"q_proj.weight' is [32,32]", "config"}))
      << error_of(copy);
  replace_in(copy / "config.json", "\"head_dim\": 16", "\"head_dim\": 2000000000");
  EXPECT_TRUE(contains_all(error_of(copy), {"head size of 2000000000"}));
}

TEST(Convert, settings_that_the_architecture_does_not_have_are_errors) {
  struct Case {
    const char *name, *from, *to;
    std::string_view word, other = {};
  };
  const Case cases[] = {
      {"qwen2", "\"silu\"", "\"gelu\"", "activation 'gelu'", "'silu'"},
      {"qwen2", "\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"", "RoPE scaling 'dynamic'"},
      {"qwen3moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false", "'norm_topk_prob' must be true"},
      {"qwen3moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [1]", "mlp_only_layers"},
      {"smollm3", "\"no_rope_layers\": [\n  1", "\"no_rope_layers\": [\n  0", "'no_rope_layers'"},
      {"gemma3", "\"query_pre_attn_scalar\": 16", "\"query_pre_attn_scalar\": 17",
       "'query_pre_attn_scalar' must be 16"},
      {"qwen3", "\"num_attention_heads\": 4", "\"num_attention_heads\": \"4\"", "'num_attention_heads' is not a count"},
      {"qwen3", "\"hidden_size\": 32,", "", "'hidden_size' is missing"},
      {"gpt-oss", "\"quant_method\": \"mxfp4\"", "\"quant_method\": \"gptq\"", "quantized by 'gptq'", "FP8 and MXFP4"},
  };
  for (const Case& c : cases) {
    const TestFolder folder;
    const fs::path copy = copy_of(c.name, folder);
    ASSERT_NO_FATAL_FAILURE(replace_in(copy / "config.json", c.from, c.to));
    EXPECT_TRUE(contains_all(error_of(copy), {c.word, c.other})) << c.to << ": " << error_of(copy);
  }
}

TEST(Convert, default_type_is_that_of_the_checkpoint) {
  const std::pair<const char*, const char*> cases[] = {
      {"qwen3", "f16"}, {"mistral", "f32"}, {"qwen2", "bf16"}, {"qwen3-fp8", "bf16"}, {"gpt-oss", "bf16"}};
  for (const auto& [name, type] : cases) {
    const auto conversion = plan_conversion(kCheckpoints / name, {});
    ASSERT_TRUE(conversion.ok()) << conversion.error().message;
    const auto q = std::ranges::find(conversion.value().tensors, "blk.0.attn_q.weight", &OutputTensor::name);
    EXPECT_EQ(q->format->name, type) << name;
  }
}

TEST(Convert, fp8_without_scales_is_an_error) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen3-fp8", folder);
  replace_in(copy / "model.safetensors", "q_proj.weight_scale_inv", "q_proj.weight_scale_xxx");
  EXPECT_TRUE(contains_all(error_of(copy), {"q_proj.weight' is FP8", "missing"})) << error_of(copy);
}

TEST(Convert, index_must_agree_with_its_shards) {
  const TestFolder folder;
  const fs::path copy = copy_of("llama", folder);
  const fs::path index = copy / "model.safetensors.index.json";
  const std::string original = contents(index);
  replace_in(index, "model-00002-of-00002", "model-00003-of-00003");
  EXPECT_TRUE(contains_all(error_of(copy), {"model-0000"}));
  put(index, original);
  replace_in(index, "\"lm_head.weight\"", "\"lm_tail.weight\"");
  EXPECT_TRUE(contains_all(error_of(copy), {"has no tensor 'lm_tail.weight'", "download"})) << error_of(copy);
  put(index, R"({"weight_map":{"a":"../model.safetensors"}})");
  EXPECT_TRUE(contains_all(error_of(copy), {"'a'", "same folder"}));
  put(index, "{}");
  EXPECT_TRUE(contains_all(error_of(copy), {"no weight_map"}));
}

TEST(Convert, unknown_pretokenizer_can_be_named) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  replace_in(copy / "tokenizer.json", "\"Regex\": \"", "\"Regex\": \"x|");
  EXPECT_TRUE(contains_all(error_of(copy), {"pre-tokenizer", "--pre"})) << error_of(copy);
  EXPECT_EQ(error_of(copy, {.format = nullptr, .pretokenizer = "qwen2"}), "");
}

TEST(Convert, a_negative_top_k_means_all_tokens) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  std::ofstream(copy / "generation_config.json") << R"({"top_k": -1, "temperature": 0.7})";
  const auto conversion = plan_conversion(copy, {});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  ASSERT_TRUE(write_gguf(conversion.value(), folder / "out.gguf", {}).ok());
  const auto file = GgufFile::open(folder / "out.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().get<int64_t>("general.sampling.top_k").value(), 0);
}

TEST(Convert, larger_vocabulary_than_the_embedding_is_an_error) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  replace_in(copy / "tokenizer.json", "\"id\": 300", "\"id\": 3000");
  EXPECT_TRUE(contains_all(error_of(copy), {"3000", "320 rows"})) << error_of(copy);
}

// As Mistral's tokenizer.json: without scores, so the order of the merges must become the order of the scores.
TEST(Convert, merges_of_a_vocabulary_with_byte_fallback_become_scores) {
  const TestFolder folder;
  const fs::path copy = copy_of("mistral", folder);
  fs::remove(copy / "tokenizer.model");
  fs::copy_file(kCheckpoints / "gemma4" / "tokenizer.json", copy / "tokenizer.json");
  const auto conversion = plan_conversion(copy, {});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  ASSERT_TRUE(write_gguf(conversion.value(), folder / "out.gguf", {}).ok());
  const auto file = GgufFile::open(folder / "out.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().get<std::string_view>("tokenizer.ggml.model").value(), "llama");
  EXPECT_EQ(file.value().find("tokenizer.ggml.merges"), nullptr);
  const auto tokenizer = Tokenizer::load(file.value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto scores = file.value().get<std::vector<double>>("tokenizer.ggml.scores").value();
  const auto score = [&](const char* text) { return scores[static_cast<size_t>(*tokenizer.value().find(text))]; };
  EXPECT_EQ(score(" t"), 0);  // the merges are "▁ t", "h e", "▁t he"
  EXPECT_EQ(score("he"), -1);
  EXPECT_EQ(score(" the"), -2);
  EXPECT_LT(score("t"), -2);
}

TEST(Convert, added_tokens_are_control_tokens_only_if_they_are_special) {
  const TestFolder folder;
  const auto conversion = plan_conversion(kCheckpoints / "qwen2", {});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  ASSERT_TRUE(write_gguf(conversion.value(), folder / "out.gguf", {}).ok());
  const auto file = GgufFile::open(folder / "out.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokens = file.value().get<std::vector<std::string_view>>("tokenizer.ggml.tokens").value();
  const auto types = file.value().get<std::vector<int64_t>>("tokenizer.ggml.token_type").value();
  const auto type = [&](std::string_view text) {
    return static_cast<PieceType>(types[static_cast<size_t>(std::ranges::find(tokens, text) - tokens.begin())]);
  };
  EXPECT_EQ(type("<|im_end|>"), PieceType::control);
  EXPECT_EQ(type("<tool_call>"), PieceType::user_defined);
  EXPECT_EQ(type("he"), PieceType::normal);
  EXPECT_EQ(type("[PAD319]"), PieceType::unused);
  EXPECT_EQ(file.value().get<int64_t>("tokenizer.ggml.eos_token_id").value(), 2);
  EXPECT_EQ(file.value().get<int64_t>("tokenizer.ggml.eot_token_id").value(), 3);
  EXPECT_FALSE(file.value().get<bool>("tokenizer.ggml.add_bos_token").value());
}

TEST(Convert, folder_without_a_tokenizer_is_an_error) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  fs::remove(copy / "tokenizer.json");
  EXPECT_TRUE(contains_all(error_of(copy), {"neither tokenizer.json nor tokenizer.model"}));
}

TEST(Convert, interrupted_conversion_leaves_nothing) {
  const TestFolder folder;
  const auto conversion = plan_conversion(kCheckpoints / "qwen2", {});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  int n_calls = 0;
  const Status written =
      write_gguf(conversion.value(), folder / "out.gguf",
                 {.progress = [](const WriteProgress&) {}, .cancelled = [&] { return ++n_calls > 5; }});
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::cancelled);
  EXPECT_EQ(n_files(folder.path()), 0u);
}

TEST(Convert, dry_run_knows_the_size_and_progress_reaches_it) {
  const TestFolder folder;
  const auto conversion = plan_conversion(kCheckpoints / "gpt-oss", {.format = find_format("q8_0")});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  WriteProgress last;
  ASSERT_TRUE(write_gguf(conversion.value(), folder / "out.gguf",
                         {.progress = [&](const WriteProgress& p) { last = p; }, .cancelled = [] { return false; }})
                  .ok());
  EXPECT_EQ(fs::file_size(folder / "out.gguf"), conversion.value().header.file_bytes());
  EXPECT_EQ(last.n_bytes, conversion.value().header.file_bytes());
  EXPECT_EQ(last.n_done, last.n_bytes);
}

TEST(Convert, values_beyond_f16_are_an_error) {
  const TestFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  std::string bytes = contents(copy / "model.safetensors");
  uint64_t n_header = 0;
  std::memcpy(&n_header, bytes.data(), sizeof(n_header));
  bytes[8 + n_header] = '\x00';
  bytes[8 + n_header + 1] = '\x7f';  // the first weight of the embedding, the first tensor: 2^127 in bf16
  put(copy / "model.safetensors", bytes);
  const auto conversion = plan_conversion(copy, {.format = find_format("f16")});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  const Status written = write_gguf(conversion.value(), folder / "out.gguf", {});
  ASSERT_FALSE(written.ok());
  EXPECT_TRUE(contains_all(written.error().message, {"'token_embd.weight'", "65504", "--type bf16"}));
  EXPECT_FALSE(fs::exists(folder / "out.gguf"));
}

TEST(Convert, multimodal_checkpoint_keeps_its_language_model) {
  const TestFolder folder;
  const fs::path copy = copy_of("gemma3", folder);
  // "model.layers.0." becomes "language_model.model.layers.0."; offsets do not change, only the header's length.
  std::string bytes = contents(copy / "model.safetensors");
  uint64_t n_header = 0;
  std::memcpy(&n_header, bytes.data(), sizeof(n_header));
  const std::string data = bytes.substr(8 + n_header);
  std::string header = bytes.substr(8, n_header);
  for (size_t at = 0; (at = header.find("\"model.", at)) != header.npos; at += 10) {
    header.replace(at, 7, "\"language_model.model.");
  }
  n_header = header.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &n_header, 8);
  put(copy / "model.safetensors", length + header + data);
  json::object config = parse_json(contents(copy / "config.json")).value().as_object();
  const json::object root{{"architectures", json::array{"Gemma3ForConditionalGeneration"}}, {"text_config", config}};
  put(copy / "config.json", to_json(root));
  const auto conversion = plan_conversion(copy, {});
  ASSERT_TRUE(conversion.ok()) << conversion.error().message;
  const auto original = plan_conversion(kCheckpoints / "gemma3", {});
  EXPECT_EQ(conversion.value().header.encode(), original.value().header.encode());
}

TEST(Pretokenizer, rules_are_identified_by_their_text) {
  const auto name = [](const char* text, bool ignore_merges = false) {
    return identify_pretokenizer(parse_json(text).value(), ignore_merges);
  };
  EXPECT_EQ(name(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})"), "gpt-2");
  EXPECT_EQ(name(R"({"type":"ByteLevel","add_prefix_space":false})"), "gpt-2");
  EXPECT_EQ(name(R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
                 R"({"type":"ByteLevel"}]})"),
            "smollm");
  EXPECT_EQ(name(R"({"type":"Digits","individual_digits":false})"), "");
  EXPECT_EQ(name(R"({"type":"Whitespace"})"), "");
  EXPECT_EQ(name("null"), "");
  const std::string llama3 = contents(kCheckpoints / "llama" / "tokenizer.json");
  const json::value rules = parse_json(llama3).value().at("pre_tokenizer");
  EXPECT_EQ(identify_pretokenizer(rules, true), "llama-bpe");
  EXPECT_EQ(identify_pretokenizer(rules, false), "dbrx");
  json::value removing = rules;
  json::object& split = removing.at("pretokenizers").as_array()[0].as_object();
  split["behavior"] = "Removed";  // of the words
  EXPECT_EQ(identify_pretokenizer(removing, true), "");
  split["invert"] = true;  // of what is between the words
  EXPECT_EQ(identify_pretokenizer(removing, true), "llama-bpe");
}

TEST(SentencePieceModel, damaged_files_are_errors) {
  const std::string bytes = contents(kCheckpoints / "mistral" / "tokenizer.model");
  const auto parse = [](const std::string& text) {
    return parse_sentencepiece_model(std::as_bytes(std::span(text)), "tokenizer.model");
  };
  const auto model = parse(bytes);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_FALSE(model.value().is_unigram);
  EXPECT_TRUE(model.value().adds_space_prefix);
  EXPECT_EQ(model.value().pieces[0].text, "<unk>");
  EXPECT_EQ(model.value().pieces[0].type, PieceType::unknown);
  EXPECT_EQ(model.value().pieces[3].text, "<0x00>");
  EXPECT_EQ(model.value().pieces[3].type, PieceType::byte);
  EXPECT_FALSE(parse("").ok());
  EXPECT_FALSE(parse("version https://git-lfs.github.com/spec/v1\n").ok());
  int n_rejected = 0;
  for (size_t n = 1; n < bytes.size(); n += 7) n_rejected += !parse(bytes.substr(0, n)).ok();
  EXPECT_GT(n_rejected, 500);
}

}  // namespace
}  // namespace zinc
