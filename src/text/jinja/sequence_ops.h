// Shared by sequence filters: attribute paths, keys and sorting.
#pragma once

#include <vector>

#include "text/jinja/loop_context.h"
#include "text/jinja/runtime.h"

namespace zinc::jinja {

// An attribute path of a filter, `a.b.0`: each part is an attribute, item or index.
class AttributePath {
 public:
  AttributePath() = default;  // the value itself
  AttributePath(Runtime& rt, const Value& path);
  Value get(Runtime& rt, Value item, const Value& fallback = Value::missing()) const;

 private:
  std::vector<Value> parts_;
};

// All items of an iterable. Empty if failed.
std::vector<Value> collect(Runtime& rt, const Value& value);

Value without_case(Runtime& rt, const Value& value);  // lower-cases strings, returns other values unchanged

// Stable sort order of `keys` by Python's <; safe for inconsistent comparisons.
std::vector<size_t> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool is_reverse);

}  // namespace zinc::jinja
