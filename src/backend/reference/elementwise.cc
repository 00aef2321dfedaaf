// Elementwise ops, copies and greedy sampling.
#include <algorithm>
#include <cmath>

#include "backend/reference/kernels.h"

namespace zinc::reference {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float gelu(float x) {  // the tanh approximation
  constexpr float kRootTwoOverPi = 0.79788456080286535588f, kCubic = 0.044715f;
  return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * x * (1.0f + kCubic * x * x)));
}

float gated(Act act, float gate, float up) {
  constexpr float kOaiLimit = 7.0f, kOaiSlope = 1.702f;  // gpt-oss's clamped SwiGLU
  switch (act) {
    case Act::silu:
      return gate * sigmoid(gate) * up;
    case Act::gelu:
      return gelu(gate) * up;
    case Act::sigmoid:
      return sigmoid(gate) * up;
    case Act::swiglu_oai: {
      const float g = std::min(gate, kOaiLimit);
      return g * sigmoid(kOaiSlope * g) * (std::clamp(up, -kOaiLimit, kOaiLimit) + 1.0f);
    }
  }
  return 0;
}

// Copies `length` elements per innermost row from `from` (rows of from_inner, starting at from_begin) to `to` likewise.
struct RowPart {
  std::span<float> data;
  size_t inner, begin;
};
void copy_parts(RowPart from, RowPart to, size_t length) {
  const size_t n_rows = to.data.size() / to.inner;
  for (size_t r = 0; r < n_rows; ++r) {
    std::copy_n(from.data.begin() + static_cast<ptrdiff_t>(r * from.inner + from.begin), length,
                to.data.begin() + static_cast<ptrdiff_t>(r * to.inner + to.begin));
  }
}

size_t inner(const StepState& step, Value v) { return static_cast<size_t>(step.graph.info(v).shape.inner()); }

}  // namespace

void run_gated_act(const Node& node, const StepState& step) {
  const Act act = node.as<GatedActParams>().act;
  const bool one_gate = step.width(node.in[0]) == 1;
  for (int t = 0; t < step.n_rows(node.out[0]); ++t) {
    const std::span<const float> gate = step.row(node.in[0], t), up = step.row(node.in[1], t);
    const std::span<float> out = step.row(node.out[0], t);
    for (size_t i = 0; i < out.size(); ++i) out[i] = gated(act, gate[one_gate ? 0 : i], up[i]);
  }
}

void run_add(const Node& node, const StepState& step) {
  const std::span<const float> a = step.f32(node.in[0]), b = step.f32(node.in[1]);
  const std::span<float> out = step.f32(node.out[0]);
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] + b[i];
}

void run_mul(const Node& node, const StepState& step) {
  const std::vector<float> weight = dequantize_all(step.graph.info(node.in[1]).weight);
  const std::span<const float> x = step.f32(node.in[0]);
  const std::span<float> out = step.f32(node.out[0]);
  for (size_t i = 0; i < out.size(); ++i) out[i] = x[i] * weight[i % weight.size()];
}

void run_scale(const Node& node, const StepState& step) {
  const float factor = node.as<ScaleParams>().factor;
  std::ranges::transform(step.f32(node.in[0]), step.f32(node.out[0]).begin(), [=](float x) { return x * factor; });
}

void run_softcap(const Node& node, const StepState& step) {
  const float cap = node.as<SoftcapParams>().cap;
  std::ranges::transform(step.f32(node.in[0]), step.f32(node.out[0]).begin(),
                         [=](float x) { return cap * std::tanh(x / cap); });
}

void run_relu2(const Node& node, const StepState& step) {
  std::ranges::transform(step.f32(node.in[0]), step.f32(node.out[0]).begin(), [](float x) {
    const float positive = std::max(x, 0.0f);
    return positive * positive;
  });
}

void run_view(const Node&, const StepState&) {}  // shares the memory of its input

void run_slice(const Node& node, const StepState& step) {
  const size_t begin = static_cast<size_t>(node.as<SliceParams>().begin), length = inner(step, node.out[0]);
  copy_parts({step.f32(node.in[0]), inner(step, node.in[0]), begin}, {step.f32(node.out[0]), length, 0}, length);
}

void run_concat(const Node& node, const StepState& step) {
  const size_t n_a = inner(step, node.in[0]), n_b = inner(step, node.in[1]);
  copy_parts({step.f32(node.in[0]), n_a, 0}, {step.f32(node.out[0]), n_a + n_b, 0}, n_a);
  copy_parts({step.f32(node.in[1]), n_b, 0}, {step.f32(node.out[0]), n_a + n_b, n_a}, n_b);
}

void run_rows(const Node& node, const StepState& step) {
  for (int r = 0; r < step.n_rows(node.out[0]); ++r) {
    std::ranges::copy(step.row(node.in[0], step.inputs.output_rows[static_cast<size_t>(r)]),
                      step.row(node.out[0], r).begin());
  }
}

// The largest logit; max_element returns the first, so the lowest id wins a tie.
void run_sample(const Node& node, const StepState& step) {
  const std::span<int32_t> out = step.i32(node.out[0]);
  for (size_t r = 0; r < out.size(); ++r) {
    const std::span<const float> logits = step.row(node.in[0], static_cast<int>(r));
    out[r] = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
}

}  // namespace zinc::reference
