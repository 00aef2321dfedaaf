// The TYPE of a quantized file: the format of its matrices, and the rules by which some of them get another one (a
// "mix"). Names, rules and numbers are those of llama.cpp, so that a file of ours has the same format in every tensor.
// A record is data; quantize/choose_formats.cc applies it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/format.h"

namespace zinc {

// What a matrix is for, by its name.
enum class TensorRole : uint8_t {
  output,  // output.weight, and token_embd.weight of a model without one
  token_embd,
  attn_v,  // also attn_qkv and attn_kv_b
  attn_k,
  attn_q,
  attn_output,
  ffn_down,
  ffn_gate,
  ffn_up,
  other,
};

// The layers of a rule. Of n layers: those before n/8, before n/16, from n/8 to 7n/8; those that gain most from more
// bits (the first and the last eighth, and every third between them); or the first tensors of the role.
enum class RuleLayers : uint8_t { all, first_eighth, first_sixteenth, middle, more_bits, first_two, first_four };
enum class RuleModel : uint8_t {
  any,
  heads_per_kv_4,             // at least 4 query heads per KV head
  heads_per_kv_4_or_experts,  // the same, or at least 4 experts
  experts_8,                  // exactly 8 experts
  not_experts_8,
};
enum class RuleImportance : uint8_t { any, with, without };

// A matrix that meets all conditions has this format. The first rule that fits decides.
struct FormatRule {
  TensorRole role;
  std::string_view format;
  RuleLayers layers = RuleLayers::all;
  RuleModel model = RuleModel::any;
  RuleImportance importance = RuleImportance::any;
  bool is_stacked = false;  // only matrices of three dimensions: of experts
};

struct QuantizationType {
  std::string_view name = {};    // "q4_k_m"
  std::string_view format = {};  // of matrices without a rule; empty: every tensor keeps its own ("copy")
  uint32_t file_type = 0;        // general.file_type
  std::string_view output = {};  // of TensorRole::output; empty: `format`
  bool is_very_low_bit = false;  // about 2 bits: has none of the rules that all other types share
  std::span<const FormatRule> rules = {};
};

std::span<const QuantizationType> quantization_types();  // in the order of their size, largest first
// By a name in any case: "Q4_K_M", also "q4_k" for it and "q3_k", "q5_k". nullptr: unknown.
const QuantizationType* find_quantization_type(std::string_view name);
std::string quantization_type_names();  // "f32 (32 bits per weight), ..., copy", for messages

double bits_per_weight(const Format& format);

}  // namespace zinc
