// The ops of the graph (op_list.h) and their parameters. The list is short on purpose: ops are coarse, and a backend
// fuses by matching sequences of them (docs/adr/0001). Activations are float32, ids int32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

namespace zinc {

enum class Op : uint8_t {
#define OP(name) name,
#include "graph/op_list.h"
#undef OP
};
inline constexpr size_t kOpCount = 0
#define OP(name) +1
#include "graph/op_list.h"
#undef OP
    ;
std::string_view op_name(Op op);

inline constexpr Op kUnaryOps[] = {
#define OP(name)
#define UNARY_OP(name) Op::name,
#include "graph/op_list.h"
#undef OP
};

enum class NormKind : uint8_t { rms, l2 };
struct NormParams {
  NormKind kind = NormKind::rms;
  float eps = 1e-6f;
};

// Which two elements of a head are rotated together: interleaved (adjacent) or NeoX style (halves).
enum class RopePairs : uint8_t { adjacent, halves };

// YaRN: low-frequency pairs are interpolated over the extended context, high-frequency pairs are kept, with a ramp
// between.
struct YarnParams {
  float original_context = 0;  // 0: no YaRN, every pair is interpolated
  float beta_fast = 32, beta_slow = 1;
};

// Extension of the context for sequences that need it (StepInputs::rope_scalings). Those up to `context` positions have
// RoPE scaling 0, the parameters as they are. yarn: scaling s stretches the context by s + 1 with YaRN. longrope:
// scaling 1 has the long factors instead of the short ones.
enum class RopeExtensionKind : uint8_t { none, yarn, longrope };
struct RopeExtension {
  RopeExtensionKind kind = RopeExtensionKind::none;
  int64_t context = 0, max_context = 0;  // positions: without, and with the largest extension
};

struct RopeParams {
  RopePairs pairs = RopePairs::halves;
  int64_t n_dims = 0;  // rotated leading dimensions of each head
  float theta = 10000;
  float position_scale = 1;  // 1 / context extension factor
  float amplitude = 1;       // factor on the rotated pairs (attention factor)
  YarnParams yarn = {};
  RopeExtension extension = {};
};

struct AttentionParams {
  int cache_layer = 0;  // whose keys and values are read (and written, if k and v are given)
  float scale = 1;
  int64_t window = 0;  // 0: all earlier positions; else the last `window`, this one included
  float softcap = 0;   // 0: none
};

// silu: g*sigmoid(g). gelu: tanh form. sigmoid. swiglu_oai:
// min(g,7)*sigmoid(1.702*min(g,7)), times clamp(up,-7,7)+1.
enum class Act : uint8_t { silu, gelu, sigmoid, swiglu_oai };
struct GatedActParams {
  Act act = Act::silu;
};

// Normalization of the router weights of the `n_used` selected experts.
enum class RouterNormalization : uint8_t {
  softmax,              // softmax over all experts, not renormalized
  softmax_normalized,   // softmax over all experts, the selected ones divided by their sum
  softmax_of_selected,  // softmax over the selected experts' logits only
};
struct MoeRouteParams {
  int64_t n_used = 0;
  RouterNormalization weights = RouterNormalization::softmax_normalized;
  float scale = 1;
};

struct ShortConvParams {
  int cache_layer = 0;
};

// Which key head a value head uses: v / (v_heads / k_heads), or v mod k_heads.
enum class HeadSharing : uint8_t { grouped, cyclic };
struct DeltaNetParams {
  int cache_layer = 0;
  HeadSharing sharing = HeadSharing::grouped;
  float q_scale = 1;
};

struct ScaleParams {
  float factor = 1;
};
struct SoftcapParams {
  float cap = 0;
};
struct SliceParams {
  int64_t begin = 0;
};

using OpParams = std::variant<std::monostate, NormParams, RopeParams, AttentionParams, GatedActParams, MoeRouteParams,
                              ShortConvParams, DeltaNetParams, ScaleParams, SoftcapParams, SliceParams>;

// The parameter of a unary op; 0: it has none.
constexpr float unary_factor(const OpParams& params) {
  if (const ScaleParams* scale = std::get_if<ScaleParams>(&params)) return scale->factor;
  if (const SoftcapParams* softcap = std::get_if<SoftcapParams>(&params)) return softcap->cap;
  return 0;
}

}  // namespace zinc
