// Parameters of the kernels that work row by row: norm.comp, rope.comp, gated_act.comp, moe_combine.comp,
// elementwise.comp, copy.comp. Declared once: host C++, and GLSL by tools/shaders.
#pragma once

#include "backend/vulkan/params/matmul.h"

namespace zinc::vulkan {

inline constexpr int kFinePositions = 512;    // of RopeTable::fine
inline constexpr int kMaxRegisterRow = 8192;  // longest row that a workgroup keeps in registers

enum NormMode : int { kNoNorm = 0, kRms = 1, kL2 = 2 };
enum CopyKind : int {
  kCopy = 0,
  kOutputRows = 1,  // only the rows listed in StepParams::output_rows
  kHiddenIn = 2,    // from the host
  kLogitsOut = 3,   // to the host, the rows listed in StepParams::logit_rows
  kHiddenOut = 4    // to the host
};

struct RopeTable {
  uint64_t coarse, fine;  // [scalings, n_coarse or kFinePositions, n_pairs] of (cos, sin); 0: no rotation
  int n_pairs, adjacent;
  int scalings, n_coarse;  // scalings: of each token, their index in the step's upload; 0: all have RoPE scaling 0
};

namespace shader {

struct NormParams {
  CounterSync sync;
  uint64_t x, weight, out;  // out 0: only the quantized output
  Q8Activation q8;
  int n_rows, vectors_per_row, width, kind;  // kind: NormMode
  float eps;
};

struct RopeParams {
  CounterSync sync;
  uint64_t x, out;
  RopeTable rope;
  int n_rows, n_heads, head_dim;
};

struct GatedActParams {
  CounterSync sync;
  uint64_t gate, up, out;  // out 0: only the quantized output
  Q8Activation q8;
  int n_rows, vectors_per_row, width;  // vectors_per_row: rows of `width` within each of the n_rows
  int scalar_gate, act;                // scalar_gate: one gate for each of the n_rows
};

struct CombineParams {
  CounterSync sync;
  uint64_t x, weights;                  // [rows, n_experts_used, dim], [rows, n_experts_used]
  uint64_t shared_expert, shared_gate;  // [rows, dim], [rows]; 0: none
  uint64_t residual, out;
  uint64_t norm_weight, normed;  // normed 0: only quantized
  Q8Activation q8;
  int n_rows, n_experts_used, dim, is_normed;
  float norm_eps;
};

struct ElementwiseParams {
  CounterSync sync;
  uint64_t a, b, out;
  int n_rows, width, b_width, op;
  float factor;
};

struct CopyParams {
  CounterSync sync;
  uint64_t from, to;
  int kind, n_rows, vectors_per_row, from_width, from_begin, to_width, to_begin, n_copied;
};

}  // namespace shader
}  // namespace zinc::vulkan
