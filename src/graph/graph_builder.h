// Builds a Graph. An architecture file calls it in execution order; each call returns the value it produces. The
// builder keeps the first error (a missing weight, a wrong shape) and ignores every later call, so architecture files
// have no error handling; finish() returns the Graph or that error. Whatever a hostile file's metadata says, the result
// is an error, never a crash.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

// Finds a weight by name; nullptr: the file has no such weight.
using WeightSource = std::function<const TensorView*(std::string_view name)>;

class GraphBuilder;

// The weights of one layer: w("attn_q.weight", shape) is "blk.<layer>.attn_q.weight".
class LayerWeights {
 public:
  Value operator()(std::string_view name, const Shape& shape) const;
  Value optional(std::string_view name, const Shape& shape) const;  // none if absent
  bool has(std::string_view name) const;

 private:
  friend class GraphBuilder;
  LayerWeights(GraphBuilder& builder, int layer) : builder_(builder), prefix_("blk." + std::to_string(layer) + ".") {}
  GraphBuilder& builder_;
  std::string prefix_;
};

class GraphBuilder {
 public:
  // `target`: this is a draft graph from a file of its own. It is uploaded together with the target's graph, whose
  // cache layers and weights it may read. Its own weights get other names in the graph than in the file, because both
  // files have a "token_embd.weight". Must outlive the builder.
  GraphBuilder(std::string file_name, WeightSource source, const Graph* target = nullptr);

  LayerWeights layer(int layer);  // the following nodes belong to this layer
  void end_layers();              // the following nodes belong to no layer

  Value weight(std::string_view name, const Shape& shape);
  Value optional_weight(std::string_view name, const Shape& shape);  // none if absent
  Value weight_or(std::string_view name, std::string_view fallback, const Shape& shape);
  bool has_weight(std::string_view name) const;
  Value target_weight(std::string_view name);  // REQUIRES: a target
  // The layer whose cache the target's last attention with this window reads; -1: it has none. REQUIRES: a target.
  int target_cache_layer(int64_t window) const;

  Value embed(Value table);
  Value hidden_in(int64_t dim);
  Value linear(Value x, Value weight, Value bias = {});
  Value rms_norm(Value x, Value weight, float eps);  // weight none: no scaling
  Value l2_norm(Value x, float eps);
  Value rope(Value x, const RopeParams& params, Value freq_factors = {}, Value long_factors = {});
  struct AttentionInputs {
    Value q, k, v;  // k and v none: read the cache of `cache_layer`
    Value sinks = {};
  };
  Value attention(const AttentionInputs& in, const AttentionParams& params);
  Value gated_act(Act act, Value gate, Value up);
  struct Route {
    Value ids, weights;
  };
  Route moe_route(Value logits, const MoeRouteParams& params);
  struct ExpertWeights {
    Value weight;
    Value bias = {}, scale = {};
  };
  Value moe_linear(Value x, const ExpertWeights& experts, Value ids);
  Value moe_combine(Value x, Value weights);
  Value short_conv(Value x, Value weight, const ShortConvParams& params);
  struct DeltaNetInputs {
    Value q, k, v, alpha, beta, dt_bias, a;
  };
  Value delta_net(const DeltaNetInputs& in, const DeltaNetParams& params);
  Value add(Value a, Value b);
  Value mul(Value x, Value weight);
  Value unary(Op op, Value x, OpParams params = {});  // REQUIRES: one of kUnaryOps
  Value scale(Value x, float factor) { return unary(Op::scale, x, ScaleParams{factor}); }
  Value softcap(Value x, float cap);
  Value relu2(Value x) { return unary(Op::relu2, x); }
  Value view(Value x, const Shape& shape);
  Value heads(Value x, int64_t n_heads);  // [T, n] -> [T, n_heads, n / n_heads]
  Value flatten(Value x);                 // [T, a, b] -> [T, a*b]
  Value slice(Value x, int64_t begin, int64_t length);
  Value concat(Value a, Value b);
  Value rows(Value x);

  void label(Value v, std::string name);  // names an activation for exports and tests
  void hidden(Value v);                   // the hidden state after the final norm, [T, dim]
  void logits(Value v);                   // [R, vocab]; ends the graph with a sample node

  void fail_with(Error error);  // keeps the first error
  Result<Graph> finish();

 private:
  Value add_value(ValueInfo info);
  Value add_node(Op op, std::initializer_list<Value> in, OpParams params, ValueInfo out);
  struct Inputs {
    std::initializer_list<Value> activations = {}, weights = {}, optional_weights = {};
  };
  // Whether there is no error yet and the inputs are present and of their kind, the activations with the same rows.
  bool usable(Op op, const Inputs& in);
  bool has_token_rows(Op op, Value v);
  Value weight_scale(Value weight);  // none if the file has none
  template <class Cache>
  bool claim(Op op, Cache& cache, const Cache& wanted, bool is_new);
  bool require(bool condition, Op op, std::string_view what);
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  ValueInfo like(Value v, const Shape& shape) const;  // an activation with v's rows
  LayerCache& cache(int layer);

  std::string file_name_;
  WeightSource source_;
  const Graph* target_;
  std::string_view name_prefix_;  // of own weights in the graph
  Graph graph_;
  std::unordered_map<std::string, Value> weights_;
  int16_t layer_ = -1;
  Status status_ = ok_status();
};

}  // namespace zinc
