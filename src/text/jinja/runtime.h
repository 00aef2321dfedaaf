// The state of one rendering: memory, budget, variables, output and the first error. One thread, one rendering.
// After fail() everything still running ends early: evaluation returns undefined, loops stop. So values need no error
// channel of their own; the error is looked at once, at the end. Loops over data must call charge() or check failed().
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
#include "text/jinja/clock.h"
#include "text/jinja/limits.h"
#include "text/jinja/text_builder.h"
#include "text/jinja/text_joiner.h"
#include "text/jinja/value.h"

namespace zinc::jinja {

struct Binding {
  Symbol symbol;
  Value value;
};

// The variables of a loop body, macro and so on. Those of the template itself are Runtime's globals.
struct Scope {
  Scope* parent;
  ArenaVector<Binding> variables = {};
  bool is_captured = false;  // a macro made here may outlive it
};

// What a loop runs over, without copying a list or writing out a range.
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

  // ---- errors and budget
  template <class... A>
  Value fail(fmt::format_string<A...> format, A&&... args) {
    if (!error_) fail_with(fmt::format(format, std::forward<A>(args)...));
    return Value();
  }
  void fail_with(std::string message);
  bool failed() const { return failed_; }
  const std::optional<Error>& error() const { return error_; }
  bool charge(uint64_t n_steps);                                    // false: failed, now or before
  bool charge_bytes(size_t n_bytes);                                // looks at or makes that much text
  bool charge_comparison(std::string_view a, std::string_view b) {  // looks at both, to the end of the shorter
    return charge(std::min(a.size(), b.size()) / kBytesPerStep);
  }
  bool reserve(size_t n, size_t n_each);  // asks before n things of that size are made; false: failed
  void allow_input(size_t n_bytes);       // one more value of the input, of that size

  // ---- running
  Value eval(const Expr& expr);
  Flow exec(const Body& body);
  Value call(const Value& callee, const Args& args);
  Value call_builtin(const Builtin& function, const Value& self, const Args& args);
  Value call_macro(const Macro& macro, const Args& args);
  template <class Function>
  Value capture(Function&& run);  // what `run` prints, as a text
  TextBuilder& output() { return *output_; }

  // ---- variables
  Scope* scope() { return scope_; }
  Scope* enter_scope(Scope* parent);  // makes a scope and runs in it; returns the one that was current
  void leave_scope(Scope* previous) { scope_ = previous; }
  Value lookup(Symbol symbol);  // missing where there is none
  void assign(Symbol symbol, Value value);
  void assign(const Target& target, const Value& value);
  Scope* capture_scope();  // the current one, to be kept by a macro
  void set_global(std::string_view name, Value value);

  // ---- values
  Arena& arena() { return arena_; }
  Value text(std::string_view bytes, bool from_input = false);  // a copy
  Value literal(std::string_view bytes);                        // REQUIRES: bytes live as long as the rendering
  Value list(std::span<const Value> items) { return Value::make_list(arena_.make<List>(arena_.copy(items))); }
  Value tuple(std::span<const Value> items) { return Value::make_tuple(arena_.make<List>(arena_.copy(items))); }
  Value dict(std::span<const Entry> entries);  // REQUIRES: distinct keys
  Value generator(std::span<const Value> items) { return Value(arena_.make<Generator>(arena_.copy(items))); }
  Value undefined_because(std::string_view why) { return Value::undefined(Absence::other, literal(why).text); }
  Value fail_undefined(const Value& value);  // REQUIRES: an undefined; says why it is

  Value join(std::span<const Text* const> texts, bool is_markup = false) {
    return joiner_.join(*this, texts, is_markup);
  }

  const Program& program() const { return program_; }
  LocalTime now{};  // what strftime_now() shows
  Value captured;   // the text a filter block's filters work on

 private:
  class Level;
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

// Sends output to `builder` while it lives.
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
