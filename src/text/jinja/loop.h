// The `loop` variable of a for statement: where the loop stands, and what comes before and after.
#pragma once

#include "text/jinja/runtime.h"

namespace zinc::jinja {

class Loop {
 public:
  Loop(const ForStmt& statement, Items items, Scope* outside, int depth0)
      : statement_(statement), items_(items), outside_(outside), depth0_(depth0) {}

  bool advance(Runtime& rt);  // to the next item that meets the statement's condition; false: there is none
  const Value& item() const { return current_; }

  Value attribute(Runtime& rt, std::string_view name);  // missing where there is none of that name
  Value recurse(Runtime& rt, const Args& args);         // loop(items) of a recursive loop
  Value cycle(Runtime& rt, const Args& args) const;
  Value changed(Runtime& rt, const Args& args);

 private:
  // A condition is run as late as Python runs it: when the item is needed, at most one ahead.
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

// What iterating over a value gives. False: failed, it cannot be iterated over.
bool items_of(Runtime& rt, const Value& value, Items& items);
bool is_iterable(const Value& value);

}  // namespace zinc::jinja
