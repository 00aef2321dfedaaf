// Parameters of the kernels that work row by row: row_ops.cu, norm_residual.cu, RoPE tables.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

struct QuantizeParams {
  const float* x;
  Q8Activation out;
  const int* n_rows;
  int vectors_per_row, width, q8_block;  // q8_block: 32 or 256
};

inline constexpr int kMaxNormSegments = 4;  // of a warp of norm_rows: rows of up to 8192 elements
struct NormParams {
  const float* x;
  const float* weight;  // null: none
  float* out;           // null: only q8
  Q8Activation q8;      // q null: none
  const int* n_rows;
  int vectors_per_row, width, q8_block;
  float eps;
  int is_l2;
};

inline constexpr int kMaxRopeScalings = 4;  // of graph/rope.h
struct RopeTableParams {
  Step step;
  const double* frequencies;  // [scalings, n_pairs], radians per position
  float* table;               // [T, n_pairs, 2]: cosine, sine
  const int* scalings;        // [T], the RoPE scaling of each token; null: 0
  int n_pairs;
  float amplitudes[kMaxRopeScalings];
};

struct RopeParams {
  const float* x;
  float* out;
  const float* table;
  const int* n_rows;
  int n_heads, head_dim, n_pairs, adjacent;
};

struct GatedActParams {
  const float* gate;
  const float* up;
  float* out;
  Q8Activation q8;  // q null: none
  const int* n_rows;
  int vectors_per_row, width, q8_block;  // vectors_per_row: rows of `width` per token
  int scalar_gate, act;                  // scalar_gate: one gate value per token
};

struct GatedActPairParams {
  GatedActParams acts[2];
  int n_first_blocks;
};

// The residual stream between two matmuls: out = (residual + t) * scale, where t is one normed row or the sum of two,
// normed again if has_outer. second_out = norm(out) * second_factor * second_weights. The next norm of out is written
// as floats, q8 or both.
struct NormResidualParams {
  const float* x[2];
  const float* weights[2];  // norm weights; null: none
  float eps[2];
  const float* outer_weights;
  float outer_eps;
  const float* residual;
  const float* scale;  // [1]; null: none
  float* out;
  float* second_out;  // null: none
  const float* second_norm_weights;
  const float* second_weights;
  float second_eps, second_factor;
  const float* next_weights;
  float next_eps;
  float* normed;    // null: none
  Q8Activation q8;  // q null: none
  int q8_block;
  int n_normed, has_outer;
  int width;  // a multiple of 8
  int max_rows;
  const int* n_rows;
};
inline constexpr int kMaxResidualSegments = 4;  // per warp: rows of up to 8192 elements

struct ElementwiseParams {
  const float* a;
  const float* b;
  float* out;
  const int* n_rows;
  int width, b_width, op;
  float factor;
};

// Copies `length` elements of each row of from_width into rows of to_width.
struct CopyParams {
  const float* from;
  float* to;
  const int* n_rows;
  const int* row_ids;  // row of `from` for each row of `to`; null: the same row
  int vectors_per_row, from_width, from_begin, to_width, to_begin, length;
};

}  // namespace zinc::simt
