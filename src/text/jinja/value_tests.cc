// Jinja tests (`is`): defined, string, mapping, divisibleby, ...
#include "text/jinja/loop_context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

template <Kind kKind>
Value is_kind(Runtime&, Self self, const Args&) {
  return Value(self.is(kKind));
}

Value defined(Runtime&, Self self, const Args&) { return Value(!self.is(Kind::undefined)); }
Value is_true_value(Runtime&, Self self, const Args&) { return Value(self.is(Kind::boolean) && self.integer != 0); }
Value is_false_value(Runtime&, Self self, const Args&) { return Value(self.is(Kind::boolean) && self.integer == 0); }
Value integer(Runtime&, Self self, const Args&) { return Value(self.is(Kind::integer) || self.is(Kind::big_integer)); }
Value number(Runtime&, Self self, const Args&) { return Value(self.is_number()); }
Value iterable(Runtime&, Self self, const Args&) { return Value(is_iterable(self)); }
Value escaped(Runtime&, Self self, const Args&) { return Value(self.is(Kind::text) && self.text->is_markup); }

Value sequence(Runtime&, Self self, const Args&) {
  return Value(self.is(Kind::text) || self.is_sequence() || self.is(Kind::dict) || self.is(Kind::range) ||
               self.is(Kind::undefined));
}

Value callable(Runtime&, Self self, const Args&) {
  return Value(self.is(Kind::builtin) || self.is(Kind::method) || self.is(Kind::macro) || self.is(Kind::loop) ||
               self.is(Kind::undefined));
}

Value remainder_is(Runtime& rt, Self self, const Value& divisor, int64_t wanted) {
  const Value rest = apply_binary(rt, Tok::mod, self, divisor);
  return Value(equal(rt, rest, Value(wanted)));
}
Value odd(Runtime& rt, Self self, const Args&) { return remainder_is(rt, self, Value(int64_t{2}), 1); }
Value even(Runtime& rt, Self self, const Args&) { return remainder_is(rt, self, Value(int64_t{2}), 0); }
Value divisibleby(Runtime& rt, Self self, const Args& args) { return remainder_is(rt, self, args[0], 0); }

Value text_is(Runtime& rt, Self self, std::string_view method) {
  return rt.call_builtin(*find_method(Kind::text, method), Value(&to_text(rt, self)), Args{});
}
Value upper(Runtime& rt, Self self, const Args&) { return text_is(rt, self, "isupper"); }
Value lower(Runtime& rt, Self self, const Args&) { return text_is(rt, self, "islower"); }

// Object identity. Small integers, none and booleans are singletons in Python.
Value sameas(Runtime& rt, Self self, const Args& args) {
  if (self.kind != args[0].kind) return Value(false);
  if (self.is(Kind::text)) return Value(self.text == args[0].text || equal(rt, self, args[0]));
  if (self.is(Kind::none)) return Value(true);
  return Value(self.integer == args[0].integer);
}

Value is_filter(Runtime&, Self self, const Args&) {
  return Value(self.is(Kind::text) && find_filter(self.text->bytes) != nullptr);
}
Value is_test(Runtime&, Self self, const Args&) {
  return Value(self.is(Kind::text) && find_test(self.text->bytes) != nullptr);
}

template <Comparison kComparison>
Value compares(Runtime& rt, Self self, const Args& args) {
  return Value(compare(rt, kComparison, self, args[0]));
}

constexpr Builtin kTests[] = {
    {"defined", defined},
    {"undefined", is_kind<Kind::undefined>},
    {"none", is_kind<Kind::none>},
    {"boolean", is_kind<Kind::boolean>},
    {"true", is_true_value},
    {"false", is_false_value},
    {"integer", integer},
    {"float", is_kind<Kind::real>},
    {"number", number},
    {"string", is_kind<Kind::text>},
    {"mapping", is_kind<Kind::dict>},
    {"sequence", sequence},
    {"iterable", iterable},
    {"callable", callable},
    {"escaped", escaped},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisibleby, "num", 1},
    {"upper", upper},
    {"lower", lower},
    {"sameas", sameas, "other", 1},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<Comparison::in>, "seq", 1},
    {"==", compares<Comparison::eq>, "other", 1},
    {"eq", compares<Comparison::eq>, "other", 1},
    {"equalto", compares<Comparison::eq>, "other", 1},
    {"!=", compares<Comparison::ne>, "other", 1},
    {"ne", compares<Comparison::ne>, "other", 1},
    {">", compares<Comparison::gt>, "other", 1},
    {"gt", compares<Comparison::gt>, "other", 1},
    {"greaterthan", compares<Comparison::gt>, "other", 1},
    {">=", compares<Comparison::ge>, "other", 1},
    {"ge", compares<Comparison::ge>, "other", 1},
    {"<", compares<Comparison::lt>, "other", 1},
    {"lt", compares<Comparison::lt>, "other", 1},
    {"lessthan", compares<Comparison::lt>, "other", 1},
    {"<=", compares<Comparison::le>, "other", 1},
    {"le", compares<Comparison::le>, "other", 1},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_builtin(kTests, name); }

}  // namespace zinc::jinja
