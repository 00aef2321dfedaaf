// The forward pass of a model as data, in execution order. It is the only description of a model: every backend runs
// it, `zinc graph` exports it and computes its cost. Immutable once built (GraphBuilder); weights point into the mapped
// file, which must outlive the Graph.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/cache_spec.h"
#include "graph/op.h"
#include "tensor/tensor_view.h"

namespace zinc {

// An activation or a weight: an index into Graph::info(). Default: none (an absent optional input).
struct Value {
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
  bool operator==(const Value&) const = default;
};

enum class Rows : uint8_t { none, tokens, outputs };  // none: a weight
enum class Element : uint8_t { f32, i32 };            // of an activation

struct ValueInfo {
  Rows rows = Rows::none;
  Element element = Element::f32;
  Shape shape;        // of one row of an activation; of the whole weight
  TensorView weight;  // weights only
  std::string name;   // a weight's tensor name; an activation's label ("l_out-3"), often empty
  bool is_weight() const { return rows == Rows::none; }
};

struct Node {
  static constexpr int kMaxInputs = 7;
  Op op;
  int16_t layer = -1;  // -1: outside the layers
  std::array<Value, 2> out;
  std::array<Value, kMaxInputs> in;  // in the order of op.h; absent optional inputs are none
  OpParams params;

  template <class P>
  const P& as() const {  // REQUIRES: the params of this op are a P
    return std::get<P>(params);
  }
};

class Graph {
 public:
  std::span<const Node> nodes() const { return nodes_; }
  int n_values() const { return static_cast<int>(values_.size()); }
  const ValueInfo& info(Value v) const { return values_[static_cast<size_t>(v.id)]; }
  std::span<const LayerCache> caches() const { return caches_; }

  Value logits() const { return logits_; }  // [R, vocab]
  Value hidden() const { return hidden_; }  // [T, dim] after the final norm: for embeddings and draft graphs
  Value find(std::string_view name) const;  // by tensor name or label; none if absent

 private:
  friend class GraphBuilder;
  friend class GraphSplitter;
  friend class GraphSharder;
  friend class GraphBlob;
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<LayerCache> caches_;
  Value logits_, hidden_;
};

}  // namespace zinc
