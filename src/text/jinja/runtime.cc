#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/loop_context.h"
#include "text/jinja/print.h"

namespace zinc::jinja {
namespace {

// Index of `name` in `params`; npos if not found.
size_t param_index(std::string_view params, std::string_view name) {
  size_t index = 0;
  while (!params.empty()) {
    const size_t space = std::min(params.find(' '), params.size());
    if (params.substr(0, space) == name) return index;
    params.remove_prefix(std::min(space + 1, params.size()));
    ++index;
  }
  return std::string_view::npos;
}

}  // namespace

Runtime::Runtime(const Program& program, const Limits& limits)
    : program_(program), limits_(limits), globals_(program.names.size(), Value::missing()) {
  for (const Builtin& function : functions()) set_global(function.name, Value(&function));
}

void Runtime::fail_with(std::string message) {
  if (!error_) error_ = error_at(pos_, message);
  failed_ = true;
}

bool Runtime::charge(uint64_t n_steps) {
  n_steps_ += n_steps;
  if (n_steps_ > limits_.steps) {
    fail("the template exceeds the limit of {} steps", limits_.steps);
  } else if (arena_.used_bytes() + n_text_bytes_ > limits_.memory_bytes) {
    fail("the template exceeds the memory limit of {} bytes", limits_.memory_bytes);
  }
  return !failed_;
}

bool Runtime::charge_bytes(size_t n_bytes) {
  n_text_bytes_ += n_bytes;
  return charge(1 + n_bytes / kBytesPerStep);
}

bool Runtime::check_size(size_t n, size_t n_each) {
  size_t n_bytes = 0;
  if (__builtin_mul_overflow(n, n_each, &n_bytes) || n_bytes > limits_.text_bytes) {
    fail("the template creates a value over the limit of {} bytes", limits_.text_bytes);
  }
  return !failed_;
}

void Runtime::raise_limits_for_input(size_t n_bytes) {
  limits_.steps = std::min(limits_.steps + limits_.steps_per_input_value + n_bytes, limits_.max_steps);
  limits_.memory_bytes += limits_.memory_per_input_value + n_bytes * limits_.memory_per_input_byte;
  limits_.text_bytes += n_bytes * limits_.text_per_input_byte;
}

// One level of evaluation at a position of the template, for its lifetime.
class Runtime::EvalFrame {
 public:
  EvalFrame(Runtime& rt, Pos pos) : rt_(rt), caller_pos_(rt.pos_) {
    rt_.pos_ = pos;
    if (++rt_.depth_ > rt_.limits_.depth) rt_.fail("recursion too deep: more than {} levels", rt_.limits_.depth);
    rt_.charge(1);
  }
  ~EvalFrame() {
    --rt_.depth_;
    rt_.pos_ = caller_pos_;
  }

 private:
  Runtime& rt_;
  Pos caller_pos_;
};

Value Runtime::eval(const Expr& expr) {
  const EvalFrame frame(*this, expr.pos);
  return failed_ ? Value() : expr.eval(*this);
}

Flow Runtime::exec(const Body& body) {
  for (const auto& statement : body) {
    const EvalFrame frame(*this, statement->pos);
    if (failed_) return Flow::break_loop;
    const Flow flow = statement->exec(*this);
    if (flow != Flow::next) return flow;
  }
  return failed_ ? Flow::break_loop : Flow::next;
}

Value Runtime::call(const Value& callee, const Args& args) {
  switch (callee.kind) {
    case Kind::builtin:
      return call_builtin(*callee.builtin, Value::none(), args);
    case Kind::method:
      return call_builtin(*callee.method->function, callee.method->self, args);
    case Kind::macro:
      return call_macro(*callee.macro, args);
    case Kind::loop:
      return callee.loop->recurse(*this, args);
    case Kind::undefined:
      return fail_undefined(callee);
    default:
      return fail("'{}' object is not callable", type_name(callee));
  }
}

bool Runtime::bind(const Builtin& function, const Args& args, std::span<Value> bound) {
  std::fill(bound.begin(), bound.end(), Value::missing());
  if (args.positional.size() > bound.size()) {
    fail("{}() takes at most {} arguments ({} given)", function.name, bound.size(), args.positional.size());
    return false;
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const NamedValue& arg : args.named) {
    const size_t i = param_index(function.params, arg.name->bytes);
    if (i >= bound.size()) {
      fail("{}() got an unexpected keyword argument '{}'", function.name, arg.name->bytes);
      return false;
    }
    if (!bound[i].is(Kind::missing)) {
      fail("{}() got multiple values for argument '{}'", function.name, arg.name->bytes);
      return false;
    }
    bound[i] = arg.value;
  }
  for (size_t i = 0; i < function.n_required; ++i) {
    if (!bound[i].is(Kind::missing)) continue;
    fail("{}() is missing its argument {}", function.name, i + 1);
    return false;
  }
  return true;
}

Value Runtime::call_builtin(const Builtin& function, const Value& self, const Args& args) {
  if (failed_) return Value();
  if (function.params == Builtin::kVariadic) return function.run(*this, self, args);
  const size_t n_params = function.n_params();
  if (n_params == 0 && args.positional.empty() && args.named.empty()) return function.run(*this, self, args);
  ArgBuffer buffer;
  ZINC_CHECK(n_params <= buffer.size());  // guaranteed by our own tables
  const std::span<Value> bound = std::span(buffer).first(n_params);
  if (!bind(function, args, bound)) return Value();
  return function.run(*this, self, Args{bound, {}});
}

// Binds caller, kwargs and varargs if the macro's body uses them.
bool Runtime::bind_macro_extras(const MacroNode& node, const Args& args, std::span<const NamedValue> unused) {
  Value caller = undefined_with_hint("No caller defined");
  std::vector<Entry> kwargs;
  for (const NamedValue& arg : unused) {
    if (node.uses_caller && arg.name->bytes == "caller") {
      caller = arg.value;
    } else if (node.uses_kwargs) {
      kwargs.push_back({Value(arg.name), arg.value});
    } else {
      fail("macro '{}' takes no keyword argument '{}'", node.name, arg.name->bytes);
      return false;
    }
  }
  if (node.uses_caller) assign(program_.caller, caller);
  if (node.uses_kwargs) {
    assign(program_.kwargs, dict(kwargs));
  }
  const size_t n_taken = std::min(args.positional.size(), node.params.size());
  if (node.uses_varargs) {
    assign(program_.varargs, tuple(args.positional.subspan(n_taken)));
  } else if (args.positional.size() > n_taken) {
    fail("macro '{}' takes not more than {} argument(s)", node.name, node.params.size());
  }
  return !failed_;
}

bool Runtime::bind_macro(const MacroNode& node, const Args& args) {
  std::vector<NamedValue> unused(args.named.begin(), args.named.end());
  std::vector<const Param*> without_value;
  for (size_t i = 0; i < node.params.size(); ++i) {
    const Param& param = node.params[i];
    if (i < args.positional.size()) {
      assign(param.symbol, args.positional[i]);
      continue;
    }
    if (!charge(unused.size() / kNamesPerStep)) return false;
    const auto given = std::find_if(unused.begin(), unused.end(),
                                    [&](const NamedValue& arg) { return arg.name->bytes == param.name->bytes; });
    if (given == unused.end()) {
      without_value.push_back(&param);
      continue;
    }
    assign(param.symbol, given->value);
    unused.erase(given);
  }
  if (!bind_macro_extras(node, args, unused)) return false;
  for (const Param* param : without_value) {
    assign(param->symbol,
           param->default_value ? eval(*param->default_value) : undefined_with_hint("a parameter was not provided"));
  }
  return !failed_;
}

Value Runtime::call_macro(const Macro& macro, const Args& args) {
  Scope* const previous = enter_scope(macro.closure);
  const Value text = capture([&] {
    if (bind_macro(*macro.node, args)) exec(macro.node->body);
  });
  leave_scope(previous);
  return text;
}

Scope* Runtime::enter_scope(Scope* parent) {
  Scope* const previous = scope_;
  scope_ = arena_.make<Scope>(parent);
  return previous;
}

Value Runtime::lookup(Symbol symbol) {
  size_t n_seen = 0;
  for (Scope* scope = scope_; scope; scope = scope->parent) {
    n_seen += scope->variables.size();
    if (n_seen >= kNamesPerStep) charge(std::exchange(n_seen, 0) / kNamesPerStep);
    for (const Binding& binding : scope->variables.view()) {
      if (binding.symbol == symbol) return binding.value;
    }
  }
  return globals_[symbol];
}

void Runtime::assign(Symbol symbol, Value value) {
  if (!scope_) {
    globals_[symbol] = value;
    return;
  }
  if (scope_->variables.size() >= kNamesPerStep) charge(scope_->variables.size() / kNamesPerStep);
  for (Binding& binding : scope_->variables) {
    if (binding.symbol != symbol) continue;
    binding.value = value;
    return;
  }
  scope_->variables.push(arena_, {symbol, value});
}

void Runtime::assign(const Target& target, const Value& value) {
  if (failed_) return;
  if (target.attribute) {
    const Value object = lookup(target.symbol);
    if (!object.is(Kind::namespace_)) {
      fail("cannot assign attribute on non-namespace object");
    } else if (Value* const attribute = object.ns->find(*this, target.attribute->bytes)) {
      *attribute = value;
    } else {
      object.ns->attributes.push(arena_, {&target.attribute->text, value});
    }
    return;
  }
  if (!target.is_tuple) return assign(target.symbol, value);
  Items items;
  if (!items_of(*this, value, items)) return;
  if (items.size() != target.items.size()) {
    fail("{} values to unpack (expected {}, got {})", items.size() > target.items.size() ? "too many" : "not enough",
         target.items.size(), items.size());
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
}

Scope* Runtime::capture_scope() {
  for (Scope* scope = scope_; scope && !scope->is_captured; scope = scope->parent) scope->is_captured = true;
  return scope_;
}

void Runtime::set_global(std::string_view name, Value value) {
  if (const Symbol* symbol = program_.find(name)) globals_[*symbol] = value;
}

Value Runtime::text(std::string_view bytes, bool from_input) {
  if (!charge_bytes(bytes.size())) return Value();
  return Value(arena_.make<Text>(arena_.copy(bytes), std::span<const Run>{}, from_input));
}

Value Runtime::dict(std::span<const Entry> entries) {
  const size_t n_sorted = entries.size() > kMaxLinearSearchEntries ? entries.size() : 0;
  if (!charge(entries.size() / 4 + n_sorted * 4)) return Value();
  return Value(make_dict(*this, arena_.copy(entries), false));
}

Value Runtime::literal(std::string_view bytes) { return Value(arena_.make<Text>(bytes)); }

Value Runtime::fail_undefined(const Value& value) {
  const std::string_view what = value.undefined_reason == UndefinedReason::unknown ? "" : value.text->bytes;
  const std::string_view type = value.owner == Kind::none ? "None" : type_name(value.owner);
  const std::string_view suffix = value.owner == Kind::none ? "" : " object";
  switch (value.undefined_reason) {
    case UndefinedReason::variable:
      return fail("'{}' is undefined", what);
    case UndefinedReason::attribute:
      return fail("'{}{}' has no attribute '{}'", type, suffix, what);
    case UndefinedReason::element:
      return fail("{}{} has no element {}", type, suffix, what);
    case UndefinedReason::unsafe:
      return fail("access to attribute '{}' of '{}' object is unsafe.", what, type);
    case UndefinedReason::other:
      return fail("{}", what);
    case UndefinedReason::unknown:
      break;
  }
  return fail("value is undefined");
}

}  // namespace zinc::jinja
