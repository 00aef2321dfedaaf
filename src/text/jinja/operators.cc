#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/format.h"
#include "text/jinja/loop_context.h"
#include "text/jinja/print.h"

namespace zinc::jinja {
namespace {

std::string_view sign_of(Tok op) { return describe(op); }

Value fail_operands(Runtime& rt, Tok op, const Value& a, const Value& b) {
  if (op == Tok::add && a.is(Kind::text)) {
    return rt.fail("can only concatenate str (not \"{}\") to str", type_name(b));
  }
  return rt.fail("unsupported operand type(s) for {}: '{}' and '{}'", sign_of(op), type_name(a), type_name(b));
}

Value fail_overflow(Runtime& rt, Tok op) { return rt.fail("the result of {} does not fit in 64 bits", sign_of(op)); }

Value floor_divide(Runtime& rt, int64_t a, int64_t b) {
  if (a == std::numeric_limits<int64_t>::min() && b == -1) return fail_overflow(rt, Tok::floordiv);
  const int64_t quotient = a / b;
  return Value(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
}

int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;  // INT64_MIN % -1 would overflow
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(Runtime& rt, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return rt.fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return fail_overflow(rt, Tok::pow);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return fail_overflow(rt, Tok::pow);
  }
  return Value(result);
}

Value integer_binary(Runtime& rt, Tok op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Tok::add:
      return __builtin_add_overflow(a, b, &result) ? fail_overflow(rt, op) : Value(result);
    case Tok::sub:
      return __builtin_sub_overflow(a, b, &result) ? fail_overflow(rt, op) : Value(result);
    case Tok::mul:
      return __builtin_mul_overflow(a, b, &result) ? fail_overflow(rt, op) : Value(result);
    case Tok::pow:
      return power(rt, a, b);
    default:
      break;
  }
  if (b == 0) return rt.fail("{}", op == Tok::div ? "division by zero" : "integer division or modulo by zero");
  if (op == Tok::div) return Value(static_cast<double>(a) / static_cast<double>(b));
  return op == Tok::floordiv ? floor_divide(rt, a, b) : Value(floor_remainder(a, b));
}

double floor_fmod(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_floor_divide(double a, double b) {
  const double quotient = (a - floor_fmod(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;  // an integer except for rounding
}

Value real_power(Runtime& rt, double base, double exponent) {
  if (base == 0 && exponent < 0) return rt.fail("0.0 cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent)) {
    return rt.fail("complex numbers are not supported");
  }
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    return rt.fail("numerical result out of range");
  }
  return Value(result);
}

Value real_binary(Runtime& rt, Tok op, double a, double b) {
  switch (op) {
    case Tok::add:
      return Value(a + b);
    case Tok::sub:
      return Value(a - b);
    case Tok::mul:
      return Value(a * b);
    case Tok::pow:
      return real_power(rt, a, b);
    default:
      break;
  }
  if (b == 0) return rt.fail("float division by zero");
  if (op == Tok::div) return Value(a / b);
  return Value(op == Tok::floordiv ? real_floor_divide(a, b) : floor_fmod(a, b));
}

Value repeat(Runtime& rt, const Value& value, int64_t n) {
  const size_t n_times = static_cast<size_t>(std::max<int64_t>(0, n));
  if (value.is(Kind::text)) {
    TextBuilder text(rt);
    text.append_repeated(*value.text, n_times);
    return text.finish(value.text->is_markup);
  }
  const std::span<const Value> items = value.list->items;
  if (items.empty() || n_times == 0) return value.is(Kind::list) ? rt.list({}) : rt.tuple({});
  if (!rt.check_size(n_times, items.size() * sizeof(Value)) || !rt.charge(n_times * items.size() / 4)) return Value();
  const std::span<Value> repeated = rt.arena().array<Value>(n_times * items.size());
  for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = items[i % items.size()];
  const List* const list = rt.arena().make<List>(repeated);
  return value.is(Kind::list) ? Value::make_list(list) : Value::make_tuple(list);
}

Value add_lists(Runtime& rt, const Value& a, const Value& b) {
  const size_t n = a.list->items.size() + b.list->items.size();
  if (!rt.check_size(n, sizeof(Value)) || !rt.charge(n / 4)) return Value();
  const std::span<Value> items = rt.arena().array<Value>(n);
  std::copy(b.list->items.begin(), b.list->items.end(),
            std::copy(a.list->items.begin(), a.list->items.end(), items.begin()));
  const List* const list = rt.arena().make<List>(items);
  return a.is(Kind::list) ? Value::make_list(list) : Value::make_tuple(list);
}

Value add_texts(Runtime& rt, const Text& a, const Text& b) {
  if (!a.is_markup && !b.is_markup) {
    const Text* const both[] = {&a, &b};
    return rt.join(both);
  }
  const Text left = escape_html(rt, a), right = escape_html(rt, b);
  const Text* const both[] = {&left, &right};
  return rt.join(both, true);
}

bool equal_lists(Runtime& rt, const List& a, const List& b, int depth) {
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!rt.charge(1) || !equal(rt, a.items[i], b.items[i], depth)) return false;
  }
  return true;
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Entry& entry : a.entries) {
    const Value* const other = b.find(rt, entry.key);
    if (!rt.charge(2) || !other || !equal(rt, entry.value, *other, depth)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size() != b.size()) return false;
  return a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step));
}

bool less_lists(Runtime& rt, const List& a, const List& b, std::string_view sign, int depth) {
  const size_t n = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < n && rt.charge(1); ++i) {
    if (!equal(rt, a.items[i], b.items[i], depth)) return less(rt, a.items[i], b.items[i], sign, depth);
  }
  return a.items.size() < b.items.size();
}

bool is_nan(const Value& value) { return value.is(Kind::real) && std::isnan(value.real); }

bool is_in_text(Runtime& rt, const Text& container, const Value& item) {
  if (!item.is(Kind::text)) {
    rt.fail("'in <string>' requires string as left operand, not {}", type_name(item));
    return false;
  }
  return find_text(rt, container.bytes, item.text->bytes, 0) != std::string_view::npos;
}

}  // namespace

Value add(Runtime& rt, const Value& a, const Value& b) { return apply_binary(rt, Tok::add, a, b); }

Value apply_binary(Runtime& rt, Tok op, const Value& a, const Value& b) {
  if (rt.failed()) return Value();
  if (a.is_integral() && b.is_integral()) return integer_binary(rt, op, a.integer, b.integer);
  if (op == Tok::mod && a.is(Kind::text)) return format_percent(rt, *a.text, b);
  if (a.is(Kind::undefined)) return rt.fail_undefined(a);
  if (b.is(Kind::undefined)) return rt.fail_undefined(b);
  if (op == Tok::add) {
    if (a.is(Kind::text) && b.is(Kind::text)) return add_texts(rt, *a.text, *b.text);
    if (a.is_sequence() && a.kind == b.kind) return add_lists(rt, a, b);
  }
  if (op == Tok::mul) {
    if ((a.is(Kind::text) || a.is_sequence()) && b.is_integral()) return repeat(rt, a, b.integer);
    if ((b.is(Kind::text) || b.is_sequence()) && a.is_integral()) return repeat(rt, b, a.integer);
  }
  if (!a.is_number() || !b.is_number()) return fail_operands(rt, op, a, b);
  if (a.is(Kind::real) || b.is(Kind::real)) return real_binary(rt, op, to_double(a), to_double(b));
  return fail_overflow(rt, op);  // one is a big_integer
}

Value negate(Runtime& rt, const Value& value, bool keeps_sign) {
  if (value.is(Kind::undefined)) return rt.failed() ? Value() : rt.fail_undefined(value);
  if (!value.is_number()) {
    return rt.fail("bad operand type for unary {}: '{}'", keeps_sign ? "+" : "-", type_name(value));
  }
  if (value.is(Kind::real)) return Value(keeps_sign ? value.real : -value.real);
  if (keeps_sign) return value.is(Kind::boolean) ? Value(value.integer) : value;
  if (value.is(Kind::big_integer)) return fail_overflow(rt, Tok::sub);
  return integer_binary(rt, Tok::sub, 0, value.integer);
}

bool equal(Runtime& rt, const Value& a, const Value& b, int depth) {
  if (depth > kMaxValueDepth) rt.fail("values are nested too deeply to be compared");
  if (rt.failed()) return false;
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::none:
    case Kind::undefined:
      return true;
    case Kind::text:
      return equal_texts(rt, a.text->bytes, b.text->bytes);
    case Kind::list:
    case Kind::tuple:
      return a.list == b.list || equal_lists(rt, *a.list, *b.list, depth + 1);
    case Kind::dict:
      return a.dict == b.dict || equal_dicts(rt, *a.dict, *b.dict, depth + 1);
    case Kind::range:
      return equal_ranges(*a.range, *b.range);
    default:
      return a.integer == b.integer;  // identity
  }
}

bool less(Runtime& rt, const Value& a, const Value& b, std::string_view sign, int depth) {
  if (depth > kMaxValueDepth) rt.fail("values are nested too deeply to be compared");
  if (rt.failed()) return false;
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) < 0;
  if (a.is(Kind::text) && b.is(Kind::text)) {
    return rt.charge_comparison(a.text->bytes, b.text->bytes) && a.text->bytes < b.text->bytes;
  }
  if (a.is_sequence() && a.kind == b.kind) return less_lists(rt, *a.list, *b.list, sign, depth + 1);
  if (a.is(Kind::undefined) || b.is(Kind::undefined)) {
    rt.fail_undefined(a.is(Kind::undefined) ? a : b);
  } else {
    rt.fail("'{}' not supported between instances of '{}' and '{}'", sign, type_name(a), type_name(b));
  }
  return false;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (rt.failed()) return false;
  if (container.is(Kind::text)) return is_in_text(rt, *container.text, item);
  if (container.is(Kind::dict)) {
    if (!is_hashable(item)) rt.fail("unhashable type: '{}'", type_name(item));
    rt.charge(1 + container.dict->entries.size() / kBytesPerStep);
    return !rt.failed() && container.dict->find(rt, item) != nullptr;
  }
  if (!is_iterable(container)) {
    rt.fail("argument of type '{}' is not iterable", type_name(container));
    return false;
  }
  Items items;
  if (!items_of(rt, container, items)) return false;
  for (size_t i = 0; i < items.size() && rt.charge(1); ++i) {
    if (equal(rt, items[i], item)) return true;
  }
  return false;
}

bool compare(Runtime& rt, Comparison comparison, const Value& a, const Value& b) {
  if (rt.failed()) return false;
  // A comparison with NaN is never true, so >= is not the opposite of <.
  const bool has_nan = is_nan(a) || is_nan(b);
  switch (comparison) {
    case Comparison::eq:
      return equal(rt, a, b);
    case Comparison::ne:
      return !equal(rt, a, b);
    case Comparison::lt:
      return less(rt, a, b, "<");
    case Comparison::gt:
      return less(rt, b, a, ">");
    case Comparison::le:
      return !less(rt, b, a, "<=") && !has_nan;
    case Comparison::ge:
      return !less(rt, a, b, ">=") && !has_nan;
    case Comparison::in:
      return contains(rt, b, a);
    case Comparison::not_in:
      return !contains(rt, b, a);
  }
  return false;
}

int64_t length_of(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return static_cast<int64_t>(n_chars(rt, value.text->bytes));
    case Kind::list:
    case Kind::tuple:
      return static_cast<int64_t>(value.list->items.size());
    case Kind::dict:
      return static_cast<int64_t>(value.dict->entries.size());
    case Kind::view:
      return static_cast<int64_t>(value.view->dict->entries.size());
    case Kind::range:
      return static_cast<int64_t>(value.range->size());
    default:
      return -1;
  }
}

bool to_integer(Runtime& rt, const Value& value, int64_t& out) {
  if (value.is_integral()) {
    out = value.integer;
    return !rt.failed();
  }
  if (value.is(Kind::undefined)) {
    rt.fail_undefined(value);
  } else {
    rt.fail("'{}' object cannot be interpreted as an integer", type_name(value));
  }
  return false;
}

}  // namespace zinc::jinja
