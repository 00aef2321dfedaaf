// How statements run.
#include "text/jinja/ast.h"
#include "text/jinja/loop.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"

namespace zinc::jinja {
namespace {

// What `body` prints, with variables of its own.
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
  return rt.exec(otherwise);
}

Flow ForStmt::exec(Runtime& rt) const { return run(rt, rt.eval(*iterable), 0); }

Flow ForStmt::run(Runtime& rt, const Value& over, int depth0) const {
  Items items;
  if (rt.failed() || !items_of(rt, over, items)) return Flow::next;
  Scope* const outside = rt.scope();
  Loop* const loop = rt.arena().make<Loop>(*this, items, outside, depth0);
  bool has_run = false;
  Flow flow = Flow::next;
  Scope* inside = nullptr;
  while (flow != Flow::break_loop && rt.charge(1) && loop->advance(rt)) {
    has_run = true;
    if (!inside || inside->is_captured) {
      rt.enter_scope(outside);
      inside = rt.scope();
    } else {
      rt.leave_scope(inside);  // no macro keeps the last round's variables: its scope serves again
      inside->variables.clear();
    }
    rt.assign(rt.program().loop, Value(loop));
    rt.assign(target, loop->item());
    flow = rt.exec(body);
    rt.leave_scope(outside);
  }
  return has_run ? Flow::next : rt.exec(otherwise);
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
  if (refused && is_true(rt.eval(*refused))) {
    rt.fail("autoescape is not supported: prompts are not HTML");
    return Flow::next;
  }
  Scope* const previous = rt.enter_scope(rt.scope());
  const Flow flow = rt.exec(body);
  rt.leave_scope(previous);
  return flow;
}

Flow LoadStmt::exec(Runtime& rt) const {
  rt.fail("'{}' is not possible: there are no other templates to load", tag);
  return Flow::next;
}

}  // namespace zinc::jinja
