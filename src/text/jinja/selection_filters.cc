// Filters that apply another filter or a test to every item: map, select, reject, selectattr, rejectattr.
#include "text/jinja/sequence_ops.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

const Value* find_named(const Args& args, std::string_view name) {
  for (const NamedValue& arg : args.named) {
    if (arg.name->bytes == name) return &arg.value;
  }
  return nullptr;
}

Value map_attribute(Runtime& rt, Self self, const Args& args) {
  const Value* const fallback = find_named(args, "default");
  if (args.named.size() > (fallback ? 2u : 1u)) return rt.fail("map: unexpected keyword argument");
  const AttributePath path(rt, *find_named(args, "attribute"));
  std::vector<Value> values = collect(rt, self);
  for (Value& value : values) value = path.get(rt, value, fallback ? *fallback : Value::missing());
  return rt.generator(values);
}

Value map(Runtime& rt, Self self, const Args& args) {
  if (!is_true(self)) return rt.generator({});
  if (args.positional.empty() && find_named(args, "attribute")) return map_attribute(rt, self, args);
  if (args.positional.empty()) return rt.fail("map requires a filter argument");
  const std::string_view name = text_arg(rt, args[0]).bytes;
  const Builtin* const filter = find_filter(name);
  if (!filter) return rt.fail("No filter named '{}'.", name);
  const Args rest{args.positional.subspan(1), args.named};
  std::vector<Value> values = collect(rt, self);
  for (Value& value : values) value = rt.call_builtin(*filter, value, rest);
  return rt.generator(values);
}

struct Selection {
  bool keeps = true;          // keep items that pass the test, or those that fail
  bool by_attribute = false;  // the first argument is the attribute to test
};

Value run_selection(Runtime& rt, Self self, const Args& args, Selection selection) {
  if (!is_true(self)) return rt.generator({});
  const size_t n_before = selection.by_attribute ? 1 : 0;
  if (args.positional.size() < n_before) return rt.fail("Missing parameter for attribute name");
  const AttributePath path = selection.by_attribute ? AttributePath(rt, args[0]) : AttributePath();
  const Builtin* test = nullptr;
  Args rest;
  if (args.positional.size() > n_before) {
    const std::string_view name = text_arg(rt, args[n_before]).bytes;
    test = find_test(name);
    if (!test) return rt.fail("No test named '{}'.", name);
    rest = Args{args.positional.subspan(n_before + 1), args.named};
  }
  std::vector<Value> kept;
  for (const Value& value : collect(rt, self)) {
    const Value tested = path.get(rt, value);
    const bool passes = is_true(test ? rt.call_builtin(*test, tested, rest) : tested);
    if (!rt.charge(1)) return Value();
    if (passes == selection.keeps) kept.push_back(value);
  }
  return rt.generator(kept);
}

Value select(Runtime& rt, Self self, const Args& args) { return run_selection(rt, self, args, {}); }
Value reject(Runtime& rt, Self self, const Args& args) { return run_selection(rt, self, args, {.keeps = false}); }
Value selectattr(Runtime& rt, Self self, const Args& args) {
  return run_selection(rt, self, args, {.by_attribute = true});
}
Value rejectattr(Runtime& rt, Self self, const Args& args) {
  return run_selection(rt, self, args, {.keeps = false, .by_attribute = true});
}

constexpr Builtin kFilters[] = {
    {"map", map, Builtin::kVariadic},
    {"select", select, Builtin::kVariadic},
    {"reject", reject, Builtin::kVariadic},
    {"selectattr", selectattr, Builtin::kVariadic},
    {"rejectattr", rejectattr, Builtin::kVariadic},
};

}  // namespace

std::span<const Builtin> selection_filters() { return kFilters; }

}  // namespace zinc::jinja
