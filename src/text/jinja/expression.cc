// Evaluation of expressions.
#include <algorithm>

#include "text/jinja/ast.h"
#include "text/jinja/loop_context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

// Inserts into a dict under construction; an existing key keeps its position and gets the new value.
void put(Runtime& rt, std::vector<Entry>& entries, const Entry& entry) {
  if (!rt.charge(1 + entries.size() / 4)) return;
  if (!is_hashable(entry.key)) {
    rt.fail("unhashable type: '{}'", type_name(entry.key));
    return;
  }
  for (Entry& old : entries) {
    if (compare_keys(rt, old.key, entry.key) != 0) continue;
    old.value = entry.value;
    return;
  }
  entries.push_back(entry);
}

bool add_dyn_kwargs(Runtime& rt, const Value& more, std::vector<NamedValue>& named) {
  if (!more.is(Kind::dict)) {
    rt.fail("argument after ** must be a mapping, not {}", type_name(more));
    return false;
  }
  for (const Entry& entry : more.dict->entries) {
    if (!entry.key.is(Kind::text)) rt.fail("keywords must be strings");
    if (!rt.charge(1)) return false;
    named.push_back({entry.key.text, entry.value});
  }
  return true;
}

}  // namespace

Value NameExpr::eval(Runtime& rt) const {
  const Value value = rt.lookup(symbol);
  return value.is(Kind::missing) ? Value::undefined(UndefinedReason::variable, name) : value;
}

Value ListExpr::eval(Runtime& rt) const {
  const std::span<Value> values = rt.arena().array<Value>(items.size());
  for (size_t i = 0; i < items.size(); ++i) values[i] = rt.eval(*items[i]);
  const List* const list = rt.arena().make<List>(values);
  return is_tuple ? Value::make_tuple(list) : Value::make_list(list);
}

Value DictExpr::eval(Runtime& rt) const {
  std::vector<Entry> made;
  for (const auto& [key, value] : entries) {
    const Value k = rt.eval(*key);
    put(rt, made, {k, rt.eval(*value)});
    if (rt.failed()) return Value();
  }
  return rt.dict(made);
}

Value AttributeExpr::eval(Runtime& rt) const {
  const Value value = rt.eval(*object);
  // Fast path with the method already looked up; same result as get_attribute().
  if (value.is(Kind::dict) && !dict_method) {
    if (const Value* const item = value.dict->find(rt, name->bytes)) return *item;
  }
  const Builtin* const method = value.is(Kind::text) ? text_method : (value.is(Kind::dict) ? dict_method : nullptr);
  if (method) return Value(rt.arena().make<Method>(method, value));
  return get_attribute(rt, value, name->text);
}

Value ItemExpr::eval(Runtime& rt) const {
  const Value value = rt.eval(*object);
  return get_item(rt, value, rt.eval(*key));
}

Value SliceExpr::eval(Runtime& rt) const {
  const Value value = rt.eval(*object);
  const auto bound = [&](const ExprPtr& expr) { return expr ? rt.eval(*expr) : Value::none(); };
  const Value from = bound(start), to = bound(stop), by = bound(step);
  return get_slice(rt, value, from, to, by);
}

bool CallArgs::eval(Runtime& rt, ArgBuffer& buffer, Args& out, const NamedValue* first_named) const {
  if (!dyn_args && !dyn_kwargs && named.empty() && !first_named) {  // fast path
    const bool fits = positional.size() <= buffer.size();
    const std::span<Value> values =
        fits ? std::span(buffer).first(positional.size()) : rt.arena().array<Value>(positional.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = rt.eval(*positional[i]);
    out.positional = values;
    return !rt.failed();
  }
  std::vector<Value> values;
  std::vector<NamedValue> names;
  for (const ExprPtr& arg : positional) values.push_back(rt.eval(*arg));
  Items more;
  if (dyn_args && !items_of(rt, rt.eval(*dyn_args), more)) return false;
  for (size_t i = 0; i < more.size() && rt.charge(1); ++i) values.push_back(more[i]);
  if (first_named) names.push_back(*first_named);
  for (const auto& [name, arg] : named) names.push_back({&name->text, rt.eval(*arg)});
  if (dyn_kwargs && !add_dyn_kwargs(rt, rt.eval(*dyn_kwargs), names)) return false;
  out.positional = rt.arena().copy(std::span<const Value>(values));
  out.named = rt.arena().copy(std::span<const NamedValue>(names));
  return !rt.failed();
}

Value CallExpr::call(Runtime& rt, const NamedValue* caller) const {
  const Value function = rt.eval(*callee);
  ArgBuffer buffer;
  Args values;
  if (!args.eval(rt, buffer, values, caller)) return Value();
  return rt.call(function, values);
}

Value FilterExpr::eval(Runtime& rt) const {
  if (!filter) return rt.fail("No filter named '{}'.", name);
  const Value value = rt.eval(*subject);
  ArgBuffer buffer;
  Args values;
  if (!args.eval(rt, buffer, values)) return Value();
  return rt.call_builtin(*filter, value, values);
}

Value TestExpr::eval(Runtime& rt) const {
  if (!test) return rt.fail("No test named '{}'.", name);
  const Value value = rt.eval(*subject);
  ArgBuffer buffer;
  Args values;
  if (!args.eval(rt, buffer, values)) return Value();
  return rt.call_builtin(*test, value, values);
}

Value CapturedExpr::eval(Runtime& rt) const { return rt.captured; }

Value UnaryExpr::eval(Runtime& rt) const {
  const Value value = rt.eval(*operand);
  if (op == Tok::name) return Value(!is_true(value));
  return negate(rt, value, op == Tok::add);
}

Value BinaryExpr::eval(Runtime& rt) const {
  const Value a = rt.eval(*left);
  return apply_binary(rt, op, a, rt.eval(*right));
}

Value LogicExpr::eval(Runtime& rt) const {
  const Value a = rt.eval(*left);
  return is_true(a) == is_or ? a : rt.eval(*right);
}

Value CompareExpr::eval(Runtime& rt) const {
  Value a = rt.eval(*first);
  for (const auto& [comparison, operand] : rest) {
    const Value b = rt.eval(*operand);
    if (!compare(rt, comparison, a, b)) return Value(false);
    a = b;
  }
  return Value(true);
}

Value ConcatExpr::eval(Runtime& rt) const {
  const std::span<const Text*> texts = rt.arena().array<const Text*>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) texts[i] = &to_text(rt, rt.eval(*parts[i]));
  return rt.failed() ? Value() : rt.join(texts);
}

Value ConditionalExpr::eval(Runtime& rt) const {
  if (is_true(rt.eval(*test))) return rt.eval(*then_expr);
  if (else_expr) return rt.eval(*else_expr);
  return rt.undefined_with_hint("the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace zinc::jinja
