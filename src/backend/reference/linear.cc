// embed, linear and moe_linear: the ops with weight matrices.
#include <algorithm>

#include "backend/reference/kernels.h"

namespace zinc::reference {

void run_embed(const Node& node, const StepState& step) {
  const TensorView& table = step.graph.info(node.in[0]).weight;
  for (int t = 0; t < step.n_rows(node.out[0]); ++t) {
    dequantize_row(table, step.inputs.tokens[static_cast<size_t>(t)], step.row(node.out[0], t));
  }
}

void run_hidden_in(const Node& node, const StepState& step) {
  const std::span<float> out = step.f32(node.out[0]);
  ZINC_CHECK(step.inputs.hidden.size() == out.size());
  std::ranges::copy(step.inputs.hidden, out.begin());
}

// out[m, o] = dot(x[m], weight[o]) + bias[o]; parallel over the weight's rows, each dequantized once for all m.
void run_linear(const Node& node, const StepState& step) {
  const TensorView& weight = step.graph.info(node.in[1]).weight;
  const size_t n_in = static_cast<size_t>(weight.shape[1]);
  const size_t n_out = static_cast<size_t>(weight.shape[0]);
  const std::span<const float> x = step.f32(node.in[0]);
  const std::span<float> out = step.f32(node.out[0]);
  const size_t n_m = x.size() / n_in;
  const std::vector<float> bias =
      node.in[2] ? dequantize_all(step.graph.info(node.in[2]).weight) : std::vector<float>(n_out);
  step.threads.parallel_for(n_out, [&](size_t begin, size_t end) {
    std::vector<float> w(n_in);
    for (size_t o = begin; o < end; ++o) {
      dequantize_row(weight, static_cast<int64_t>(o), w);
      for (size_t m = 0; m < n_m; ++m) out[m * n_out + o] = dot(x.subspan(m * n_in, n_in), w) + bias[o];
    }
  });
}

// out[t, u] = (weight[e] . x[t] or x[t, u]) * scale[e] + bias[e], e = ids[t, u].
void run_moe_linear(const Node& node, const StepState& step) {
  const TensorView& weight = step.graph.info(node.in[1]).weight;
  const size_t n_out = static_cast<size_t>(weight.shape[1]);
  const size_t n_in = static_cast<size_t>(weight.shape[2]);
  const std::span<const int32_t> ids = step.i32(node.in[2]);
  const size_t n_used = step.width(node.in[2]);
  const bool one_input_per_token = step.graph.info(node.in[0]).shape.n_dims() == 1;
  const std::span<const float> x = step.f32(node.in[0]);
  const std::span<float> out = step.f32(node.out[0]);
  const std::vector<float> bias =
      node.in[3] ? dequantize_all(step.graph.info(node.in[3]).weight) : std::vector<float>();
  const std::vector<float> scale =
      node.in[4] ? dequantize_all(step.graph.info(node.in[4]).weight) : std::vector<float>();
  step.threads.parallel_for(n_out, [&](size_t begin, size_t end) {
    std::vector<float> w(n_in);
    for (size_t i = 0; i < ids.size(); ++i) {  // i = t * n_used + u
      const size_t expert = static_cast<size_t>(ids[i]);
      const std::span<const float> input = x.subspan((one_input_per_token ? i / n_used : i) * n_in, n_in);
      for (size_t o = begin; o < end; ++o) {
        dequantize_row(weight, static_cast<int64_t>(expert * n_out + o), w);
        float sum = dot(input, w);
        if (!scale.empty()) sum *= scale[expert];
        if (!bias.empty()) sum += bias[expert * n_out + o];
        out[i * n_out + o] = sum;
      }
    }
  });
}

}  // namespace zinc::reference
