// Epilogues of the gemv kernels, a type each: from the partial sums of an output's tiles to its value. Tiles are
// bit-identical to linear.cu's and are added in order by one thread per output. REQUIRES: kShape.
#pragma once

#include "backend/simt/gemv_tiles.h"
#include "backend/simt/quantize.h"

namespace zinc::simt {

// Partial sums of an output are as many floats apart.
constexpr int kPartialStride = kColumns * kBlockRows;

ZINC_DEVICE float sum_segments(const float* partial, int stride) {
  float sum = 0;
#pragma unroll(kInputSegments <= 16 ? kInputSegments : 8)
  for (int s = 0; s < kInputSegments; ++s) sum += partial[s * stride];
  return sum;
}

// Bias and scale of output o; those of a dense matrix do not depend on an expert.
ZINC_DEVICE void load_bias(const DenseMatrix& matrix, int, int, int o, float& bias) {
  if (matrix.bias) bias = matrix.bias[o];
}
ZINC_DEVICE void load_bias(const ExpertMatrix& matrix, int expert, int n_out, int o, float& bias) {
  if (matrix.bias) bias = matrix.bias[static_cast<long long>(expert) * n_out + o];
}
ZINC_DEVICE float scaled(const DenseMatrix&, int, float value) { return value; }
ZINC_DEVICE float scaled(const ExpertMatrix& matrix, int expert, float value) {
  return matrix.scale ? value * matrix.scale[expert] : value;
}
template <class M>
ZINC_DEVICE float matrix_value(const M& matrix, int expert, const float* partial, int stride, float bias) {
  const float value = scaled(matrix, expert, sum_segments(partial, stride));
  return matrix.bias ? value + bias : value;
}

// ---- epilogues: load() before the sums are complete, value() from them ----

struct PlainEpilogue {
  template <class M>
  using Part = PlainPart<M>;
  float bias = 0;

  template <class Part>
  ZINC_DEVICE void load(const Part& part, int expert, int, int o) {
    load_bias(part.matrix, expert, part.n_out, o, bias);
  }
  template <class Part>
  ZINC_DEVICE float value(const Part& part, int expert, const float* partial) const {
    return matrix_value(part.matrix, expert, partial, kPartialStride, bias);
  }
};

struct ResidualEpilogue : PlainEpilogue {
  template <class M>
  using Part = ResidualPart<M>;
  float residual = 0;

  template <class Part>
  ZINC_DEVICE void load(const Part& part, int expert, int column, int o) {
    residual = part.residual[column * part.n_out + o];
    PlainEpilogue::load(part, expert, column, o);
  }
  template <class Part>
  ZINC_DEVICE float value(const Part& part, int expert, const float* partial) const {
    return residual + PlainEpilogue::value(part, expert, partial);
  }
};

// act(gate) * up.
template <int act>
struct GluEpilogue {
  template <class M>
  using Part = GluPart<M>;
  float bias = 0, up_bias = 0;

  template <class Part>
  ZINC_DEVICE void load(const Part& part, int expert, int, int o) {
    load_bias(part.matrix, expert, part.n_out, o, bias);
    load_bias(part.up, expert, part.n_out, o, up_bias);
  }
  template <class Part>
  ZINC_DEVICE float value(const Part& part, int expert, const float* partial) const {
    const float gate = matrix_value(part.matrix, expert, partial, 2 * kPartialStride, bias);
    return gated(act, gate, matrix_value(part.up, expert, partial + kPartialStride, 2 * kPartialStride, up_bias));
  }
};

// ---- outputs ----

// One thread's output of a batch of panels: a row and column. A kernel's Panels says which part of it a panel belongs
// to: find_part(), n_out() and out(); the epilogue's load() and value() are called through it.
template <class Epilogue>
struct Output {
  static constexpr int kBatch = panels_per_batch(kShape);
  static_assert(kBatch * kColumns * kBlockRows <= kGemvThreads);
  int o = -1, part = 0;
  Epilogue epilogue;

  static ZINC_DEVICE int panel() { return static_cast<int>(threadIdx.x / static_cast<u32>(kColumns * kBlockRows)); }
  static ZINC_DEVICE int column() { return kColumns == 1 ? 0 : static_cast<int>(threadIdx.x % kColumns); }
  static ZINC_DEVICE int block_row() { return static_cast<int>(threadIdx.x / kColumns % static_cast<u32>(kBlockRows)); }
  // first: the batch's first panel among the cluster's.
  template <class Panels>
  ZINC_DEVICE void find(const Panels& panels, int first) {
    o = -1;
    int panel_of_part = first + panel();
    if (panel_of_part >= min(first + kBatch, panels.count())) return;
    panel_of_part += panels.begin;
    part = panels.find_part(panel_of_part);
    o = panel_of_part * kPanelRows + (kClusterSize > 1 ? cluster_rank() : 0) * kBlockRows + block_row();
    if (o >= panels.n_out(part)) o = -1;
    keep_in_register(o);
    keep_in_register(part);
  }
  template <class Panels>
  ZINC_DEVICE void load(const Panels& panels) {
    if (o >= 0) panels.load(epilogue, part, column(), o);
  }
  template <class Panels>
  ZINC_DEVICE void write(const Panels& panels, const float* partial) const {
    if (o < 0) return;
    partial += panel() * kPanelTiles * kPartialStride + block_row() * kColumns + column();
    *panels.out(part, column(), o) = panels.value(epilogue, part, o, partial);
  }
};

}  // namespace zinc::simt
