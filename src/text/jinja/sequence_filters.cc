// Filters over lists, dicts and other sequences: length, join, sort, first, groupby, ...
#include <algorithm>
#include <set>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/sequence_ops.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

Value length(Runtime& rt, Self self, const Args&) {
  const int64_t n = length_of(rt, self);
  return n < 0 ? rt.fail("object of type '{}' has no len()", type_name(self)) : Value(n);
}

Value first(Runtime& rt, Self self, const Args&) {
  if (self.is(Kind::generator)) {
    Generator& generator = *self.generator;
    if (generator.n_taken < generator.items.size()) return generator.items[generator.n_taken++];
    return rt.undefined_with_hint("No first item, sequence was empty.");
  }
  if (self.is(Kind::text) && !self.text->bytes.empty()) return get_item(rt, self, Value(int64_t{0}));
  Items items;
  if (!items_of(rt, self, items)) return Value();
  return items.size() > 0 ? items[0] : rt.undefined_with_hint("No first item, sequence was empty.");
}

Value last(Runtime& rt, Self self, const Args&) {
  if (self.is(Kind::generator)) return rt.fail("'generator' object is not reversible");
  if (self.is(Kind::text) && !self.text->bytes.empty()) return get_item(rt, self, Value(int64_t{-1}));
  Items items;
  if (!items_of(rt, self, items)) return Value();
  return items.size() > 0 ? items[items.size() - 1] : rt.undefined_with_hint("No last item, sequence was empty.");
}

Value list(Runtime& rt, Self self, const Args&) { return rt.list(collect(rt, self)); }

Value join(Runtime& rt, Self self, const Args& args) {
  static const Text kNothing{{}, {}};
  const AttributePath path(rt, args[1]);
  const Text& separator = args.has(0) ? to_text(rt, args[0]) : kNothing;
  Items items;
  if (!items_of(rt, self, items)) return Value();
  TextBuilder out(rt);
  for (size_t i = 0; i < items.size() && rt.charge(1); ++i) {
    if (i > 0) out.append(separator);
    append_str(rt, out, path.get(rt, items[i]));
  }
  return out.finish();
}

Value reverse(Runtime& rt, Self self, const Args&) {
  if (self.is(Kind::text)) return get_slice(rt, self, Value::none(), Value::none(), Value(int64_t{-1}));
  if (!is_iterable(self)) return rt.fail("reverse: argument must be iterable");
  std::vector<Value> values = collect(rt, self);
  std::reverse(values.begin(), values.end());
  return rt.generator(values);
}

std::vector<Value> picked(const std::vector<Value>& values, const std::vector<size_t>& order) {
  std::vector<Value> result;
  for (const size_t i : order) result.push_back(values[i]);
  return result;
}

// Sort keys: a list per item, with one entry per comma-separated attribute.
std::vector<Value> sort_keys(Runtime& rt, const std::vector<Value>& values, const Value& attribute, bool keeps_case) {
  std::vector<AttributePath> paths;
  if (attribute.is(Kind::text)) {
    const Value parts = split(rt, *attribute.text, Text{",", {}}, -1, false);
    for (size_t i = 0; !rt.failed() && i < parts.list->items.size(); ++i) paths.emplace_back(rt, parts.list->items[i]);
  } else {
    paths.emplace_back(rt, attribute);
  }
  std::vector<Value> keys;
  for (const Value& value : values) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      const Value part = path.get(rt, value);
      parts.push_back(keeps_case ? part : without_case(rt, part));
    }
    if (!rt.charge(1)) return {};
    keys.push_back(rt.list(parts));  // always a list: undefined values compare as equal inside a list
  }
  return keys;
}

Value sort(Runtime& rt, Self self, const Args& args) {
  const std::vector<Value> values = collect(rt, self);
  const std::vector<Value> keys = sort_keys(rt, values, args[2], flag_arg(args, 1, false));
  if (rt.failed()) return Value();
  return rt.list(picked(values, sorted_order(rt, keys, flag_arg(args, 0, false))));
}

struct KeyLess {
  Runtime& rt;
  bool operator()(const Value& a, const Value& b) const { return compare_keys(rt, a, b) < 0; }
};

Value unique(Runtime& rt, Self self, const Args& args) {
  const AttributePath path(rt, args[1]);
  const bool keeps_case = flag_arg(args, 0, false);
  std::set<Value, KeyLess> seen(KeyLess{rt});
  std::vector<Value> kept;
  for (const Value& value : collect(rt, self)) {
    Value key = path.get(rt, value);
    if (!keeps_case) key = without_case(rt, key);
    if (!is_hashable(key)) return rt.fail("unhashable type: '{}'", type_name(key));
    if (!rt.charge(16)) return Value();  // cost of an insertion into a large set
    if (seen.insert(key).second) kept.push_back(value);
  }
  return rt.generator(kept);
}

Value extreme(Runtime& rt, Self self, const Args& args, bool wants_max) {
  const std::vector<Value> values = collect(rt, self);
  if (rt.failed()) return Value();
  if (values.empty()) return rt.undefined_with_hint("No aggregated item, sequence was empty.");
  const AttributePath path(rt, args[1]);
  const bool keeps_case = flag_arg(args, 0, false);
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < values.size() && rt.charge(1); ++i) {
    Value key = path.get(rt, values[i]);
    if (!keeps_case) key = without_case(rt, key);
    if (i > 0 && !(wants_max ? less(rt, best_key, key, ">") : less(rt, key, best_key))) continue;
    best = i;
    best_key = key;
  }
  return values[best];
}
Value min(Runtime& rt, Self self, const Args& args) { return extreme(rt, self, args, false); }
Value max(Runtime& rt, Self self, const Args& args) { return extreme(rt, self, args, true); }

Value sum(Runtime& rt, Self self, const Args& args) {
  const AttributePath path(rt, args[0]);
  Value total = args.has(1) ? args[1] : Value(int64_t{0});
  if (total.is(Kind::text)) return rt.fail("sum() can't sum strings");
  for (const Value& value : collect(rt, self)) total = add(rt, total, path.get(rt, value));
  return total;
}

Value batch(Runtime& rt, Self self, const Args& args) {
  const int64_t n = integer_arg(rt, args, 0, 0);
  const bool fills = args.has(1) && !args[1].is(Kind::none);
  std::vector<Value> batches, current;
  for (const Value& value : collect(rt, self)) {
    if (static_cast<int64_t>(current.size()) == n) {
      batches.push_back(rt.list(current));
      current.clear();
    }
    current.push_back(value);
  }
  while (fills && !current.empty() && static_cast<int64_t>(current.size()) < n && rt.charge(1)) {
    current.push_back(args[1]);
    rt.check_size(current.size(), sizeof(Value));
  }
  if (!current.empty()) batches.push_back(rt.list(current));
  return rt.generator(batches);
}

Value slice(Runtime& rt, Self self, const Args& args) {
  const std::vector<Value> values = collect(rt, self);
  const int64_t n = integer_arg(rt, args, 0, 0);
  if (n <= 0) return n == 0 ? rt.fail("slice: integer division or modulo by zero") : rt.generator({});
  const size_t n_slices = static_cast<size_t>(n), n_each = values.size() / n_slices, n_extra = values.size() % n_slices;
  const bool fills = args.has(1) && !args[1].is(Kind::none);
  std::vector<Value> slices;
  size_t at = 0;
  for (size_t i = 0; i < n_slices && rt.charge(2); ++i) {
    const size_t end = at + n_each + (i < n_extra ? 1 : 0);
    std::vector<Value> part(values.begin() + static_cast<std::ptrdiff_t>(at),
                            values.begin() + static_cast<std::ptrdiff_t>(end));
    if (fills && i >= n_extra) part.push_back(args[1]);
    slices.push_back(rt.list(part));
    at = end;
  }
  return rt.generator(slices);
}

Value groupby(Runtime& rt, Self self, const Args& args) {
  const std::vector<Value> values = collect(rt, self);
  const AttributePath path(rt, args[0]);
  const bool keeps_case = flag_arg(args, 2, false);
  std::vector<Value> keys;
  for (const Value& value : values) {
    const Value key = path.get(rt, value, args[1]);
    keys.push_back(keeps_case ? key : without_case(rt, key));
  }
  const std::vector<size_t> order = sorted_order(rt, keys, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size() && rt.charge(1);) {
    std::vector<Value> members;
    const size_t begin = i;
    while (i < order.size() && rt.charge(1) && equal(rt, keys[order[begin]], keys[order[i]])) {
      members.push_back(values[order[i++]]);
    }
    if (i == begin) break;  // failed, or a key unequal to itself
    const Value pair[] = {path.get(rt, members[0], args[1]), rt.list(members)};
    groups.push_back(
        Value::make_tuple(rt.arena().make<List>(rt.arena().copy(std::span<const Value>(pair)), false, true)));
  }
  return rt.list(groups);
}

Value dictsort(Runtime& rt, Self self, const Args& args) {
  if (!self.is(Kind::dict)) return rt.fail("dictsort: '{}' is not a mapping", type_name(self));
  const std::string_view by = args.has(1) ? text_arg(rt, args[1]).bytes : "key";
  if (by != "key" && by != "value") return rt.fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> keys, pairs;
  for (const Entry& entry : self.dict->entries) {
    if (!rt.charge(1)) return Value();
    const Value key = by == "key" ? entry.key : entry.value;
    keys.push_back(flag_arg(args, 0, false) ? key : without_case(rt, key));
    const Value pair[] = {entry.key, entry.value};
    pairs.push_back(rt.tuple(pair));
  }
  return rt.list(picked(pairs, sorted_order(rt, keys, flag_arg(args, 2, false))));
}

Value items(Runtime& rt, Self self, const Args&) {
  if (self.is(Kind::undefined)) return rt.generator({});
  if (!self.is(Kind::dict)) return rt.fail("Can only get item pairs from a mapping.");
  return rt.generator(collect(rt, Value(rt.arena().make<View>(View::Part::items, self.dict))));
}

Value default_value(Runtime& rt, Self self, const Args& args) {
  const bool replaces = self.is(Kind::undefined) || (flag_arg(args, 1, false) && !is_true(self));
  if (!replaces) return self;
  return args.has(0) ? args[0] : rt.literal("");
}

Value attribute(Runtime& rt, Self self, const Args& args) {
  const Text& name = text_arg(rt, args[0]);
  const bool is_dunder = name.bytes.starts_with("__") && name.bytes.ends_with("__");
  if (self.is(Kind::undefined) && !is_dunder) return rt.fail_undefined(self);
  const Value value = self.is(Kind::undefined) ? Value::missing() : find_attribute(rt, self, name);
  if (!value.is(Kind::missing)) return value;
  return Value::undefined(UndefinedReason::attribute, &name, self.kind);
}

constexpr Builtin kFilters[] = {
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", list},
    {"join", join, "d attribute"},
    {"reverse", reverse},
    {"sort", sort, "reverse case_sensitive attribute"},
    {"unique", unique, "case_sensitive attribute"},
    {"min", min, "case_sensitive attribute"},
    {"max", max, "case_sensitive attribute"},
    {"sum", sum, "attribute start"},
    {"batch", batch, "linecount fill_with", 1},
    {"slice", slice, "slices fill_with", 1},
    {"groupby", groupby, "attribute default case_sensitive", 1},
    {"dictsort", dictsort, "case_sensitive by reverse"},
    {"items", items},
    {"default", default_value, "default_value boolean"},
    {"d", default_value, "default_value boolean"},
    {"attr", attribute, "name", 1},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kFilters; }

}  // namespace zinc::jinja
