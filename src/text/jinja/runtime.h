// The state of one rendering: memory, limits, variables, output and the first error. One thread, one rendering.
// After fail(), evaluation returns undefined and loops stop, so values need no error channel; the error is checked
// once, at the end. Loops over data must call charge() or check failed().
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/strftime.h"
#include "text/jinja/text_builder.h"
#include "text/jinja/text_joiner.h"
#include "text/jinja/value.h"

namespace zinc::jinja {

struct Binding {
  Symbol symbol;
  Value value;
};

// The variables of a loop body, macro, etc. Top-level variables are Runtime's globals.
struct Scope {
  Scope* parent;
  ArenaVector<Binding> variables = {};
  bool is_captured = false;  // in the closure of a macro
};

// The items of an iterable, without copying a list or expanding a range.
class Items {
 public:
  Items() = default;
  explicit Items(std::span<const Value> items) : items_(items), size_(items.size()) {}
  explicit Items(const Range& range) : range_(&range), size_(range.size()) {}
  size_t size() const { return size_; }
  Value operator[](size_t i) const {
    return range_ ? Value(range_->start + static_cast<int64_t>(i) * range_->step) : items_[i];
  }

 private:
  std::span<const Value> items_;
  const Range* range_ = nullptr;
  size_t size_ = 0;
};

class Runtime {
 public:
  Runtime(const Program& program, const Limits& limits);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // ---- errors and limits
  template <class... A>
  Value fail(fmt::format_string<A...> format, A&&... args) {
    if (!error_) fail_with(fmt::format(format, std::forward<A>(args)...));
    return Value();
  }
  void fail_with(std::string message);
  bool failed() const { return failed_; }
  const std::optional<Error>& error() const { return error_; }
  bool charge(uint64_t n_steps);                                    // counts steps; false: failed
  bool charge_bytes(size_t n_bytes);                                // reads or creates that much text
  bool charge_comparison(std::string_view a, std::string_view b) {  // reads both, up to the shorter length
    return charge(std::min(a.size(), b.size()) / kBytesPerStep);
  }
  bool check_size(size_t n, size_t n_each);     // before allocating n objects of n_each bytes; false: too large
  void raise_limits_for_input(size_t n_bytes);  // for an input value of that size

  // ---- running
  Value eval(const Expr& expr);
  Flow exec(const Body& body);
  Value call(const Value& callee, const Args& args);
  Value call_builtin(const Builtin& function, const Value& self, const Args& args);
  Value call_macro(const Macro& macro, const Args& args);
  template <class Function>
  Value capture(Function&& run);  // the output of `run` as a string
  TextBuilder& output() { return *output_; }

  // ---- variables
  Scope* scope() { return scope_; }
  Scope* enter_scope(Scope* parent);  // creates and enters a scope; returns the previous one
  void leave_scope(Scope* previous) { scope_ = previous; }
  Value lookup(Symbol symbol);  // `missing` if undefined
  void assign(Symbol symbol, Value value);
  void assign(const Target& target, const Value& value);
  Scope* capture_scope();  // the current scope, for a macro's closure
  void set_global(std::string_view name, Value value);

  // ---- values
  Arena& arena() { return arena_; }
  Value text(std::string_view bytes, bool from_input = false);  // a copy
  Value literal(std::string_view bytes);                        // REQUIRES: bytes live as long as the rendering
  Value list(std::span<const Value> items) { return Value::make_list(arena_.make<List>(arena_.copy(items))); }
  Value tuple(std::span<const Value> items) { return Value::make_tuple(arena_.make<List>(arena_.copy(items))); }
  Value dict(std::span<const Entry> entries);  // REQUIRES: distinct keys
  Value generator(std::span<const Value> items) { return Value(arena_.make<Generator>(arena_.copy(items))); }
  Value undefined_with_hint(std::string_view hint) {
    return Value::undefined(UndefinedReason::other, literal(hint).text);
  }
  Value fail_undefined(const Value& value);  // fails with its reason. REQUIRES: undefined

  Value join(std::span<const Text* const> texts, bool is_markup = false) {
    return joiner_.join(*this, texts, is_markup);
  }

  const Program& program() const { return program_; }
  LocalTime now{};  // for strftime_now()
  Value captured;   // input of a filter block's filters

 private:
  class EvalFrame;
  bool bind(const Builtin& function, const Args& args, std::span<Value> bound);
  bool bind_macro(const MacroNode& node, const Args& args);
  bool bind_macro_extras(const MacroNode& node, const Args& args, std::span<const NamedValue> unused);

  const Program& program_;
  Limits limits_;
  Arena arena_;
  uint64_t n_steps_ = 0;
  uint64_t n_text_bytes_ = 0;
  int depth_ = 0;
  Pos pos_;
  bool failed_ = false;
  std::optional<Error> error_;
  std::vector<Value> globals_;  // by Symbol
  Scope* scope_ = nullptr;
  TextBuilder* output_ = nullptr;
  TextJoiner joiner_;

  friend class Output;
};

// Redirects output to `builder` for its lifetime.
class Output {
 public:
  Output(Runtime& rt, TextBuilder& builder) : rt_(rt), previous_(rt.output_) { rt.output_ = &builder; }
  ~Output() { rt_.output_ = previous_; }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

 private:
  Runtime& rt_;
  TextBuilder* previous_;
};

template <class Function>
Value Runtime::capture(Function&& run) {
  TextBuilder builder(*this);
  depth_ += kLevelsPerCapture;
  {
    const Output redirected(*this, builder);
    run();
  }
  depth_ -= kLevelsPerCapture;
  return builder.finish();
}

}  // namespace zinc::jinja
