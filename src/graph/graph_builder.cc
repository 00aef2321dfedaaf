#include "graph/graph_builder.h"

#include <cmath>
#include <limits>
#include <utility>

namespace zinc {
namespace {

constexpr int kMaxLayers = 1024;  // far above any published model; limits the memory that hostile metadata can request

ValueInfo activation(Rows rows, const Shape& shape, Element element = Element::f32) {
  ValueInfo info;
  info.rows = rows;
  info.element = element;
  info.shape = shape;
  return info;
}

bool is_positive(float x) { return x > 0 && std::isfinite(x); }
bool fits_int(int64_t n) { return n <= std::numeric_limits<int>::max(); }

// `shape` with its innermost dimension replaced.
Shape with_inner(const Shape& shape, int64_t inner) {
  std::array<int64_t, Shape::kMaxDims> dims{};
  for (int i = 0; i < shape.n_dims(); ++i) dims[static_cast<size_t>(i)] = shape[i];
  dims[static_cast<size_t>(shape.n_dims() - 1)] = inner;
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(shape.n_dims())));
}

// GGUF does not distinguish a vector from a matrix with one row.
Shape without_leading_ones(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.n_dims(); ++i) {
    if (!dims.empty() || shape[i] != 1 || i == shape.n_dims() - 1) dims.push_back(shape[i]);
  }
  return Shape(dims);
}

}  // namespace

Value LayerWeights::operator()(std::string_view name, const Shape& shape) const {
  return builder_.weight(prefix_ + std::string(name), shape);
}
Value LayerWeights::optional(std::string_view name, const Shape& shape) const {
  return builder_.optional_weight(prefix_ + std::string(name), shape);
}
bool LayerWeights::has(std::string_view name) const { return builder_.has_weight(prefix_ + std::string(name)); }

GraphBuilder::GraphBuilder(std::string file_name, WeightSource source, const Graph* target)
    : file_name_(std::move(file_name)), source_(std::move(source)), target_(target) {
  if (!target) return;
  name_prefix_ = "mtp.";
  graph_.caches_.assign(target->caches().begin(), target->caches().end());
}

LayerWeights GraphBuilder::layer(int layer) {
  if (layer < 0 || layer >= kMaxLayers) {
    fail_with(fail(ErrorCode::invalid_input, "{}: layer {} is outside the supported range 0..{}", file_name_, layer,
                   kMaxLayers - 1));
  }
  layer_ = static_cast<int16_t>(layer);
  return LayerWeights(*this, layer);
}

void GraphBuilder::end_layers() { layer_ = -1; }

void GraphBuilder::fail_with(Error error) {
  if (status_.ok()) status_ = std::move(error);
}

Result<Graph> GraphBuilder::finish() {
  if (status_.ok() && !graph_.logits_) {
    fail_with(fail(ErrorCode::unsupported, "{}: the architecture built a graph without logits", file_name_));
  }
  if (!status_.ok()) return status_.error();
  return std::move(graph_);
}

// ---- weights ----

bool GraphBuilder::has_weight(std::string_view name) const { return source_(name) != nullptr; }

Value GraphBuilder::optional_weight(std::string_view name, const Shape& shape) {
  return has_weight(name) ? weight(name, shape) : Value{};
}

Value GraphBuilder::weight_or(std::string_view name, std::string_view fallback, const Shape& shape) {
  return weight(has_weight(name) ? name : fallback, shape);
}

Value GraphBuilder::weight(std::string_view name, const Shape& shape) {
  if (!status_.ok()) return {};
  const TensorView* view = source_(name);
  if (view == nullptr) {
    fail_with(fail(ErrorCode::invalid_input,
                   "{}: tensor '{}' is missing, expected {}; the file may be truncated or made for another program",
                   file_name_, name, shape.to_string()));
    return {};
  }
  if (without_leading_ones(view->shape) != without_leading_ones(shape)) {
    fail_with(fail(ErrorCode::invalid_input, "{}: tensor '{}' is {}, expected {}; it does not fit the file's metadata",
                   file_name_, name, view->shape.to_string(), shape.to_string()));
    return {};
  }
  std::string graph_name = std::string(name_prefix_) + std::string(name);
  if (const auto known = weights_.find(graph_name); known != weights_.end()) return known->second;
  ValueInfo info;
  info.shape = shape;
  info.weight = {view->format, shape, view->bytes};
  info.name = graph_name;
  const Value value = add_value(std::move(info));
  weights_.emplace(std::move(graph_name), value);
  return value;
}

Value GraphBuilder::target_weight(std::string_view name) {
  if (!status_.ok()) return {};
  const Value found = target_->find(name);
  if (!found || !target_->info(found).is_weight()) {
    fail_with(fail(ErrorCode::invalid_input, "{}: the model that it drafts for has no tensor '{}'", file_name_, name));
    return {};
  }
  const auto [entry, is_new] = weights_.try_emplace(std::string(name));
  if (is_new) entry->second = add_value(target_->info(found));
  return entry->second;
}

int GraphBuilder::target_cache_layer(int64_t window) const {
  for (size_t i = target_->nodes().size(); i-- > 0;) {
    const Node& node = target_->nodes()[i];
    if (node.op != Op::attention) continue;
    const AttentionParams& params = node.as<AttentionParams>();
    if (params.window == window) return params.cache_layer;
  }
  return -1;
}

// ---- nodes ----

Value GraphBuilder::add_value(ValueInfo info) {
  graph_.values_.push_back(std::move(info));
  return Value{static_cast<int32_t>(graph_.values_.size() - 1)};
}

Value GraphBuilder::add_node(Op op, std::initializer_list<Value> in, OpParams params, ValueInfo out) {
  Node node{.op = op, .layer = layer_, .out = {}, .in = {}, .params = std::move(params)};
  std::copy(in.begin(), in.end(), node.in.begin());
  node.out[0] = add_value(std::move(out));
  graph_.nodes_.push_back(node);
  return node.out[0];
}

bool GraphBuilder::require(bool condition, Op op, std::string_view what) {
  if (!condition) {
    const std::string where = layer_ < 0 ? "outside the layers" : fmt::format("layer {}", layer_);
    fail_with(fail(ErrorCode::invalid_input, "{}: {}: {}: {}; the file's metadata does not fit this architecture",
                   file_name_, where, op_name(op), what));
  }
  return condition && status_.ok();
}

bool GraphBuilder::usable(Op op, const Inputs& in) {
  if (!status_.ok()) return false;
  for (Value v : in.activations) {
    if (!require(bool(v), op, "an input is missing")) return false;
    const bool is_f32 = !info(v).is_weight() && info(v).element == Element::f32;
    if (!require(is_f32, op, "an input that must be an f32 activation is not")) return false;
    const bool same_rows = info(v).rows == info(*in.activations.begin()).rows;
    if (!require(same_rows, op, "an input has rows for all tokens, another only for outputs")) return false;
  }
  for (Value v : in.weights) {
    if (!require(v && info(v).is_weight(), op, "an input that must be a weight is not")) return false;
  }
  for (Value v : in.optional_weights) {
    if (v && !require(info(v).is_weight(), op, "an optional input must be a weight")) return false;
  }
  return true;
}

// For ops that use a token's position or sequence.
bool GraphBuilder::has_token_rows(Op op, Value v) {
  return require(info(v).rows == Rows::tokens, op, "the input must have a row for every token");
}

// A layer's cache has one shape for all nodes that write it.
template <class Cache>
bool GraphBuilder::claim(Op op, Cache& cache, const Cache& wanted, bool is_new) {
  if (!require(is_new || cache == wanted, op, "two nodes write the same cache in different shapes")) return false;
  cache = wanted;
  return true;
}

ValueInfo GraphBuilder::like(Value v, const Shape& shape) const { return activation(info(v).rows, shape); }

LayerCache& GraphBuilder::cache(int layer) {
  if (graph_.caches_.size() <= static_cast<size_t>(layer)) graph_.caches_.resize(static_cast<size_t>(layer) + 1);
  return graph_.caches_[static_cast<size_t>(layer)];
}

Value GraphBuilder::embed(Value table) {
  if (!usable(Op::embed, {.weights = {table}})) return {};
  if (!require(info(table).shape.n_dims() == 2, Op::embed, "the table must be a matrix")) return {};
  return add_node(Op::embed, {table}, {}, activation(Rows::tokens, {info(table).shape[1]}));
}

Value GraphBuilder::hidden_in(int64_t dim) {
  if (!usable(Op::hidden_in, {}) || !require(dim > 0, Op::hidden_in, "the width must be positive")) return {};
  return add_node(Op::hidden_in, {}, {}, activation(Rows::tokens, {dim}));
}

Value GraphBuilder::linear(Value x, Value weight, Value bias) {
  if (!usable(Op::linear, {.activations = {x}, .weights = {weight}, .optional_weights = {bias}})) return {};
  const Shape& w = info(weight).shape;
  if (!require(w.n_dims() == 2 && w[1] == info(x).shape.inner(), Op::linear, "weight and input widths differ"))
    return {};
  if (bias && !require(info(bias).shape == Shape{w[0]}, Op::linear, "the bias has the wrong width")) return {};
  const int64_t n_out = w[0];
  if (const Value factor = weight_scale(weight)) x = mul(x, factor);
  return x ? add_node(Op::linear, {x, weight, bias}, {}, like(x, with_inner(info(x).shape, n_out))) : Value{};
}

// A scalar scale of a whole matrix, which NVFP4 files store in "<stem>.scale" next to "<stem>.weight". A longer tensor
// of that name has another meaning; the architecture reads it.
Value GraphBuilder::weight_scale(Value weight) {
  constexpr std::string_view kEnding = ".weight";
  std::string name = info(weight).name;
  if (!name.starts_with(name_prefix_) || !name.ends_with(kEnding)) return {};
  name.erase(0, name_prefix_.size());
  name.replace(name.size() - kEnding.size(), kEnding.size(), ".scale");
  const TensorView* factor = source_(name);
  return factor != nullptr && factor->shape.elems() == 1 ? this->weight(name, {1}) : Value{};
}

Value GraphBuilder::rms_norm(Value x, Value weight, float eps) {
  if (!usable(Op::norm, {.activations = {x}, .optional_weights = {weight}})) return {};
  const bool fits = !weight || info(weight).shape == Shape{info(x).shape.inner()};
  if (!require(fits, Op::norm, "the weight has the wrong width")) return {};
  if (!require(eps >= 0, Op::norm, "the epsilon is negative")) return {};
  return add_node(Op::norm, {x, weight}, NormParams{NormKind::rms, eps}, like(x, info(x).shape));
}

Value GraphBuilder::l2_norm(Value x, float eps) {
  if (!usable(Op::norm, {.activations = {x}})) return {};
  if (!require(eps >= 0, Op::norm, "the epsilon is negative")) return {};
  return add_node(Op::norm, {x}, NormParams{NormKind::l2, eps}, like(x, info(x).shape));
}

Value GraphBuilder::rope(Value x, const RopeParams& params, Value freq_factors, Value long_factors) {
  if (!usable(Op::rope, {.activations = {x}, .optional_weights = {freq_factors, long_factors}})) return {};
  if (!has_token_rows(Op::rope, x)) return {};
  const Shape& shape = info(x).shape;
  const bool dims_fit = params.n_dims > 0 && params.n_dims % 2 == 0 && params.n_dims <= shape.inner();
  if (!require(shape.n_dims() == 2 && dims_fit, Op::rope, "the rotated dimensions do not fit the heads")) return {};
  if (!require(is_positive(params.theta) && is_positive(params.position_scale), Op::rope,
               "base and scale must be positive"))
    return {};
  const auto fits = [&](Value factors) { return !factors || info(factors).shape == Shape{params.n_dims / 2}; };
  if (!require(fits(freq_factors) && fits(long_factors), Op::rope,
               "there must be one frequency factor per rotated pair"))
    return {};
  const bool is_longrope = params.extension.kind == RopeExtensionKind::longrope;
  if (!require(is_longrope ? freq_factors && long_factors : !long_factors, Op::rope,
               "longrope, and only longrope, has long and short factors")) {
    return {};
  }
  return add_node(Op::rope, {x, freq_factors, long_factors}, params, like(x, shape));
}

Value GraphBuilder::attention(const AttentionInputs& in, const AttentionParams& params) {
  constexpr Op kOp = Op::attention;
  if (!require(bool(in.k) == bool(in.v), kOp, "keys and values must be given together")) return {};
  if (!usable(kOp, {.activations = {in.q}, .optional_weights = {in.sinks}}) || !has_token_rows(kOp, in.q)) return {};
  if (in.k && !usable(kOp, {.activations = {in.q, in.k, in.v}})) return {};
  if (!require(params.window >= 0 && fits_int(params.window), kOp, "the window is out of range")) return {};
  if (!require(params.cache_layer >= 0 && params.cache_layer < kMaxLayers, kOp, "the cache layer is out of range"))
    return {};
  const Shape& q = info(in.q).shape;
  if (!require(q.n_dims() == 2, kOp, "queries must be split into heads")) return {};
  AttentionCache& kv = cache(params.cache_layer).attention;
  if (in.k) {
    const Shape& k = info(in.k).shape;
    const Shape& v = info(in.v).shape;
    if (!require(k.n_dims() == 2 && v.n_dims() == 2 && k[0] == v[0], kOp, "keys and values differ in heads")) return {};
    if (!require(fits_int(k.elems()) && fits_int(v.elems()), kOp, "keys and values are too wide")) return {};
    const AttentionCache wanted = {static_cast<int>(k[0]), static_cast<int>(k[1]), static_cast<int>(v[1]),
                                   static_cast<int>(params.window)};
    if (!claim(kOp, kv, wanted, kv.kv_heads == 0)) return {};
  }
  if (!require(kv.kv_heads > 0, kOp, "the layer whose cache is read has no cache")) return {};
  if (!require(q[0] % kv.kv_heads == 0, kOp, "heads are not a multiple of the key heads")) return {};
  if (!require(q[1] == kv.k_dim, kOp, "query and key head sizes differ")) return {};
  if (!require(kv.window == params.window, kOp, "the shared cache has a different window")) return {};
  if (in.sinks && !require(info(in.sinks).shape == Shape{q[0]}, kOp, "there must be one sink per head")) return {};
  return add_node(kOp, {in.q, in.k, in.v, in.sinks}, params, like(in.q, {q[0] * kv.v_dim}));
}

Value GraphBuilder::gated_act(Act act, Value gate, Value up) {
  if (!usable(Op::gated_act, {.activations = {gate, up}})) return {};
  const Shape& g = info(gate).shape;
  const bool fits = g.elems() == info(up).shape.elems() || g.elems() == 1;
  if (!require(fits, Op::gated_act, "gate and input widths differ")) return {};
  return add_node(Op::gated_act, {gate, up}, GatedActParams{act}, like(up, info(up).shape));
}

GraphBuilder::Route GraphBuilder::moe_route(Value logits, const MoeRouteParams& params) {
  if (!usable(Op::moe_route, {.activations = {logits}})) return {};
  const Shape& shape = info(logits).shape;
  const bool fits = shape.n_dims() == 1 && params.n_used > 0 && params.n_used <= shape[0];
  if (!require(fits, Op::moe_route, "the number of experts used must be between 1 and the number of experts"))
    return {};
  const Rows rows = info(logits).rows;
  const Value ids = add_node(Op::moe_route, {logits}, params, activation(rows, {params.n_used}, Element::i32));
  const Value weights = add_value(activation(rows, {params.n_used}));
  graph_.nodes_.back().out[1] = weights;
  return {ids, weights};
}

Value GraphBuilder::moe_linear(Value x, const ExpertWeights& experts, Value ids) {
  constexpr Op kOp = Op::moe_linear;
  if (!usable(kOp,
              {.activations = {x}, .weights = {experts.weight}, .optional_weights = {experts.bias, experts.scale}})) {
    return {};
  }
  const bool ids_fit = ids && info(ids).element == Element::i32 && info(ids).rows == info(x).rows;
  if (!require(ids_fit, kOp, "the expert ids are not from a moe_route over the same rows")) return {};
  const Shape& w = info(experts.weight).shape;
  const Shape& in = info(x).shape;
  const int64_t n_used = info(ids).shape[0];
  if (!require(w.n_dims() == 3 && w[2] == in.inner(), kOp, "weight and input widths differ")) return {};
  if (!require(in.n_dims() == 1 || in[0] == n_used, kOp, "the input must have one row, or one per selected expert"))
    return {};
  const bool bias_fits = !experts.bias || info(experts.bias).shape == Shape{w[0], w[1]};
  const bool scale_fits = !experts.scale || info(experts.scale).shape == Shape{w[0]};
  if (!require(bias_fits && scale_fits, kOp, "bias or scale do not fit the experts")) return {};
  return add_node(kOp, {x, experts.weight, ids, experts.bias, experts.scale}, {}, like(x, {n_used, w[1]}));
}

Value GraphBuilder::moe_combine(Value x, Value weights) {
  if (!usable(Op::moe_combine, {.activations = {x, weights}})) return {};
  const Shape& shape = info(x).shape;
  const bool fits = shape.n_dims() == 2 && info(weights).shape == Shape{shape[0]};
  if (!require(fits, Op::moe_combine, "there must be one weight per selected expert")) return {};
  return add_node(Op::moe_combine, {x, weights}, {}, like(x, {shape[1]}));
}

Value GraphBuilder::short_conv(Value x, Value weight, const ShortConvParams& params) {
  constexpr Op kOp = Op::short_conv;
  if (!usable(kOp, {.activations = {x}, .weights = {weight}}) || !has_token_rows(kOp, x)) return {};
  if (!require(params.cache_layer >= 0 && params.cache_layer < kMaxLayers, kOp, "the cache layer is out of range"))
    return {};
  const Shape& w = info(weight).shape;
  if (!require(w.n_dims() == 2 && info(x).shape == Shape{w[0]}, kOp, "weight and input channels differ")) return {};
  if (!require(fits_int(w.elems()), kOp, "the weight is too large")) return {};
  RecurrentCache& state = cache(params.cache_layer).recurrent;
  RecurrentCache wanted = state;
  wanted.conv_channels = static_cast<int>(w[0]);
  wanted.conv_taps = static_cast<int>(w[1]);
  if (!claim(kOp, state, wanted, state.conv_channels == 0)) return {};
  return add_node(kOp, {x, weight}, params, like(x, info(x).shape));
}

Value GraphBuilder::delta_net(const DeltaNetInputs& in, const DeltaNetParams& params) {
  constexpr Op kOp = Op::delta_net;
  if (!usable(kOp, {.activations = {in.q, in.k, in.v, in.alpha, in.beta}, .weights = {in.dt_bias, in.a}})) return {};
  if (!has_token_rows(kOp, in.q)) return {};
  if (!require(params.cache_layer >= 0 && params.cache_layer < kMaxLayers, kOp, "the cache layer is out of range"))
    return {};
  const Shape& k = info(in.k).shape;
  const Shape& v = info(in.v).shape;
  const bool heads_fit = k.n_dims() == 2 && v.n_dims() == 2 && info(in.q).shape == k && v[0] % k[0] == 0;
  if (!require(heads_fit, kOp, "value heads are not a multiple of the key heads")) return {};
  for (Value per_head : {in.alpha, in.beta, in.dt_bias, in.a}) {
    if (!require(info(per_head).shape == Shape{v[0]}, kOp, "gates must have one value per value head")) return {};
  }
  if (!require(fits_int(k.elems()) && fits_int(v.elems()), kOp, "keys and values are too wide")) return {};
  RecurrentCache& state = cache(params.cache_layer).recurrent;
  RecurrentCache wanted = state;
  wanted.heads = static_cast<int>(v[0]);
  wanted.k_dim = static_cast<int>(k[1]);
  wanted.v_dim = static_cast<int>(v[1]);
  if (!claim(kOp, state, wanted, state.heads == 0)) return {};
  return add_node(kOp, {in.q, in.k, in.v, in.alpha, in.beta, in.dt_bias, in.a}, params, like(in.v, v));
}

Value GraphBuilder::add(Value a, Value b) {
  if (!usable(Op::add, {.activations = {a, b}})) return {};
  if (!require(info(a).shape == info(b).shape, Op::add, "shapes differ")) return {};
  return add_node(Op::add, {a, b}, {}, like(a, info(a).shape));
}

Value GraphBuilder::mul(Value x, Value weight) {
  if (!usable(Op::mul, {.activations = {x}, .weights = {weight}})) return {};
  const int64_t n = info(weight).shape.elems();
  const bool fits = n == 1 || n == info(x).shape.inner();
  if (!require(fits, Op::mul, "the weight has the wrong width")) return {};
  return add_node(Op::mul, {x, weight}, {}, like(x, info(x).shape));
}

Value GraphBuilder::unary(Op op, Value x, OpParams params) {
  if (!usable(op, {.activations = {x}})) return {};
  return add_node(op, {x}, params, like(x, info(x).shape));
}

Value GraphBuilder::softcap(Value x, float cap) {
  if (!require(cap > 0, Op::softcap, "the cap must be positive")) return {};
  return unary(Op::softcap, x, SoftcapParams{cap});
}

Value GraphBuilder::view(Value x, const Shape& shape) {
  if (!usable(Op::view, {.activations = {x}})) return {};
  if (!require(shape.elems() == info(x).shape.elems(), Op::view, "element counts differ")) return {};
  if (shape == info(x).shape) return x;
  return add_node(Op::view, {x}, {}, like(x, shape));
}

Value GraphBuilder::heads(Value x, int64_t n_heads) {
  if (!usable(Op::view, {.activations = {x}})) return {};
  const int64_t n = info(x).shape.elems();
  if (!require(n_heads > 0 && n % n_heads == 0, Op::view, "the width is not a multiple of the heads")) return {};
  return view(x, {n_heads, n / n_heads});
}

Value GraphBuilder::flatten(Value x) {
  return usable(Op::view, {.activations = {x}}) ? view(x, {info(x).shape.elems()}) : Value{};
}

Value GraphBuilder::slice(Value x, int64_t begin, int64_t length) {
  if (!usable(Op::slice, {.activations = {x}})) return {};
  const int64_t inner = info(x).shape.inner();
  const bool fits = begin >= 0 && length > 0 && begin <= inner && length <= inner - begin;
  if (!require(fits, Op::slice, "the slice is outside the row")) return {};
  if (length == inner) return x;
  return add_node(Op::slice, {x}, SliceParams{begin}, like(x, with_inner(info(x).shape, length)));
}

Value GraphBuilder::concat(Value a, Value b) {
  if (!usable(Op::concat, {.activations = {a, b}})) return {};
  const Shape& sa = info(a).shape;
  const int64_t inner_b = info(b).shape.inner();
  if (!require(info(b).shape == with_inner(sa, inner_b), Op::concat, "outer shapes differ")) return {};
  return add_node(Op::concat, {a, b}, {}, like(a, with_inner(sa, sa.inner() + inner_b)));
}

Value GraphBuilder::rows(Value x) {
  if (!usable(Op::rows, {.activations = {x}}) || !has_token_rows(Op::rows, x)) return {};
  return add_node(Op::rows, {x}, {}, activation(Rows::outputs, info(x).shape));
}

void GraphBuilder::label(Value v, std::string name) {
  if (status_.ok() && v) graph_.values_[static_cast<size_t>(v.id)].name = std::move(name);
}

void GraphBuilder::hidden(Value v) {
  if (!usable(Op::rows, {.activations = {v}}) || !has_token_rows(Op::rows, v)) return;
  graph_.hidden_ = v;
}

void GraphBuilder::logits(Value v) {
  if (!usable(Op::sample, {.activations = {v}})) return;
  const bool fits = info(v).rows == Rows::outputs && info(v).shape.n_dims() == 1 && !graph_.logits_;
  if (!require(fits, Op::sample, "logits must have one row per output and be set once")) return;
  graph_.logits_ = v;
  add_node(Op::sample, {v}, {}, activation(Rows::outputs, {1}, Element::i32));
}

}  // namespace zinc
