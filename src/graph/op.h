// The ops of the graph and their parameters. The list is short on purpose: ops are coarse, and a backend fuses by
// matching sequences of them (docs/adr/0001). [T] is one row per token of the step, [R] one row per requested output;
// activations are float32, ids int32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

namespace zinc {

enum class Op : uint8_t {
  embed,        // table -> [T, dim]: the row of each token
  hidden_in,    // -> [T, dim]: hidden states passed with the step (draft graphs)
  linear,       // x [.., in], weight [out, in], bias? [out] -> [.., out]
  norm,         // x, weight? -> x's shape: each innermost row normalized
  rope,         // x [T, heads, head_dim], freq_factors? [n_dims/2] -> same: rotated by position
  attention,    // q [T, heads, k_dim], k? [T, kv_heads, k_dim], v? [T, kv_heads, v_dim], sinks? [heads] -> [T,
                // heads*v_dim]
  gated_act,    // gate, up -> up's shape: act(gate) * up; a gate of width 1 is broadcast over the row
  moe_route,    // logits [T, experts] -> ids [T, used], weights [T, used]
  moe_linear,   // x [T, in] or [T, used, in], weight [experts, out, in], ids, bias? [experts, out], scale? [experts]
                //   -> [T, used, out]
  moe_combine,  // x [T, used, dim], weights [T, used] -> [T, dim]
  short_conv,   // x [T, channels], weight [channels, taps] -> same: causal convolution over time, then SiLU
  delta_net,    // q, k [T, k_heads, k_dim], v [T, v_heads, v_dim], alpha, beta [T, v_heads], dt_bias, a [v_heads]
                //   -> [T, v_heads, v_dim]: gated delta rule over the layer's recurrent state
  add,          // a, b -> a's shape
  mul,          // x, weight [inner] or [1] -> x's shape
  scale,        // x -> x * factor
  softcap,      // x -> cap * tanh(x / cap)
  view,         // x -> same elements, other inner shape
  slice,        // x [.., n] -> [.., length]: part of each innermost row
  concat,       // a [.., n], b [.., m] -> [.., n + m]
  rows,         // gather_rows: x [T, ..] -> [R, ..], the rows whose outputs are requested
  sample,       // logits [R, vocab] -> ids [R]: argmax, the lowest id on ties
};
inline constexpr size_t kOpCount = 21;
std::string_view op_name(Op op);

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

struct RopeParams {
  RopePairs pairs = RopePairs::halves;
  int64_t n_dims = 0;  // rotated leading dimensions of each head
  float theta = 10000;
  float position_scale = 1;  // 1 / context extension factor
  float amplitude = 1;       // factor on the rotated pairs (attention factor)
  YarnParams yarn = {};
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

}  // namespace zinc
