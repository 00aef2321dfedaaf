// Finds the first op whose result differs between two instances of a model: on two backends, or with two files of the
// same architecture. Both compute the same tokens, a prefill step and then decode steps (position 0 alone hides
// mistakes in RoPE, attention and caches), and every value is compared in order of execution.
//
// A difference is an error beyond a bound: that of the op's own arithmetic (float, 8-bit activations, KV format), plus
// the errors that its inputs already have. So rounding may accumulate over the layers, and a wrong op stands out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/model_instance.h"

namespace zinc {

struct CompareOptions {
  std::vector<TokenId> tokens = {};  // REQUIRES: not empty, in the vocabulary
  int n_prefill = 1;                 // of them in the first step; the others follow one by one
  double bound = 0;                  // of every op, relative; 0: by its arithmetic
};

struct ValuePair {
  int row = 0, element = 0;
  float a = 0, b = 0;
};

struct OpDifference {
  int node = 0, layer = -1, position = 0;  // position: of the step's first token
  Op op = Op::embed;
  std::string name;                                   // of its weight or value
  double max_abs = 0, relative = 0, input_error = 0;  // relative: RMS of the difference over RMS of a
  double bound = 0;                                   // that `relative` exceeds
  std::vector<ValuePair> values = {};                 // the largest differences
};

struct CompareResult {
  std::optional<OpDifference> first;  // none: no op differs
  std::vector<double> layer_errors;   // per layer: the relative error of its last op, the largest of all steps
  int n_compared = 0;                 // values
  // Rows left out because a near tie of the router chose other experts: nothing after that can be compared.
  int n_rerouted_rows = 0;
  double logits_error = 0;        // relative, the largest of all steps
  double fused_logits_error = 0;  // the same with the plans that are used otherwise, which fuse ops
  bool fused_differs = false;     // that error is far beyond the other: a fused kernel is wrong
};

// Fails if the graphs differ or a step fails.
Result<CompareResult> compare_models(const ModelInstance& a, const ModelInstance& b, const CompareOptions& options);

}  // namespace zinc
