// Execution of statements.
#include "text/jinja/ast.h"
#include "text/jinja/loop_context.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

// The output of `body`, run in its own scope.
Value capture_body(Runtime& rt, const Body& body, Flow& flow) {
  Scope* const previous = rt.enter_scope(rt.scope());
  const Value text = rt.capture([&] { flow = rt.exec(body); });
  rt.leave_scope(previous);
  return text;
}

}  // namespace

Flow DataStmt::exec(Runtime& rt) const {
  rt.output().append(text->bytes, false);
  return Flow::next;
}

Flow PrintStmt::exec(Runtime& rt) const {
  for (const ExprPtr& value : values) {
    const Value printed = rt.eval(*value);
    if (rt.failed()) break;
    append_str(rt, rt.output(), printed);
  }
  return Flow::next;
}

Flow IfStmt::exec(Runtime& rt) const {
  for (const auto& [test, body] : branches) {
    if (is_true(rt.eval(*test))) return rt.exec(body);
  }
  return rt.exec(else_body);
}

Flow ForStmt::exec(Runtime& rt) const { return run(rt, rt.eval(*iterable), 0); }

Flow ForStmt::run(Runtime& rt, const Value& over, int depth0) const {
  Items items;
  if (rt.failed() || !items_of(rt, over, items)) return Flow::next;
  Scope* const outside = rt.scope();
  LoopContext* const loop = rt.arena().make<LoopContext>(*this, items, outside, depth0);
  bool has_run = false;
  Flow flow = Flow::next;
  Scope* inside = nullptr;
  while (flow != Flow::break_loop && rt.charge(1) && loop->advance(rt)) {
    has_run = true;
    if (!inside || inside->is_captured) {
      rt.enter_scope(outside);
      inside = rt.scope();
    } else {
      rt.leave_scope(inside);  // not captured by a macro: the scope is reused
      inside->variables.clear();
    }
    rt.assign(rt.program().loop, Value(loop));
    rt.assign(target, loop->item());
    flow = rt.exec(body);
    rt.leave_scope(outside);
  }
  return has_run ? Flow::next : rt.exec(else_body);
}

Flow SetStmt::exec(Runtime& rt) const {
  rt.assign(target, rt.eval(*value));
  return Flow::next;
}

Flow SetBlockStmt::exec(Runtime& rt) const {
  Flow flow = Flow::next;
  Value text = capture_body(rt, body, flow);
  if (flow != Flow::next) return flow;
  if (filtered) {
    rt.captured = text;
    text = rt.eval(*filtered);
  }
  rt.assign(target, text);
  return Flow::next;
}

Flow FilterBlockStmt::exec(Runtime& rt) const {
  Flow flow = Flow::next;
  rt.captured = capture_body(rt, body, flow);
  if (flow != Flow::next) return flow;
  append_str(rt, rt.output(), rt.eval(*filtered));
  return Flow::next;
}

Flow MacroStmt::exec(Runtime& rt) const {
  rt.assign(symbol, Value(rt.arena().make<Macro>(&macro, rt.capture_scope())));
  return Flow::next;
}

Flow CallStmt::exec(Runtime& rt) const {
  const Value body(rt.arena().make<Macro>(&caller, rt.capture_scope()));
  const NamedValue argument{&caller_name->text, body};
  append_str(rt, rt.output(), call->call(rt, &argument));
  return Flow::next;
}

Flow WithStmt::exec(Runtime& rt) const {
  std::vector<Value> values;
  for (const auto& [target, value] : variables) values.push_back(rt.eval(*value));
  Scope* const previous = rt.enter_scope(rt.scope());
  for (size_t i = 0; i < values.size(); ++i) rt.assign(variables[i].first, values[i]);
  const Flow flow = rt.exec(body);
  rt.leave_scope(previous);
  return flow;
}

Flow ScopeStmt::exec(Runtime& rt) const {
  if (autoescape && is_true(rt.eval(*autoescape))) {
    rt.fail("autoescape is not supported: prompts are not HTML");
    return Flow::next;
  }
  Scope* const previous = rt.enter_scope(rt.scope());
  const Flow flow = rt.exec(body);
  rt.leave_scope(previous);
  return flow;
}

Flow ImportStmt::exec(Runtime& rt) const {
  rt.fail("'{}' is not supported: there is no template loader", tag);
  return Flow::next;
}

}  // namespace zinc::jinja
