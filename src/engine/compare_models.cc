#include "engine/compare_models.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/model_runner.h"

namespace zinc {
namespace {

// Relative errors of one op with exact inputs.
constexpr double kFloatError = 1e-3;       // f32 sums in another order, expf
constexpr double kHalfError = 1e-2;        // f16 or bf16 products
constexpr double kEightBitError = 3e-2;    // activations quantized to 8 bits
constexpr double kEightBitKvError = 8e-2;  // KV cache in q8_0 or fp8
constexpr double kFourBitKvError = 0.4;    // KV cache in q4_0
constexpr double kMaxInputGain = 4;        // how much an op may amplify the relative error of its inputs
constexpr double kMaxSoftmaxGain = 16;     // the same for attention: errors of scores are exponentiated
constexpr double kAlwaysWrong = 0.7;       // no rounding explains it
constexpr double kAfterReroute = 0.3;      // attention to rows that other experts have computed
constexpr size_t kShownValues = 4;

double kv_error(const Format& format) {
  const int bits = 8 * format.block_bytes / format.block_elems;
  return bits < 8 ? kFourBitKvError : bits < 16 ? kEightBitKvError : kHalfError;
}

double rms(double squares, size_t n) { return n > 0 ? std::sqrt(squares / static_cast<double>(n)) : 0; }

struct ValueError {     // of one value
  double absolute = 0;  // RMS of the difference
  double magnitude = 0;
  double max_abs = 0;

  double relative() const {
    if (std::isnan(absolute)) return std::numeric_limits<double>::infinity();
    return magnitude > 0 ? absolute / magnitude : (absolute > 0 ? std::numeric_limits<double>::infinity() : 0);
  }
};

// Rows of a step that are still compared.
using RowMask = std::vector<bool>;

struct ValueRows {
  std::span<const float> a, b;
  size_t width = 1;
  size_t first_row = 0;  // of the step's tokens that row 0 belongs to
};

bool is_compared(const RowMask& mask, const ValueRows& rows, size_t r) { return mask[rows.first_row + r]; }

ValueError error_of(const ValueRows& rows, const RowMask& mask) {
  double difference = 0, magnitude = 0;
  ValueError out;
  size_t n = 0;
  for (size_t r = 0; r * rows.width < rows.a.size(); ++r) {
    if (!is_compared(mask, rows, r)) continue;
    for (size_t i = r * rows.width; i < (r + 1) * rows.width; ++i, ++n) {
      const double d = double{rows.a[i]} - double{rows.b[i]};
      difference += d * d;
      magnitude += double{rows.a[i]} * double{rows.a[i]};
      if (!(std::abs(d) <= out.max_abs)) out.max_abs = std::abs(d);
    }
  }
  out.absolute = rms(difference, n);
  out.magnitude = rms(magnitude, n);
  return out;
}

std::vector<ValuePair> largest_differences(const ValueRows& rows, const RowMask& mask) {
  const auto difference = [&](size_t i) {
    const double d = std::abs(double{rows.a[i]} - double{rows.b[i]});
    return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < rows.a.size(); ++i) {
    if (is_compared(mask, rows, i / rows.width)) order.push_back(i);
  }
  const size_t n = std::min(order.size(), kShownValues);
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(),
                    [&](size_t x, size_t y) { return difference(x) > difference(y); });
  std::vector<ValuePair> pairs;
  for (size_t k = 0; k < n; ++k) {
    const size_t i = order[k];
    pairs.push_back({static_cast<int>(i / rows.width), static_cast<int>(i % rows.width), rows.a[i], rows.b[i]});
  }
  return pairs;
}

// RMS of a weight, of its first rows if it is large.
double weight_rms(const TensorView& weight) {
  constexpr size_t kMaxRows = 256;
  const size_t n_in = static_cast<size_t>(weight.shape.inner()), n_bytes = row_bytes(*weight.format, n_in);
  std::vector<float> row(n_in);
  double squares = 0;
  size_t n = 0;
  for (; n < kMaxRows && (n + 1) * n_bytes <= weight.bytes.size(); ++n) {
    weight.format->dequantize(weight.bytes.subspan(n * n_bytes, n_bytes), row);
    for (const float x : row) squares += double{x} * x;
  }
  return rms(squares, n * n_in);
}

class ModelComparison {
 public:
  ModelComparison(const ModelInstance& a, const ModelInstance& b, const CompareOptions& options)
      : a_(a), b_(b), graph_(a.model().graph), options_(options) {
    const Graph& other = b.model().graph;
    errors_.resize(static_cast<size_t>(graph_.n_values()));
    for (size_t i = 0; i < std::min(graph_.nodes().size(), other.nodes().size()); ++i) {
      if (graph_.nodes()[i].layer >= 0)
        result_.layer_errors.resize(
            std::max<size_t>(result_.layer_errors.size(), static_cast<size_t>(graph_.nodes()[i].layer) + 1));
    }
  }

  // The values of a step that both runners have just computed. `position`: of its first token.
  void compare_step(const Plan& a, const Plan& b, int position, size_t n_tokens) {
    mask_.assign(n_tokens, true);
    position_ = position;
    for (size_t i = 0; i < graph_.nodes().size() && !result_.first; ++i) {
      if (std::ranges::find(mask_, true) == mask_.end()) return;
      compare_node(a, b, static_cast<int>(i));
    }
  }

  CompareResult& result() { return result_; }

 private:
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  bool is_float(Value v) const { return v && !info(v).is_weight() && info(v).element == Element::f32; }

  ValueRows rows_of(const Plan& a, const Plan& b, Value v) const {
    const size_t width = static_cast<size_t>(info(v).shape.elems());
    const std::span<const float> rows = a.value(v);
    const bool is_output = info(v).rows == Rows::outputs;  // the last token's
    return {rows, b.value(v), width, is_output ? mask_.size() - rows.size() / width : 0};
  }

  void compare_node(const Plan& a, const Plan& b, int i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    if (node.op == Op::sample) return;
    if (node.op == Op::moe_route) compare_routes(a, b, i);
    if (result_.first) return;
    for (const Value v : node.out) {
      if (!is_float(v)) continue;
      const ValueRows rows = rows_of(a, b, v);
      const ValueError error = errors_[static_cast<size_t>(v.id)] = error_of(rows, mask_);
      const double inputs = input_error(node, error, v), bound = bound_of(node, inputs);
      ++result_.n_compared;
      if (node.layer >= 0) {
        double& worst = result_.layer_errors[static_cast<size_t>(node.layer)];
        if (is_last_of_layer(i)) worst = std::max(worst, error.relative());
      }
      if (v == graph_.logits()) result_.logits_error = std::max(result_.logits_error, error.relative());
      if (error.relative() <= bound || error.absolute <= bound * term_magnitude(node)) continue;
      report(i, v, error, rows);
      result_.first->input_error = inputs;
      result_.first->bound = bound;
      return;
    }
  }

  void report(int i, Value v, const ValueError& error, const ValueRows& rows) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    std::string name;
    for (const Value in : node.in) {
      if (in && info(in).is_weight() && name.empty()) name = info(in).name;
    }
    if (name.empty()) name = info(v).name;
    result_.first = OpDifference{.node = i,
                                 .layer = node.layer,
                                 .position = position_,
                                 .op = node.op,
                                 .name = std::move(name),
                                 .max_abs = error.max_abs,
                                 .relative = error.relative(),
                                 .values = largest_differences(rows, mask_)};
  }

  bool is_last_of_layer(int i) const {
    const size_t next = static_cast<size_t>(i) + 1;
    return next == graph_.nodes().size() || graph_.nodes()[next].layer != graph_.nodes()[static_cast<size_t>(i)].layer;
  }

  // The error of the inputs relative to the result: sums and copies pass absolute errors on, other ops relative ones.
  double input_error(const Node& node, const ValueError& out, Value v) const {
    double relative = 0, absolute = 0;
    for (const Value in : node.in) {
      if (!is_float(in)) continue;
      const ValueError& error = errors_[static_cast<size_t>(in.id)];
      const double parts = static_cast<double>(info(in).shape.elems()) / static_cast<double>(info(v).shape.elems());
      relative = std::max(relative, error.relative());
      absolute += error.absolute * std::sqrt(std::max(1.0, parts));
    }
    const bool is_sum = node.op == Op::add || node.op == Op::slice || node.op == Op::concat || node.op == Op::view ||
                        node.op == Op::rows;
    return is_sum && out.magnitude > 0 ? std::max(relative, absolute / out.magnitude) : relative;
  }

  // The magnitude of a result whose terms do not cancel and whose weights do not suppress the largest inputs. Results
  // are often smaller: a gate is one dot product, and norms scale outliers of the residual stream down. Errors are not.
  double term_magnitude(const Node& node) const {
    if (!node.in[1] || !info(node.in[1]).is_weight()) return 0;
    const ValueInfo& weight = info(node.in[1]);
    const double x = errors_[static_cast<size_t>(node.in[0].id)].magnitude;
    if (node.op == Op::norm) return weight_rms(weight.weight);  // of a normalized row
    if (node.op == Op::mul) return x * weight_rms(weight.weight);
    if (node.op != Op::linear && node.op != Op::moe_linear && node.op != Op::short_conv) return 0;
    return x * weight_rms(weight.weight) * std::sqrt(static_cast<double>(weight.shape.inner()));
  }

  double bound_of(const Node& node, double input_error) const {
    const bool has_softmax = node.op == Op::attention || node.op == Op::delta_net;
    const double gain = has_softmax ? kMaxSoftmaxGain : kMaxInputGain;
    const double own = options_.bound > 0 ? options_.bound : own_error(node);
    return std::min(std::max(kAlwaysWrong, own), own + gain * input_error);
  }

  double own_error(const Node& node) const {
    if (node.op == Op::linear || node.op == Op::moe_linear) {
      const Format& format = *info(node.in[1]).weight.format;
      const bool is_block = format.block_elems > 1;
      const int bits = std::min(a_.backend_info().matmul_activation_bits, b_.backend_info().matmul_activation_bits);
      return is_block && bits <= 8 ? kEightBitError : kHalfError;
    }
    if (node.op == Op::attention || node.op == Op::delta_net) {
      const double of_kv = std::max(kv_error(a_.kv_format()), kv_error(b_.kv_format()));
      return of_kv + (result_.n_rerouted_rows > 0 ? kAfterReroute : 0);
    }
    return kFloatError;
  }

  // Other experts are a difference, unless their router logits are so close that the error of the logits explains it.
  void compare_routes(const Plan& a, const Plan& b, int i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    const ValueRows ids = rows_of(a, b, node.out[0]), logits = rows_of(a, b, node.in[0]);
    const double allowed = 2 * errors_[static_cast<size_t>(node.in[0].id)].max_abs;
    for (size_t r = 0; r * ids.width < ids.a.size(); ++r) {
      for (size_t k = 0; k < ids.width && is_compared(mask_, ids, r); ++k) {
        const int32_t x = std::bit_cast<int32_t>(ids.a[r * ids.width + k]);
        const int32_t y = std::bit_cast<int32_t>(ids.b[r * ids.width + k]);
        if (x == y) continue;
        const auto logit = [&](std::span<const float> from, int32_t id) {
          const bool is_valid = id >= 0 && static_cast<size_t>(id) < logits.width;
          return is_valid ? from[r * logits.width + static_cast<size_t>(id)] : std::nanf("");
        };
        const double distance = std::abs(double{logit(logits.a, x)} - double{logit(logits.a, y)});
        if (distance <= allowed) {
          mask_[ids.first_row + r] = false;
          ++result_.n_rerouted_rows;
          continue;
        }
        ValueError error{.absolute = 1, .magnitude = 1, .max_abs = distance};
        report(i, node.out[0], error, logits);
        result_.first->values = {{static_cast<int>(r), x, logit(logits.a, x), logit(logits.b, x)},
                                 {static_cast<int>(r), y, logit(logits.a, y), logit(logits.b, y)}};
        return;
      }
    }
  }

  const ModelInstance &a_, &b_;
  const Graph& graph_;
  const CompareOptions& options_;
  std::vector<ValueError> errors_;  // per value, of this step
  RowMask mask_;
  int position_ = 0;
  CompareResult result_;
};

Status check_same_graph(const Graph& a, const Graph& b) {
  const bool has_same_nodes =
      a.n_values() == b.n_values() && std::ranges::equal(a.nodes(), b.nodes(), [](const Node& x, const Node& y) {
        return x.op == y.op && x.in == y.in && x.out == y.out;
      });
  bool has_same_shapes = has_same_nodes;
  for (int32_t i = 0; has_same_shapes && i < a.n_values(); ++i) {
    const ValueInfo &x = a.info(Value{i}), &y = b.info(Value{i});
    has_same_shapes = x.rows == y.rows && x.element == y.element && x.shape == y.shape;
  }
  if (has_same_shapes) return ok_status();
  return fail(ErrorCode::invalid_input, "the models have other {}; compare files of one model",
              has_same_nodes ? "shapes" : "graphs");
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  return error_of({a, b, a.size(), 0}, RowMask(1, true)).relative();
}

// Calls `step` for the prefill step and each decode step.
template <class Step>
Status for_each_step(const CompareOptions& options, const Step& step) {
  const size_t n_prefill = std::min(options.tokens.size(), static_cast<size_t>(options.n_prefill));
  for (size_t at = 0; at < options.tokens.size();) {
    const size_t n = at == 0 ? n_prefill : 1;
    ZINC_TRY(goes_on, step(at, std::span(options.tokens).subspan(at, n)));
    if (!goes_on) return ok_status();
    at += n;
  }
  return ok_status();
}

struct RunnerPair {
  ModelRunner a, b;
};
Result<RunnerPair> create_pair(const ModelInstance& a, const ModelInstance& b, const CompareOptions& options,
                               bool keep_values) {
  const RunnerOptions runner{
      .context = static_cast<int>(options.tokens.size()), .step_tokens = options.n_prefill, .keep_values = keep_values};
  ZINC_TRY(first, ModelRunner::create(a, runner));
  ZINC_TRY(second, ModelRunner::create(b, runner));
  return RunnerPair{std::move(first), std::move(second)};
}

}  // namespace

Result<CompareResult> compare_models(const ModelInstance& a, const ModelInstance& b, const CompareOptions& options) {
  if (Status same = check_same_graph(a.model().graph, b.model().graph); !same.ok()) return same.error();
  ModelComparison comparison(a, b, options);
  {
    ZINC_TRY(pair, create_pair(a, b, options, true));
    const Status done = for_each_step(options, [&](size_t at, std::span<const TokenId> tokens) -> Result<bool> {
      ZINC_TRY(of_a, pair.a.feed(tokens));
      ZINC_TRY(of_b, pair.b.feed(tokens));
      comparison.compare_step(pair.a.plan(), pair.b.plan(), static_cast<int>(at), tokens.size());
      return !comparison.result().first;
    });
    if (!done.ok()) return done.error();
  }
  if (comparison.result().first) return std::move(comparison.result());
  ZINC_TRY(fused, create_pair(a, b, options, false));
  double& worst = comparison.result().fused_logits_error;
  const Status done = for_each_step(options, [&](size_t, std::span<const TokenId> tokens) -> Result<bool> {
    ZINC_TRY(of_a, fused.a.feed(tokens));
    ZINC_TRY(of_b, fused.b.feed(tokens));
    worst = std::max(worst, relative_error(of_a, of_b));
    return true;
  });
  if (!done.ok()) return done.error();
  CompareResult& result = comparison.result();
  const double allowed = std::min(kAlwaysWrong, kEightBitError + kMaxInputGain * result.logits_error);
  result.fused_differs = result.n_rerouted_rows == 0 && !(worst <= allowed);
  return std::move(result);
}

}  // namespace zinc
