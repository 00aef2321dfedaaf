// Parts of the mapping that several families share.
#pragma once

#include <string>
#include <string_view>

#include "convert/model_mapping.h"

namespace zinc {

void add_one(std::span<float> values);  // norms whose weight is stored as the difference from one

// Source rows for the rotation of neighboring elements (GGUF's llama), of heads stored as two halves.
std::vector<int64_t> interleaved_rope_rows(int64_t n_heads, int64_t head_dim);
// Source rows first, first + step, ... below `end`, of each of n matrices of `rows` rows.
std::vector<int64_t> rows_of_each(int64_t n, int64_t rows, int64_t first, int64_t end, int64_t step = 1);

// hidden_size, heads and so on, as every decoder has them.
struct DecoderConfig {
  int64_t dim, n_layers, heads, kv_heads, head_dim;
};
DecoderConfig read_decoder(ModelMapping& m);
// Sizes, norm epsilon, experts, RoPE. Errors where config.json asks for an activation or a RoPE that GGUF files of this
// architecture do not have.
void set_decoder_keys(ModelMapping& m, const DecoderConfig& c, std::string_view activation = "silu");
// rope.freq_base and rope.scaling.*. factors: whether the architecture reads rope_freqs.weight (Llama 3's scaling).
void set_rope_keys(ModelMapping& m, const CheckpointConfig& rope, int64_t head_dim, bool factors = false);
// What llama.cpp's loader of Llama-like architectures wants besides.
void set_llama_keys(ModelMapping& m, const DecoderConfig& c, bool rope_factors = true);
// GGUF files of some architectures cannot say that attention has a window. flag: the key that switches it on, or "".
void warn_of_sliding_window(ModelMapping& m, std::string_view flag);

struct LayerOptions {
  bool interleaved_rope = false;
  void (*norm)(std::span<float>) = nullptr;  // applied to all norms
};
std::string source_layer(int layer);  // "model.layers.3."
std::string output_layer(int layer);  // "blk.3."

// Embedding, final norm, and the output matrix unless it is tied.
void add_ends(ModelMapping& m, void (*norm)(std::span<float>) = nullptr);
// q, k, v, output, their biases and head norms.
void add_attention(ModelMapping& m, const std::string& to, const std::string& from, const DecoderConfig& c,
                   const LayerOptions& options = {});
// mlp.gate_proj, up_proj, down_proj; "" or "_shexp" behind the names.
void add_ffn(ModelMapping& m, const std::string& to, const std::string& from, std::string_view suffix = "");
// Experts one by one (from + "0." + gate_name) or fused (from + "gate_up_proj", "down_proj").
struct ExpertNames {
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};
void add_experts(ModelMapping& m, const std::string& to, const std::string& from, const ExpertNames& names = {});
// A layer of a decoder without experts: norms, attention, FFN.
void add_dense_layer(ModelMapping& m, int layer, const DecoderConfig& c, const LayerOptions& options = {});
// Experts with their router and, of Qwen, a shared expert.
void set_expert_keys(ModelMapping& m, bool normalized);
void add_qwen_experts(ModelMapping& m, const std::string& to, const std::string& from, bool shared);

}  // namespace zinc
