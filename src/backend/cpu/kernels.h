// The kernel table of one instruction set, filled by kernel/*.cc and format/*.cc, which are compiled once per
// instruction set with its vector abstraction (isa/*.h). Chosen once, when the backend opens. Every function computes
// each output element in a fixed order, so results do not depend on threads or batching.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "backend/cpu/panel.h"
#include "graph/op.h"

namespace zinc::cpu {

// Online softmax state of a query row: the maximum score so far, and the sum of exp(score - max).
struct SoftmaxState {
  float max, sum;
};
inline constexpr SoftmaxState kEmptySoftmax = {-std::numeric_limits<float>::infinity(), 0};

// One KV head, some query rows of one sequence, some pages. In a page keys are dimension-major ([k_dim][kPageTokens]),
// values position-major ([kPageTokens][v_dim]).
struct AttentionTask {
  const float* const* q;     // [n_rows] -> k_dim elements
  float* const* acc;         // [n_rows] -> weighted sum of values: padded_to_16(v_dim) elements, written by the kernel
  SoftmaxState* rows;        // [n_rows], written by the kernel
  const int32_t* positions;  // [n_rows]
  int n_rows = 0;
  int k_dim = 0, v_dim = 0;
  float scale = 1, softcap = 0;
  int64_t window = 0;
  const std::byte* const*
      pages;  // from first_page: this head's keys, then values; nullptr: outside of every row's window
  int first_page = 0, end_page = 0;
  int prefetch_end = 0;  // `pages` continues to here beyond end_page: pages to prefetch for the next task
  float* scratch;        // attention_scratch_floats()
};
inline constexpr int kMaxAttentionRows = 32;
constexpr size_t padded_to_16(int n) { return (static_cast<size_t>(n) + 15) / 16 * 16; }

// One value head over the tokens of one sequence.
struct DeltaTask {
  const float *q, *k, *v, *alpha, *beta;    // of the first token
  size_t qk_stride, v_stride, gate_stride;  // from token to token
  float* out;
  size_t out_stride;
  float* state;              // [k_dim][v_dim]
  float* const* row_states;  // [n_tokens]: where the state after each token is written; nullptr: all to `state`
  int n_tokens, k_dim, v_dim;
  float a, dt_bias, q_scale;
};

struct KvLayout;  // page layout of a KV cache format

struct Kernels {
  std::string_view isa;
  const PanelFormat* const* panel_formats;  // terminated by nullptr
  int tile_tokens;

  // Quants, scales and sums of one token, with the block size of `format`.
  void (*quantize)(const float* x, size_t n, ActivationFormat format, int8_t* q, float* scale, int16_t* sum16,
                   int16_t* sum32);
  void (*rms_norm)(const float* x, const float* weight, float eps, size_t n, float* out);  // weight may be nullptr
  void (*l2_norm)(const float* x, float eps, size_t n, float* out);
  void (*gated_act)(Act act, const float* gate, const float* up, size_t n, float* out);
  void (*add)(const float* a, const float* b, size_t n, float* out);
  void (*mul)(const float* a, const float* b, size_t n, float* out);
  void (*unary)(Op op, const float* x, float factor, size_t n, float* out);  // one of kUnaryOps
  void (*add_scaled)(const float* x, float factor, size_t n, float* sum);    // sum += factor * x
  // out[c] = silu(sum over j of weight[j][c] * x[j][c]), taps rows of n channels each.
  void (*short_conv)(const float* const* x, const float* weight, int n_taps, size_t n, float* out);
  size_t (*argmax)(const float* x, size_t n);  // the first maximum; 0 if all are NaN
  // merge_value merges the partial result of a KV chunk into the running result; finish_attention divides by the
  // softmax sum. `sink` may be nullptr.
  void (*merge_value)(const SoftmaxState& partial, const float* partial_acc, size_t v_dim, SoftmaxState& running,
                      float* acc);
  void (*finish_attention)(const SoftmaxState& row, const float* acc, const float* sink, size_t v_dim, float* out);
  void (*delta_net)(const DeltaTask& task);
  const KvLayout* (*kv_layout)(std::string_view format);  // nullptr: not supported
  // Peak rate measurement: runs 8-bit dot products in registers; returns the number of multiply-adds.
  size_t (*run_dot_products)(size_t n_rounds, int32_t* sink);
};

// Layout of one head's keys and values in a page: keys first, then values.
struct KvLayout {
  std::string_view format;
  size_t (*key_bytes)(int k_dim);  // of a page
  size_t (*value_bytes)(int v_dim);
  void (*write_key)(const float* k, int k_dim, int offset, std::byte* keys);
  void (*write_value)(const float* v, int v_dim, int offset, std::byte* values);
  void (*attend)(const AttentionTask& task);
};

// A dequantized page, then the queries as the keys need them.
constexpr size_t attention_page_floats(int k_dim, int v_dim) {
  return (static_cast<size_t>(k_dim) + padded_to_16(v_dim)) * 32;
}
constexpr size_t attention_scratch_floats(int k_dim, int v_dim) {
  return attention_page_floats(k_dim, v_dim) + static_cast<size_t>(k_dim) * kMaxAttentionRows;
}

// Defined per CPU architecture (isa/choose_*.cc).
std::vector<const Kernels*> supported_kernels();  // supported by this processor, best first
std::string_view required_isa();                  // the minimum, for error messages

}  // namespace zinc::cpu
