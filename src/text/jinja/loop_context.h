// The `loop` variable of a for statement (jinja2's LoopContext).
#pragma once

#include "text/jinja/runtime.h"

namespace zinc::jinja {

class LoopContext {
 public:
  LoopContext(const ForStmt& statement, Items items, Scope* outside, int depth0)
      : statement_(statement), items_(items), outside_(outside), depth0_(depth0) {}

  bool advance(Runtime& rt);  // to the next item that meets the condition; false: at the end
  const Value& item() const { return current_; }

  Value attribute(Runtime& rt, std::string_view name);  // `missing` if unknown
  Value recurse(Runtime& rt, const Args& args);         // loop(items) of a recursive loop
  Value cycle(Runtime& rt, const Args& args) const;
  Value changed(Runtime& rt, const Args& args);

 private:
  // Conditions are evaluated lazily as in Python: at most one item ahead.
  bool peek(Runtime& rt);
  bool meets_condition(Runtime& rt, const Value& item) const;
  int64_t length(Runtime& rt);

  const ForStmt& statement_;
  Items items_;
  Scope* outside_;
  int depth0_;
  size_t n_fetched_ = 0;  // of items_
  int64_t index0_ = -1;
  int64_t n_items_ = -1;  // -1: not known yet
  Value before_, current_, after_;
  bool has_after_ = false;
  Value last_changed_ = Value::missing();
};

// The items of an iterable. False: failed, not iterable.
bool items_of(Runtime& rt, const Value& value, Items& items);
bool is_iterable(const Value& value);

}  // namespace zinc::jinja
