#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

constexpr int kMaxKeyValues = 100;  // elements of a tuple used as a dict key
constexpr double kTwoTo63 = 9223372036854775808.0;

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

// Exact comparison of an integer and a double, without rounding.
int compare_with_double(int64_t a, double b) {
  if (b >= kTwoTo63) return -1;
  if (b < -kTwoTo63) return 1;
  const double floor = std::floor(b);
  const int whole = three_way(a, static_cast<int64_t>(floor));
  if (whole != 0) return whole;
  return b > floor ? -1 : 0;
}

int compare_with_double(uint64_t a, double b) {  // REQUIRES: a >= 2^63
  if (b >= 2 * kTwoTo63) return -1;
  return b < kTwoTo63 ? 1 : three_way(a, static_cast<uint64_t>(b));
}

// Order of kinds among dict keys.
int key_class(const Value& value) {
  if (value.is_number()) return 0;
  if (value.is(Kind::text)) return 1;
  if (value.is(Kind::none)) return 2;
  return value.is(Kind::tuple) ? 3 : 4;
}

int compare_tuple_keys(Runtime& rt, const List& a, const List& b) {
  const size_t n = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < n; ++i) {
    const int order = compare_keys(rt, a.items[i], b.items[i]);
    if (order != 0) return order;
  }
  return three_way(a.items.size(), b.items.size());
}

// Nested tuples can share elements and have exponential size when walked: `n_left` bounds the walk; larger tuples are
// not hashable.
bool is_hashable_within(const Value& value, int& n_left) {
  if (--n_left < 0 || value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::view)) return false;
  if (!value.is(Kind::tuple)) return true;
  return std::all_of(value.list->items.begin(), value.list->items.end(),
                     [&](const Value& item) { return is_hashable_within(item, n_left); });
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  if (a.is(Kind::real) && std::isnan(a.real)) return b.is(Kind::real) && std::isnan(b.real) ? 0 : -1;
  if (b.is(Kind::real) && std::isnan(b.real)) return 1;
  if (a.is(Kind::real) || b.is(Kind::real)) {
    if (a.is_integral()) return compare_with_double(a.integer, b.real);
    if (b.is_integral()) return -compare_with_double(b.integer, a.real);
    if (a.is(Kind::big_integer)) return compare_with_double(a.big_integer, b.real);
    if (b.is(Kind::big_integer)) return -compare_with_double(b.big_integer, a.real);
    return three_way(a.real, b.real);
  }
  if (a.is(Kind::big_integer) || b.is(Kind::big_integer)) {
    if (a.kind != b.kind) return a.is(Kind::big_integer) ? 1 : -1;
    return three_way(a.big_integer, b.big_integer);
  }
  return three_way(a.integer, b.integer);
}

double to_double(const Value& number) {
  if (number.is(Kind::real)) return number.real;
  if (number.is(Kind::big_integer)) return static_cast<double>(number.big_integer);
  return static_cast<double>(number.integer);
}

int compare_keys(Runtime& rt, const Value& a, const Value& b) {
  const int classes = three_way(key_class(a), key_class(b));
  if (classes != 0) return classes;
  if (a.is_number()) return compare_numbers(a, b);
  if (a.is(Kind::text)) {
    rt.charge_comparison(a.text->bytes, b.text->bytes);
    return a.text->bytes.compare(b.text->bytes);
  }
  if (a.is(Kind::none) || (a.is(Kind::undefined) && b.is(Kind::undefined))) return 0;
  if (a.is(Kind::tuple)) return compare_tuple_keys(rt, *a.list, *b.list);
  const int kinds = three_way(a.kind, b.kind);
  return kinds != 0 ? kinds : three_way(a.integer, b.integer);  // by address
}

const Value* Dict::find(Runtime& rt, const Value& key) const {
  if (sorted.empty()) {
    for (const Entry& entry : entries) {
      if (compare_keys(rt, entry.key, key) == 0) return &entry.value;
    }
    return nullptr;
  }
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), key, [&](uint32_t i, const Value& wanted) {
    return compare_keys(rt, entries[i].key, wanted) < 0;
  });
  if (found == sorted.end() || compare_keys(rt, entries[*found].key, key) != 0) return nullptr;
  return &entries[*found].value;
}

const Value* Dict::find(Runtime& rt, std::string_view key) const {
  if (!sorted.empty()) {
    const Text text{key, {}};
    return find(rt, Value(&text));
  }
  for (const Entry& entry : entries) {
    if (entry.key.is(Kind::text) && equal_texts(rt, entry.key.text->bytes, key)) return &entry.value;
  }
  return nullptr;
}

const Dict* make_dict(Runtime& rt, std::span<const Entry> entries, bool from_input) {
  Dict* const dict = rt.arena().make<Dict>(entries, std::span<const uint32_t>{}, from_input);
  if (entries.size() <= kMaxLinearSearchEntries) return dict;
  const std::span<uint32_t> sorted = rt.arena().array<uint32_t>(entries.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::sort(sorted.begin(), sorted.end(),
            [&](uint32_t a, uint32_t b) { return compare_keys(rt, entries[a].key, entries[b].key) < 0; });
  dict->sorted = sorted;
  return dict;
}

size_t Range::size() const {
  // Unsigned arithmetic: the distance between two int64 always fits.
  const auto distance = [](int64_t from, int64_t to) {
    return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  };
  if (step > 0) return start < stop ? (distance(start, stop) - 1) / static_cast<uint64_t>(step) + 1 : 0;
  const uint64_t down = uint64_t{0} - static_cast<uint64_t>(step);
  return start > stop ? (distance(stop, start) - 1) / down + 1 : 0;
}

Value* Namespace::find(Runtime& rt, std::string_view name) {
  rt.charge(attributes.size() / kNamesPerStep);
  for (NamedValue& attribute : attributes) {
    if (equal_texts(rt, attribute.name->bytes, name)) return &attribute.value;
  }
  return nullptr;
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::view:
      return "dict_view";
    case Kind::range:
      return "range";
    case Kind::generator:
      return "generator";
    case Kind::namespace_:
      return "Namespace";
    case Kind::macro:
      return "Macro";
    case Kind::builtin:
      return "function";
    case Kind::method:
      return "builtin_function_or_method";
    case Kind::loop:
      return "LoopContext";
  }
  return "object";
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view kViews[] = {"dict_keys", "dict_values", "dict_items"};
  if (value.is(Kind::text) && value.text->is_markup) return "Markup";
  if (value.is(Kind::view)) return kViews[static_cast<size_t>(value.view->part)];
  return type_name(value.kind);
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0;
    case Kind::text:
      return !value.text->bytes.empty();
    case Kind::list:
    case Kind::tuple:
      return !value.list->items.empty();
    case Kind::dict:
      return !value.dict->entries.empty();
    case Kind::view:
      return !value.view->dict->entries.empty();
    case Kind::range:
      return value.range->size() > 0;
    default:
      return true;
  }
}

bool is_hashable(const Value& value) {
  int n_left = kMaxKeyValues;
  return is_hashable_within(value, n_left);
}

}  // namespace zinc::jinja
