#include "quantize/choose_formats.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"

namespace zinc {
namespace {

// Names of matrices that are small or that quantization would damage: a part of the name, llama.cpp's list.
constexpr std::array<std::string_view, 35> kNeverQuantized = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

struct RoleName {
  std::string_view part;
  TensorRole role;
};
constexpr std::array kRoleNames = {
    RoleName{"attn_qkv.weight", TensorRole::attn_v}, RoleName{"attn_kv_b.weight", TensorRole::attn_v},
    RoleName{"attn_v.weight", TensorRole::attn_v},   RoleName{"attn_k.weight", TensorRole::attn_k},
    RoleName{"attn_q.weight", TensorRole::attn_q},   RoleName{"attn_output.weight", TensorRole::attn_output},
    RoleName{"ffn_up", TensorRole::ffn_up},          RoleName{"ffn_gate", TensorRole::ffn_gate},
    RoleName{"ffn_down", TensorRole::ffn_down},
};

// Models of about 70B parameters share each attn_v among 8 heads: more bits for it cost little.
struct LargeModel {
  std::string_view architecture;
  int64_t n_layers;
};
constexpr std::array kLargeModels = {LargeModel{"llama", 80}, LargeModel{"qwen2", 80}};

// Formats for rows that are not whole blocks.
struct Fallback {
  std::string_view format, fallback;
};
constexpr std::array kFallbacks = {
    Fallback{"iq1_s", "iq4_nl"},  Fallback{"iq1_m", "iq4_nl"},  Fallback{"iq2_xxs", "iq4_nl"},
    Fallback{"iq2_xs", "iq4_nl"}, Fallback{"iq2_s", "iq4_nl"},  Fallback{"iq3_xxs", "iq4_nl"},
    Fallback{"iq3_s", "iq4_nl"},  Fallback{"iq4_xs", "iq4_nl"}, Fallback{"q1_0", "q4_0"},
    Fallback{"q2_0", "q4_0"},     Fallback{"q2_k", "q4_0"},     Fallback{"q3_k", "q4_0"},
    Fallback{"tq1_0", "q4_0"},    Fallback{"tq2_0", "q4_0"},    Fallback{"q4_k", "q5_0"},
    Fallback{"q5_k", "q5_1"},     Fallback{"q6_k", "q8_0"},     Fallback{"nvfp4", "q4_0"},
};

// Dimensions without outer ones: a matrix of one row is a vector.
int n_dims_of(const Shape& shape) {
  int first = 0;
  while (first + 1 < shape.n_dims() && shape[first] == 1) ++first;
  return shape.n_dims() - first;
}

TensorRole role_of(std::string_view name, bool has_output) {
  if (name == "output.weight") return TensorRole::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") {
    return has_output ? TensorRole::token_embd : TensorRole::output;
  }
  for (const RoleName& entry : kRoleNames) {
    if (name.find(entry.part) != name.npos) return entry.role;
  }
  return TensorRole::other;
}

bool needs_more_bits(int64_t i, int64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

bool is_large(const ModelFacts& model) {
  if (model.architecture == "llama" && (model.n_heads == model.n_kv_heads || model.n_experts == 8)) return false;
  return std::ranges::any_of(kLargeModels, [&](const LargeModel& large) {
    return large.architecture == model.architecture && large.n_layers == model.n_layers;
  });
}

bool holds(RuleModel rule, const ModelFacts& model) {
  const bool shares_kv = model.n_kv_heads > 0 && model.n_heads / model.n_kv_heads >= 4;
  switch (rule) {
    case RuleModel::any:
      return true;
    case RuleModel::heads_per_kv_4:
      return shares_kv;
    case RuleModel::heads_per_kv_4_or_experts:
      return shares_kv || model.n_experts >= 4;
    case RuleModel::experts_8:
      return model.n_experts == 8;
    case RuleModel::not_experts_8:
      return model.n_experts != 8;
  }
  return false;
}

bool holds(RuleImportance rule, const ModelFacts& model) {
  return rule == RuleImportance::any || (rule == RuleImportance::with) == model.has_importance;
}

// Tensor i of n: of its role, or the layer it is in.
struct Position {
  int64_t i = 0, n = 0;
};

bool holds(RuleLayers rule, const Position& at) {
  switch (rule) {
    case RuleLayers::all:
      return true;
    case RuleLayers::first_eighth:
      return at.i < at.n / 8;
    case RuleLayers::first_sixteenth:
      return at.i < at.n / 16;
    case RuleLayers::middle:
      return at.i >= at.n / 8 && at.i < 7 * at.n / 8;
    case RuleLayers::more_bits:
      return needs_more_bits(at.i, at.n);
    case RuleLayers::first_two:
      return at.i < 2;
    case RuleLayers::first_four:
      return at.i < 4;
  }
  return false;
}

const Format& format_named(std::string_view name) {
  const Format* const format = find_format(name);
  ZINC_CHECK(format);
  return *format;
}

class Chooser {
 public:
  Chooser(const QuantizationType& type, const ModelFacts& model, std::span<const TensorFacts> tensors)
      : type_(type), model_(model), base_(format_named(type.format)) {
    for (const TensorFacts& tensor : tensors) {
      has_output_ = has_output_ || tensor.name == "output.weight";
      n_attn_v_ += role_of(tensor.name, true) == TensorRole::attn_v ? 1 : 0;
    }
  }

  FormatChoice choose(const TensorFacts& tensor) {
    if (!is_quantizable(tensor)) return {};
    const Format& intended = base_.block_elems == 1 ? base_ : by_rules(tensor);
    const Format& fitting = fitting_format(intended, tensor.shape);
    return {.format = &fitting, .intended = &fitting == &intended ? nullptr : &intended};
  }

 private:
  const Format& by_rules(const TensorFacts& tensor) {
    const TensorRole role = role_of(tensor.name, has_output_);
    if (role == TensorRole::output) return output_format(tensor.shape);
    const Position at = next_position(role, tensor.name);
    // More experts leave room for better attention: it is a small part of such a model.
    if (!type_.is_very_low_bit && model_.n_experts == 8 && (role == TensorRole::attn_v || role == TensorRole::attn_k)) {
      return format_named("q8_0");
    }
    const Format& format = by_type(role, at, tensor.shape);
    const bool gets_more = role == TensorRole::attn_v && !type_.is_very_low_bit && is_large(model_);
    return gets_more && (format.name == "q3_k" || format.name == "q4_k") ? format_named("q5_k") : format;
  }

  const Format& output_format(const Shape& shape) const {
    if (type_.output.empty()) return base_;
    return format_named(shape.inner() % base_.block_elems == 0 ? type_.output : "q8_0");
  }

  const Format& by_type(TensorRole role, const Position& at, const Shape& shape) const {
    for (const FormatRule& rule : type_.rules) {
      if (rule.role == role && (!rule.is_stacked || n_dims_of(shape) > 2) && holds(rule.layers, at) &&
          holds(rule.model, model_) && holds(rule.importance, model_)) {
        return format_named(rule.format);
      }
    }
    return base_;
  }

  // Tensors of a role are counted, except that in models with experts the name says the layer.
  Position next_position(TensorRole role, std::string_view name) {
    const int64_t i = n_seen_[static_cast<size_t>(role)]++;
    if (role == TensorRole::attn_v) return {i, n_attn_v_};
    const int64_t layer = model_.n_experts > 1 && !type_.is_very_low_bit ? layer_of(name) : -1;
    return {layer >= 0 ? layer : i, model_.n_layers};
  }

  const QuantizationType& type_;
  const ModelFacts& model_;
  const Format& base_;
  bool has_output_ = false;
  int64_t n_attn_v_ = 0;
  std::array<int64_t, static_cast<size_t>(TensorRole::other) + 1> n_seen_{};
};

}  // namespace

int64_t layer_of(std::string_view tensor_name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!tensor_name.starts_with(kPrefix)) return -1;
  const std::string_view rest = tensor_name.substr(kPrefix.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return error == std::errc() && layer >= 0 ? layer : -1;
}

bool is_quantizable(const TensorFacts& tensor) {
  if (n_dims_of(tensor.shape) < 2 || !tensor.name.ends_with("weight")) return false;
  if (tensor.name == "position_embd.weight" || tensor.name == "token_types.weight") return false;
  return std::ranges::none_of(kNeverQuantized,
                              [&](std::string_view part) { return tensor.name.find(part) != tensor.name.npos; });
}

const Format& fitting_format(const Format& format, const Shape& shape) {
  const Format* fitting = &format;
  const auto fits = [&] { return shape.inner() % fitting->block_elems == 0; };
  if (fits()) return *fitting;
  const auto fallback = std::ranges::find(kFallbacks, format.name, &Fallback::format);
  if (fallback != kFallbacks.end()) fitting = &format_named(fallback->fallback);
  return fits() ? *fitting : k_f16;
}

std::vector<FormatChoice> choose_formats(const QuantizationType& type, const ModelFacts& model,
                                         std::span<const TensorFacts> tensors) {
  std::vector<FormatChoice> choices(tensors.size());
  if (type.format.empty()) return choices;
  Chooser chooser(type, model, tensors);
  std::ranges::transform(tensors, choices.begin(), [&](const TensorFacts& tensor) { return chooser.choose(tensor); });
  return choices;
}

}  // namespace zinc
