// What filters over sequences share: attribute paths, keys and sorting.
#pragma once

#include <vector>

#include "text/jinja/loop.h"
#include "text/jinja/runtime.h"

namespace zinc::jinja {

// `a.b.0` as filters take it: each part an attribute, item or index.
class AttributePath {
 public:
  AttributePath() = default;  // the value itself
  AttributePath(Runtime& rt, const Value& path);
  Value get(Runtime& rt, Value item, const Value& otherwise = Value::missing()) const;

 private:
  std::vector<Value> parts_;
};

// All items of a value, written out. Failed: empty.
std::vector<Value> collect(Runtime& rt, const Value& value);

Value without_case(Runtime& rt, const Value& value);  // texts in lower case, others as they are

// The order of `keys` by Python's <, stable; safe whatever the comparison says.
std::vector<size_t> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool is_reverse);

}  // namespace zinc::jinja
