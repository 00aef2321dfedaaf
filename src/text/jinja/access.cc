// Attributes, items and slices: a.b, a['b'], a[1:2].
#include <algorithm>
#include <limits>

#include "text/jinja/loop_context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace zinc::jinja {
namespace {

// Attributes blocked by the sandbox: reading one gives an undefined that fails with that reason when used.
bool is_unsafe_attribute(const Value& object, std::string_view name) {
  static constexpr std::string_view kListChanges[] = {"append", "clear", "pop",    "reverse",
                                                      "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto is_among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.is(Kind::list) && is_among(kListChanges)) return true;
  if (object.is(Kind::dict) && is_among(kDictChanges)) return true;
  if (object.is(Kind::generator) && (name == "gi_frame" || name == "gi_code")) return true;
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value index_sequence(Runtime& rt, const Value& object, int64_t index) {
  const int64_t n = length_of(rt, object);
  const int64_t at = index < 0 ? index + n : index;
  if (at < 0 || at >= n) {
    const Value shown = to_repr(rt, Value(index));
    return rt.failed() ? Value() : Value::undefined(UndefinedReason::element, shown.text, object.kind);
  }
  if (object.is_sequence()) return object.list->items[static_cast<size_t>(at)];
  if (object.is(Kind::range)) return Items(*object.range)[static_cast<size_t>(at)];
  const std::string_view bytes = object.text->bytes;
  const size_t begin = byte_offset(rt, bytes, static_cast<size_t>(at));
  return slice_text(rt, *object.text, begin, begin + byte_offset(rt, bytes.substr(begin), 1));
}

bool has_index(const Value& value) { return value.is_sequence() || value.is(Kind::text) || value.is(Kind::range); }

// Start, step and length of a slice, as Python's slice.indices().
struct SliceSteps {
  int64_t start, step;
  size_t n;
};

bool slice_bound(Runtime& rt, const Value& value, int64_t& bound) {
  if (value.is_integral()) {
    bound = value.integer;
  } else if (!value.is(Kind::none)) {
    rt.fail("slice indices must be integers or None");
  }
  return !rt.failed();
}

bool resolve_slice(Runtime& rt, const Value& start, const Value& stop, const Value& step, int64_t n, SliceSteps& out) {
  int64_t by = 1;
  if (!slice_bound(rt, step, by)) return false;
  if (by == 0) {
    rt.fail("slice step cannot be zero");
    return false;
  }
  const int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? n - 1 : n;
  int64_t from = by < 0 ? highest : lowest, to = by < 0 ? lowest : highest;
  if (!slice_bound(rt, start, from) || !slice_bound(rt, stop, to)) return false;
  const auto clamp = [&](const Value& given, int64_t& bound) {
    if (given.is(Kind::none)) return;
    bound = std::clamp(bound < 0 && bound >= -n ? bound + n : (bound < 0 ? lowest : bound), lowest, highest);
  };
  clamp(start, from);
  clamp(stop, to);
  out = {from, by, Range{from, to, by}.size()};
  return true;
}

Value slice_list(Runtime& rt, const Value& object, const SliceSteps& steps) {
  std::span<const Value> items = object.list->items;
  if (steps.step == 1) {
    items = items.subspan(steps.n == 0 ? 0 : static_cast<size_t>(steps.start), steps.n);
  } else {
    if (!rt.charge(steps.n / 4)) return Value();
    const std::span<Value> picked = rt.arena().array<Value>(steps.n);
    for (size_t i = 0; i < steps.n; ++i) {
      picked[i] = items[static_cast<size_t>(steps.start + static_cast<int64_t>(i) * steps.step)];
    }
    items = picked;
  }
  const List* const list = rt.arena().make<List>(items, object.list->from_input);
  return object.is(Kind::list) ? Value::make_list(list) : Value::make_tuple(list);
}

Value slice_chars(Runtime& rt, const Text& text, const SliceSteps& steps) {
  if (steps.n == 0) return slice_text(rt, text, 0, 0);
  if (steps.step == 1) {
    const size_t begin = byte_offset(rt, text.bytes, static_cast<size_t>(steps.start));
    return slice_text(rt, text, begin, begin + byte_offset(rt, text.bytes.substr(begin), steps.n));
  }
  Items chars;
  if (!items_of(rt, Value(&text), chars)) return Value();
  TextBuilder picked(rt);
  for (size_t i = 0; i < steps.n && rt.charge(1); ++i) {
    picked.append(*chars[static_cast<size_t>(steps.start + static_cast<int64_t>(i) * steps.step)].text);
  }
  return picked.finish(text.is_markup);
}

Value slice_range(Runtime& rt, const Range& range, const SliceSteps& steps) {
  int64_t step = 0, start = 0, stop = 0, span = 0;
  const bool overflows =
      __builtin_mul_overflow(range.step, steps.step, &step) ||
      __builtin_mul_overflow(range.step, steps.start, &start) || __builtin_add_overflow(range.start, start, &start) ||
      __builtin_mul_overflow(static_cast<int64_t>(steps.n), step, &span) || __builtin_add_overflow(start, span, &stop);
  if (overflows) return rt.fail("slice of a range does not fit in 64 bits");
  return Value(rt.arena().make<Range>(start, stop, step));
}

}  // namespace

// Python's getattr(): methods, and fields of a loop, namespace or group. `missing`: no such attribute.
Value find_attribute(Runtime& rt, const Value& object, const Text& name) {
  if (object.is(Kind::loop)) {
    const Value value = object.loop->attribute(rt, name.bytes);
    if (!value.is(Kind::missing)) return value;
  }
  if (object.is(Kind::namespace_)) {
    if (const Value* const value = object.ns->find(rt, name.bytes)) return *value;
  }
  if (object.is(Kind::tuple) && object.list->is_group) {
    if (name.bytes == "grouper") return object.list->items[0];
    if (name.bytes == "list") return object.list->items[1];
  }
  if (object.is(Kind::macro) && name.bytes == "name") return rt.literal(object.macro->node->name);
  if (const Builtin* const method = find_method(object.kind, name.bytes)) {
    return Value(rt.arena().make<Method>(method, object));
  }
  if (is_unsafe_attribute(object, name.bytes)) {
    return Value::undefined(UndefinedReason::unsafe, &name, object.kind);
  }
  return Value::missing();
}

Value get_attribute(Runtime& rt, const Value& object, const Text& name) {
  if (rt.failed()) return Value();
  if (object.is(Kind::undefined)) return rt.fail_undefined(object);
  const Value attribute = find_attribute(rt, object, name);
  if (!attribute.is(Kind::missing)) return attribute;
  if (object.is(Kind::dict)) {
    if (const Value* const value = object.dict->find(rt, name.bytes)) return *value;
  }
  return Value::undefined(UndefinedReason::attribute, &name, object.kind);
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  if (rt.failed()) return Value();
  if (object.is(Kind::undefined)) return rt.fail_undefined(object);
  if (object.is(Kind::dict) && is_hashable(key)) {
    if (const Value* const value = object.dict->find(rt, key)) return *value;
  }
  if (key.is_integral() && has_index(object)) return index_sequence(rt, object, key.integer);
  if (!key.is(Kind::text)) {
    const Value shown = to_repr(rt, key);
    return rt.failed() ? Value() : Value::undefined(UndefinedReason::element, shown.text, object.kind);
  }
  const Value attribute = find_attribute(rt, object, *key.text);
  if (!attribute.is(Kind::missing)) return attribute;
  return Value::undefined(UndefinedReason::attribute, key.text, object.kind);
}

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (rt.failed()) return Value();
  if (object.is(Kind::undefined)) return rt.fail_undefined(object);
  if (object.is(Kind::dict)) return rt.fail("unhashable type: 'slice'");
  if (!has_index(object)) return rt.fail("'{}' object is not subscriptable", type_name(object));
  SliceSteps steps{};
  if (!resolve_slice(rt, start, stop, step, length_of(rt, object), steps)) return Value();
  if (object.is(Kind::text)) return slice_chars(rt, *object.text, steps);
  if (object.is(Kind::range)) return slice_range(rt, *object.range, steps);
  return slice_list(rt, object, steps);
}

}  // namespace zinc::jinja
