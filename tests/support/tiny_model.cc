#include "tests/support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <regex>
#include <sstream>

#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/gguf_writer.h"

namespace zinc {
namespace {

constexpr uint32_t kDim = 64, kHeadDim = 32, kFeedForward = 96, kWindow = 20;
constexpr const char* kFileName = "tiny.gguf";

using Keys = std::vector<TinyKey>;

// Keys of every transformer file, followed by `more`.
Keys transformer(uint32_t n_layers, Keys more) {
  Keys keys = {{"context_length", uint32_t{kTinyContext}},
               {"embedding_length", kDim},
               {"block_count", n_layers},
               {"attention.head_count", 4u},
               {"attention.head_count_kv", 2u, false},
               {"attention.key_length", kHeadDim, false},
               {"attention.layer_norm_rms_epsilon", 1e-6f},
               {"rope.freq_base", 10000.0f, false}};
  for (TinyKey& key : more) {
    const auto known = std::ranges::find(keys, key.name, &TinyKey::name);
    if (known != keys.end()) keys.erase(known);
    keys.push_back(std::move(key));
  }
  return keys;
}

Keys dense(uint32_t n_layers, Keys more = {}) {
  more.push_back({"feed_forward_length", kFeedForward});
  return transformer(n_layers, std::move(more));
}

Keys with(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

const Keys kExperts = {{"expert_count", 5u}, {"expert_used_count", 2u}, {"expert_feed_forward_length", 32u}};
const Keys kSharedExpert = {{"expert_count", 5u},
                            {"expert_used_count", 2u},
                            {"expert_feed_forward_length", 32u, false},
                            {"expert_shared_feed_forward_length", 32u, false}};

// Keys of the Qwen hybrids; the recurrent layers and the FFN are described by `more`.
Keys hybrid(uint32_t n_blocks, const Keys& more) {
  return with(transformer(n_blocks, {{"attention.head_count_kv", 2u},
                                     {"rope.dimension_count", 16u, false},
                                     {"ssm.conv_kernel", 4u},
                                     {"ssm.inner_size", 96u},
                                     {"ssm.state_size", 16u},
                                     {"ssm.time_step_rank", 6u},
                                     {"ssm.group_count", 2u}}),
              more);
}

// Two sliding layers, two full ones.
Keys gemma4(const Keys& more) {
  return transformer(4, with({{"attention.head_count_kv", std::vector<uint32_t>{2, 2, 1, 1}},
                              {"attention.key_length", 64u},
                              {"attention.key_length_swa", kHeadDim},
                              {"rope.dimension_count", 64u, false},
                              {"rope.dimension_count_swa", kHeadDim, false},
                              {"rope.freq_base_swa", 10000.0f, false},
                              {"attention.sliding_window", kWindow},
                              {"final_logit_softcapping", 30.0f, false},
                              {"feed_forward_length", kFeedForward}},
                             more));
}
const TinyKey kGemma4Pattern = {"attention.sliding_window_pattern", std::vector<bool>{true, true, false, false}};

const std::vector<TinyTensor> kBiases = {
    {"blk.*.attn_q.bias", {128}}, {"blk.*.attn_k.bias", {64}}, {"blk.*.attn_v.bias", {64}}};
const TinyTensor kOutput = {"output.weight", {kTinyVocabulary, kDim}};

std::vector<TinyTensor> with(std::vector<TinyTensor> tensors, const TinyTensor& more) {
  tensors.push_back(more);
  return tensors;
}

std::vector<TinyModel> make_tiny_models() {
  const Keys interval_and_mtp = {{"full_attention_interval", 2u, false}, {"nextn_predict_layers", 1u, false}};
  return {
      {"llama", "llama", dense(2), {{"rope_freqs.weight", {16}}, kOutput}},
      {"llama with longrope", "llama",
       dense(2, {{"rope.scaling.type", std::string("longrope"), false},
                 {"rope.scaling.original_context_length", uint32_t{kTinyContext / 4}, false},
                 {"rope.scaling.attn_factor", 1.19f, false}})},
      {"llama with experts", "llama", with(dense(2), {{"expert_count", 5u, false}, {"expert_used_count", 2u}})},
      {"qwen2", "qwen2", dense(2), kBiases},
      {"qwen3", "qwen3", dense(2), {kOutput}},
      {"qwen3moe", "qwen3moe", transformer(2, kExperts)},
      {"smollm3", "smollm3", dense(4)},
      {"arcee", "arcee", dense(2), {{"rope_freqs.weight", {16}}, kOutput}},
      {"gemma3", "gemma3",
       dense(3, {{"attention.sliding_window", kWindow, false},
                 {"attention.sliding_window_pattern", 3u, false},
                 {"rope.scaling.type", std::string("linear"), false},
                 {"rope.scaling.factor", 8.0f, false}})},
      // More segments per row than a block has warps, the last segment partial.
      {"gemma3 of wide rows", "gemma3", dense(1, {{"embedding_length", 2336u}})},
      {"gemma4",
       "gemma4",
       gemma4({kGemma4Pattern}),
       {{"blk.0.attn_v.weight", {64, kDim}}, {"blk.*.layer_output_scale.weight", {1}}}},
      {"gemma4 with layer embeddings", "gemma4",
       gemma4({{"attention.sliding_window_pattern", std::vector<bool>{true, false, true, false}},
               {"attention.head_count_kv", 1u},
               {"attention.shared_kv_layers", 2u, false},
               {"embedding_length_per_layer_input", 32u, false}})},
      {"gemma4 with experts",
       "gemma4",
       gemma4(with({kGemma4Pattern}, {{"expert_count", 5u, false},
                                      {"expert_used_count", 2u, false},
                                      {"expert_feed_forward_length", 32u, false}})),
       {{"blk.*.ffn_gate_inp.weight", {5, kDim}},
        {"blk.*.ffn_gate_up_exps.weight", {5, 64, kDim}},
        {"blk.*.ffn_down_exps.scale", {5}}}},
      {"gpt-oss", "gpt-oss",
       transformer(2, with(kExperts, {{"attention.sliding_window", kWindow},
                                      {"rope.scaling.type", std::string("yarn"), false},
                                      {"rope.scaling.factor", 8.0f, false},
                                      {"rope.scaling.original_context_length", 64u, false}})),
       with(kBiases, {"blk.*.attn_output.bias", {kDim}})},
      {"qwen3next", "qwen3next", hybrid(4, with(kSharedExpert, interval_and_mtp))},
      {"qwen35", "qwen35", hybrid(4, with({{"feed_forward_length", kFeedForward}}, interval_and_mtp))},
      {"qwen35moe", "qwen35moe", hybrid(4, with(kSharedExpert, interval_and_mtp)), {kOutput}},
      {"qwen35moe without MTP", "qwen35moe",
       hybrid(3, with(kSharedExpert, {{"attention.recurrent_layers", std::vector<bool>{true, true, false}, false}}))},
  };
}

// FNV-1a: the same on every machine.
uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

// Values that keep activations near unit size through any number of layers.
std::vector<float> random_weights(const TinyTensor& tensor) {
  std::mt19937 random(hash_of(tensor.name));
  const auto uniform = [&] { return static_cast<float>(random()) / 4294967296.0f * 2.0f - 1.0f; };
  const auto named = [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; };
  float offset = 0, spread = 0.3f;
  if (tensor.shape.n_dims() > 1) spread = std::sqrt(3.0f / static_cast<float>(tensor.shape.inner()));
  if (named("norm") || named("scale")) offset = 1.0f;
  if (named("rope_f")) offset = 2.0f;  // rope_freqs, rope_factors_short, rope_factors_long
  if (named("ssm_a") && tensor.shape.n_dims() == 1) offset = -0.5f;  // a decay: negative
  std::vector<float> out(static_cast<size_t>(tensor.shape.elems()));
  for (float& x : out) x = offset + spread * uniform();
  return out;
}

const Format& choose_format(const TinyTensor& tensor, const Format* matrix_format) {
  static const Format* const kChoices[] = {&k_f32, &k_f16, find_format("q8_0")};
  const bool routes = tensor.name.find("ffn_gate_inp") != std::string::npos;  // f32 in every published file
  if (tensor.shape.n_dims() == 1 || tensor.shape.inner() % 32 != 0 || routes) return k_f32;
  return matrix_format ? *matrix_format : *kChoices[hash_of(tensor.name) % std::size(kChoices)];
}

// Encoding is most of the cost of a file, and the tests make thousands that differ in one tensor or key.
const std::string& encoded_weights(const TinyTensor& tensor, const Format& format) {
  static std::map<std::string, std::string> cache;
  const auto [entry, is_new] =
      cache.try_emplace(fmt::format("{} {} {}", tensor.name, tensor.shape.to_string(), format.name));
  if (is_new) {
    const std::vector<float> weights = random_weights(tensor);
    entry->second.resize(row_bytes(format, weights.size()));
    format.quantize(weights, std::as_writable_bytes(std::span(entry->second)));
  }
  return entry->second;
}

std::vector<TinyTensor> expand(const TinyModel& model, const TinyTensor& tensor) {
  const std::string every = "blk.*.";
  if (!tensor.name.starts_with(every)) return {tensor};
  std::vector<TinyTensor> out;
  const uint32_t n_layers = std::get<uint32_t>(model.find("block_count")->value);
  for (uint32_t l = 0; l < n_layers; ++l) {
    out.push_back({fmt::format("blk.{}.{}", l, tensor.name.substr(every.size())), tensor.shape, tensor.required});
  }
  return out;
}

Status try_to_read(const std::string& bytes) {
  ZINC_TRY(file, GgufFile::parse(std::as_bytes(std::span(bytes)), kFileName));
  ZINC_TRY(model, read_model(file, Draft::load));
  return ok_status();
}

}  // namespace

// "... tensor 'blk.0.attn_q.weight' is missing, expected [128,64]; ..."
std::optional<TinyTensor> missing_tensor(const std::string& message) {
  static const std::regex kMissing("tensor '([^']+)' is missing, expected \\[([0-9,]+)\\]");
  std::smatch match;
  if (!std::regex_search(message, match, kMissing)) return std::nullopt;
  std::istringstream dims(match[2]);
  std::vector<int64_t> shape;
  for (std::string dim; std::getline(dims, dim, ',');) shape.push_back(std::stoll(dim));
  return TinyTensor{match[1], Shape(shape)};
}

const TinyKey* TinyModel::find(std::string_view key) const {
  const auto found = std::ranges::find(metadata, key, &TinyKey::name);
  return found == metadata.end() ? nullptr : &*found;
}

// For an architecture without an entry above: a standard model with experts, reduced to the keys that the architecture
// reads (a key is read if a string in its place is an error).
static TinyModel plain_model(const std::string& architecture) {
  TinyModel model{architecture, architecture, dense(2, kSharedExpert)};
  for (TinyKey& key : model.metadata) key.required = false;  // unknown which of them are required
  const Result<std::vector<TinyTensor>> tensors = find_tensors(model);
  if (!tensors.ok()) return model;  // the tests will report it
  std::erase_if(model.metadata, [&](const TinyKey& key) {
    TinyModel probe = model;
    std::ranges::find(probe.metadata, key.name, &TinyKey::name)->value = std::string("text");
    return try_to_read(make_gguf(probe, tensors.value())).ok();
  });
  return model;
}

const std::vector<TinyModel>& tiny_models() {
  static const std::vector<TinyModel> kModels = [] {
    std::vector<TinyModel> models = make_tiny_models();
    for (const Architecture* const* a = kArchitectures; *a; ++a) {
      const std::string name((*a)->gguf_name);
      if (std::ranges::find(models, name, &TinyModel::architecture) == models.end())
        models.push_back(plain_model(name));
    }
    return models;
  }();
  return kModels;
}

const TinyModel& tiny_model(std::string_view name) {
  const auto found = std::ranges::find(tiny_models(), name, &TinyModel::name);
  ZINC_CHECK(found != tiny_models().end());
  return *found;
}

Result<std::vector<TinyTensor>> find_tensors(const TinyModel& model) {
  const int64_t dim = std::get<uint32_t>(model.find("embedding_length")->value);
  std::vector<TinyTensor> tensors = {{"token_embd.weight", {kTinyVocabulary, dim}}};
  for (TinyTensor optional : model.optional_tensors) {
    optional.required = false;
    for (TinyTensor& tensor : expand(model, optional)) tensors.push_back(std::move(tensor));
  }
  for (;;) {
    const Status status = try_to_read(make_gguf(model, tensors));
    if (status.ok()) return tensors;
    std::optional<TinyTensor> missing = missing_tensor(status.error().message);
    if (!missing) return status.error();
    tensors.push_back(std::move(*missing));
  }
}

void add_metadata(GgufWriter& writer, const TinyModel& model) {
  writer.add("general.architecture", model.architecture);
  for (const TinyKey& key : model.metadata) {
    std::visit([&](const auto& value) { writer.add(model.architecture + "." + key.name, value); }, key.value);
  }
}

std::string make_gguf(const TinyModel& model, const std::vector<TinyTensor>& tensors, GgufWriter writer) {
  add_metadata(writer, model);
  for (const TinyTensor& tensor : tensors) {
    const Format& format = choose_format(tensor, model.matrix_format);
    writer.add_tensor(tensor.name, tensor.shape, format, std::string_view(encoded_weights(tensor, format)));
  }
  return writer.bytes();
}

std::string make_gguf(const TinyModel& model) {
  const Result<std::vector<TinyTensor>> tensors = find_tensors(model);
  ZINC_CHECK(tensors.ok());
  return make_gguf(model, tensors.value());
}

}  // namespace zinc
