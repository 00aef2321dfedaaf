// Data table: the mixes of llama.cpp (llama-quant.cpp at b21e4de) as rules.
#include "quantize/quantization_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace zinc {
namespace {

using enum TensorRole;
using L = RuleLayers;
using M = RuleModel;
using I = RuleImportance;

constexpr FormatRule kOutputOf8Experts = {.role = attn_output, .format = "q5_k", .model = M::experts_8};

constexpr std::array kMxfp4Moe = {
    FormatRule{.role = ffn_down, .format = "mxfp4", .is_stacked = true},
    FormatRule{.role = ffn_gate, .format = "mxfp4", .is_stacked = true},
    FormatRule{.role = ffn_up, .format = "mxfp4", .is_stacked = true},
    FormatRule{.role = other, .format = "mxfp4", .is_stacked = true},
};
constexpr std::array kQ8Embedding = {FormatRule{.role = token_embd, .format = "q8_0"}};
constexpr std::array kQ4Embedding = {FormatRule{.role = token_embd, .format = "q4_k"}};

constexpr std::array kMoreBitsQ6 = {
    FormatRule{.role = attn_v, .format = "q6_k", .layers = L::more_bits},
    FormatRule{.role = ffn_down, .format = "q6_k", .layers = L::more_bits},
};
constexpr std::array kQ4KM = {kMoreBitsQ6[0], kMoreBitsQ6[1], kOutputOf8Experts};
constexpr std::array kQ4KS = {
    FormatRule{.role = attn_v, .format = "q5_k", .layers = L::first_four},
    FormatRule{.role = ffn_down, .format = "q5_k", .layers = L::first_eighth},
    kOutputOf8Experts,
};
constexpr std::array kIq4 = {
    FormatRule{.role = attn_v, .format = "q5_k", .model = M::heads_per_kv_4},
    FormatRule{.role = ffn_down, .format = "q5_k", .layers = L::first_eighth, .importance = I::without},
    kOutputOf8Experts,
};
constexpr std::array kQ40 = {
    FormatRule{.role = ffn_down, .format = "q4_1", .layers = L::first_eighth, .importance = I::with},
};
constexpr std::array kQ50 = {
    FormatRule{.role = ffn_down, .format = "q5_1", .layers = L::first_eighth, .importance = I::with},
};
constexpr std::array kQ3KL = {
    FormatRule{.role = attn_v, .format = "q5_k"},
    FormatRule{.role = ffn_down, .format = "q5_k"},
    FormatRule{.role = attn_output, .format = "q5_k", .model = M::not_experts_8},
};
constexpr std::array kQ3KM = {
    FormatRule{.role = attn_v, .format = "q5_k", .layers = L::first_two},
    FormatRule{.role = attn_v, .format = "q4_k"},
    FormatRule{.role = ffn_down, .format = "q5_k", .layers = L::first_sixteenth},
    FormatRule{.role = ffn_down, .format = "q4_k"},
    kOutputOf8Experts,
    FormatRule{.role = attn_output, .format = "q4_k"},
};
constexpr std::array kQ3KS = {kOutputOf8Experts};
constexpr std::array kIq3M = {
    FormatRule{.role = attn_v, .format = "q4_k"},
    FormatRule{.role = ffn_down, .format = "q4_k", .layers = L::first_eighth},
    FormatRule{.role = ffn_down, .format = "q4_k", .layers = L::more_bits, .model = M::experts_8},
    kOutputOf8Experts,
    FormatRule{.role = attn_output, .format = "q4_k"},
};
constexpr std::array kIq3S = {
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4},
    kOutputOf8Experts,
};
constexpr std::array kIq3XS = {
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4},
    FormatRule{.role = attn_k, .format = "iq3_xxs"},
    FormatRule{.role = attn_q, .format = "iq3_xxs"},
    kOutputOf8Experts,
    FormatRule{.role = ffn_gate, .format = "iq3_xxs", .layers = L::middle},
    FormatRule{.role = ffn_up, .format = "iq3_xxs", .layers = L::middle},
};
constexpr std::array kIq3Xxs = {
    FormatRule{.role = token_embd, .format = "iq3_s"},
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4},
    FormatRule{.role = attn_v, .format = "iq3_s", .importance = I::without},
    FormatRule{.role = attn_k, .format = "iq2_s"},
    FormatRule{.role = attn_q, .format = "iq2_s"},
    FormatRule{.role = ffn_down, .format = "q4_k", .layers = L::first_eighth, .importance = I::without},
    FormatRule{.role = ffn_down, .format = "q3_k", .importance = I::without},
    kOutputOf8Experts,
    FormatRule{.role = attn_output, .format = "iq3_s"},
};
constexpr std::array kQ2K = {
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4},
    FormatRule{.role = attn_v, .format = "q3_k"},
    FormatRule{.role = ffn_down, .format = "q3_k"},
    kOutputOf8Experts,
    FormatRule{.role = attn_output, .format = "q3_k"},
};
constexpr std::array kQ2KS = {
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4},
    FormatRule{.role = ffn_down, .format = "q4_k", .layers = L::first_eighth},
};
// About 2.5 bits, then 2 bits and below.
constexpr std::array kIq2SM = {
    FormatRule{.role = token_embd, .format = "iq3_s"},
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4_or_experts},
    FormatRule{.role = attn_v, .format = "iq3_s"},
    FormatRule{.role = attn_k, .format = "q4_k", .model = M::experts_8},
    FormatRule{.role = ffn_down, .format = "iq3_s", .layers = L::first_eighth},
    kOutputOf8Experts,
    FormatRule{.role = attn_output, .format = "iq3_s"},
};
constexpr std::array kIq2 = {
    FormatRule{.role = token_embd, .format = "q2_k"},
    FormatRule{.role = attn_v, .format = "q4_k", .model = M::heads_per_kv_4_or_experts},
    FormatRule{.role = attn_v, .format = "q2_k"},
    FormatRule{.role = attn_k, .format = "q4_k", .model = M::experts_8},
    FormatRule{.role = ffn_down, .format = "q2_k", .layers = L::first_eighth},
    kOutputOf8Experts,
};
constexpr std::array kIq1 = {
    kIq2[0],
    kIq2[1],
    kIq2[2],
    kIq2[3],
    kIq2[4],
    kOutputOf8Experts,
    FormatRule{.role = attn_output, .format = "iq2_xxs"},
};

constexpr std::array kTypes = std::to_array<QuantizationType>({
    {.name = "f32", .format = "f32", .file_type = 0},
    {.name = "f16", .format = "f16", .file_type = 1},
    {.name = "bf16", .format = "bf16", .file_type = 32},
    {.name = "q8_0", .format = "q8_0", .file_type = 7},
    {.name = "q6_k", .format = "q6_k", .file_type = 18, .output = "q6_k"},
    {.name = "q5_1", .format = "q5_1", .file_type = 9, .output = "q6_k"},
    {.name = "q5_k_m", .format = "q5_k", .file_type = 17, .output = "q6_k", .rules = kMoreBitsQ6},
    {.name = "q5_0", .format = "q5_0", .file_type = 8, .output = "q6_k", .rules = kQ50},
    {.name = "q5_k_s", .format = "q5_k", .file_type = 16, .output = "q6_k"},
    {.name = "q4_1", .format = "q4_1", .file_type = 3, .output = "q6_k"},
    {.name = "q4_k_m", .format = "q4_k", .file_type = 15, .output = "q6_k", .rules = kQ4KM},
    {.name = "q4_k_s", .format = "q4_k", .file_type = 14, .output = "q6_k", .rules = kQ4KS},
    {.name = "q4_0", .format = "q4_0", .file_type = 2, .output = "q6_k", .rules = kQ40},
    {.name = "iq4_nl", .format = "iq4_nl", .file_type = 25, .output = "q6_k", .rules = kIq4},
    {.name = "nvfp4", .format = "nvfp4", .file_type = 39, .output = "q8_0", .rules = kQ8Embedding},
    {.name = "mxfp4_moe", .format = "q8_0", .file_type = 38, .output = "q8_0", .rules = kMxfp4Moe},
    {.name = "mxfp4", .format = "mxfp4", .file_type = 38, .output = "q8_0", .rules = kQ8Embedding},
    {.name = "iq4_xs", .format = "iq4_xs", .file_type = 30, .output = "q6_k", .rules = kIq4},
    {.name = "q3_k_l", .format = "q3_k", .file_type = 13, .output = "q6_k", .rules = kQ3KL},
    {.name = "q3_k_m", .format = "q3_k", .file_type = 12, .output = "q6_k", .rules = kQ3KM},
    {.name = "q3_k_s", .format = "q3_k", .file_type = 11, .output = "q6_k", .rules = kQ3KS},
    {.name = "iq3_m", .format = "iq3_s", .file_type = 27, .output = "q6_k", .rules = kIq3M},
    {.name = "iq3_s", .format = "iq3_s", .file_type = 26, .output = "q6_k", .rules = kIq3S},
    {.name = "iq3_xs", .format = "iq3_s", .file_type = 22, .output = "q6_k", .rules = kIq3XS},
    {.name = "iq3_xxs", .format = "iq3_xxs", .file_type = 23, .output = "q5_k", .rules = kIq3Xxs},
    {.name = "q2_k", .format = "q2_k", .file_type = 10, .output = "q6_k", .rules = kQ2K},
    {.name = "q2_k_s", .format = "q2_k", .file_type = 21, .output = "q6_k", .rules = kQ2KS},
    {.name = "iq2_m", .format = "iq2_s", .file_type = 29, .output = "q5_k", .is_very_low_bit = true, .rules = kIq2SM},
    {.name = "iq2_s", .format = "iq2_xs", .file_type = 28, .output = "q5_k", .is_very_low_bit = true, .rules = kIq2SM},
    {.name = "iq2_xs", .format = "iq2_xs", .file_type = 20, .output = "q5_k", .is_very_low_bit = true, .rules = kIq2},
    {.name = "q2_0", .format = "q2_0", .file_type = 41, .output = "q6_k", .rules = kQ4Embedding},
    {.name = "iq2_xxs", .format = "iq2_xxs", .file_type = 19, .output = "q5_k", .is_very_low_bit = true, .rules = kIq2},
    {.name = "tq2_0", .format = "tq2_0", .file_type = 37, .output = "q6_k", .rules = kQ4Embedding},
    {.name = "iq1_m", .format = "iq1_m", .file_type = 31, .output = "q5_k", .is_very_low_bit = true, .rules = kIq1},
    {.name = "tq1_0", .format = "tq1_0", .file_type = 36, .output = "q6_k", .rules = kQ4Embedding},
    {.name = "iq1_s", .format = "iq1_s", .file_type = 24, .output = "q5_k", .is_very_low_bit = true, .rules = kIq1},
    {.name = "q1_0", .format = "q1_0", .file_type = 40, .output = "q6_k"},
    {.name = "copy"},
});

struct Alias {
  std::string_view name, type;
};
constexpr std::array kAliases = {Alias{"q3_k", "q3_k_m"}, Alias{"q4_k", "q4_k_m"}, Alias{"q5_k", "q5_k_m"}};

}  // namespace

std::span<const QuantizationType> quantization_types() { return kTypes; }

const QuantizationType* find_quantization_type(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto alias = std::ranges::find(kAliases, lower, &Alias::name);
  const auto type = std::ranges::find(kTypes, alias == kAliases.end() ? lower : alias->type, &QuantizationType::name);
  return type == kTypes.end() ? nullptr : type;
}

std::string quantization_type_names() {
  std::string names;
  for (const QuantizationType& type : kTypes) {
    if (!names.empty()) names += ", ";
    names += type.name;
    const bool is_of_experts = !type.rules.empty() && type.rules[0].is_stacked;  // which are most of such a model
    const std::string_view format = is_of_experts ? type.rules[0].format : type.format;
    if (!format.empty()) names += fmt::format(" ({:.3g})", bits_per_weight(*find_format(format)));
  }
  return names;
}

double bits_per_weight(const Format& format) {
  return 8.0 * static_cast<double>(format.block_bytes) / static_cast<double>(format.block_elems);
}

}  // namespace zinc
