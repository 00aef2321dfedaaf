// What an instruction set offers: one table of functions, the same list for each, filled by kernel/*.cc and format/*.cc
// compiled with that set's vocabulary (isa/*.h). Chosen once, when the backend opens. Every function computes each
// output element in one fixed order, so results do not depend on threads or batching.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "backend/cpu/panel.h"
#include "graph/op.h"

namespace zinc::cpu {

// What a row of attention has seen so far: its sums are relative to the largest score.
struct AttentionRow {
  float largest, sum;
};
inline constexpr AttentionRow kSawNothing = {-std::numeric_limits<float>::infinity(), 0};

// One kv head, some query rows of one sequence, some pages. Keys lie dimension-major in a page ([k_dim][kPageTokens]),
// values position-major ([kPageTokens][v_dim]).
struct AttentionTask {
  const float* const* q;     // [n_rows] -> k_dim numbers
  float* const* acc;         // [n_rows] -> the weighted sum of values: padded_to_16(v_dim) numbers, set by the kernel
  AttentionRow* rows;        // [n_rows], set by the kernel
  const int32_t* positions;  // [n_rows]
  int n_rows = 0;
  int k_dim = 0, v_dim = 0;
  float scale = 1, softcap = 0;
  int64_t window = 0;
  const std::byte* const*
      pages;  // from first_page: this head's keys, values follow; nullptr: behind every row's window
  int first_page = 0, end_page = 0;
  int listed_end = 0;  // `pages` goes on beyond end_page to here: what will be wanted after this task
  float* scratch;      // attention_scratch_floats()
};
inline constexpr int kMaxAttentionRows = 32;
constexpr size_t padded_to_16(int n) { return (static_cast<size_t>(n) + 15) / 16 * 16; }

// One value head over the tokens of one sequence.
struct DeltaTask {
  const float *q, *k, *v, *alpha, *beta;    // of the first token
  size_t qk_stride, v_stride, gate_stride;  // from token to token
  float* out;
  size_t out_stride;
  float* state;  // [k_dim][v_dim]
  int n_tokens, k_dim, v_dim;
  float a, dt_bias, q_scale;
};

struct KvLayout;  // how a format's keys and values lie in a page

struct Kernels {
  std::string_view isa;
  const PanelFormat* const* panel_formats;  // ended by nullptr
  int tile_columns;

  // Quants, scales and sums of one column; which blocks, `kind` says.
  void (*quantize)(const float* x, size_t n, ColumnKind kind, int8_t* q, float* scale, int16_t* sum16, int16_t* sum32);
  void (*rms_norm)(const float* x, const float* weight, float eps, size_t n, float* out);  // weight may be nullptr
  void (*l2_norm)(const float* x, float eps, size_t n, float* out);
  void (*gated_act)(Act act, const float* gate, const float* up, size_t n, float* out);
  void (*add)(const float* a, const float* b, size_t n, float* out);
  void (*mul)(const float* a, const float* b, size_t n, float* out);
  void (*scale)(const float* x, float factor, size_t n, float* out);
  void (*softcap)(const float* x, float cap, size_t n, float* out);        // cap * tanh(x / cap)
  void (*add_scaled)(const float* x, float factor, size_t n, float* sum);  // sum += factor * x
  // out[c] = silu(sum over j of weight[j][c] * x[j][c]), taps rows of n channels each.
  void (*short_conv)(const float* const* x, const float* weight, int n_taps, size_t n, float* out);
  size_t (*find_largest)(const float* x, size_t n);  // the first of the largest; 0 if none is a number
  // Adds what a row saw of some pages to what it saw of others; then the softmax's division. `sink` may be nullptr.
  void (*merge_attention)(const AttentionRow& part, const float* part_acc, size_t v_dim, AttentionRow& whole,
                          float* acc);
  void (*finish_attention)(const AttentionRow& row, const float* acc, const float* sink, size_t v_dim, float* out);
  void (*delta_net)(const DeltaTask& task);
  const KvLayout* (*kv_layout)(std::string_view format);  // nullptr: not offered
  // 8-bit dot products as fast as they go, for measuring; returns how many products (multiply and add) they held.
  size_t (*run_dot_products)(size_t n_rounds, int32_t* sink);
};

// Keys and values of one head in one page, in some format: keys first, then values.
struct KvLayout {
  std::string_view format;
  size_t (*key_bytes)(int k_dim);  // of a page
  size_t (*value_bytes)(int v_dim);
  void (*write_key)(const float* k, int k_dim, int offset, std::byte* keys);
  void (*write_value)(const float* v, int v_dim, int offset, std::byte* values);
  void (*attend)(const AttentionTask& task);
};

constexpr size_t attention_scratch_floats(int k_dim, int v_dim) {
  return (static_cast<size_t>(k_dim) + padded_to_16(v_dim)) * 32;
}

// Of the processor's architecture (isa/choose_*.cc).
std::vector<const Kernels*> usable_kernels();  // those this processor runs, the best first
std::string_view kernels_need();               // what it must have for any

}  // namespace zinc::cpu
