// Python's operators. A failed operation is recorded in the Runtime and returns undefined or false.
#pragma once

#include "text/jinja/runtime.h"

namespace zinc::jinja {

Value add(Runtime& rt, const Value& a, const Value& b);
Value apply_binary(Runtime& rt, Tok op, const Value& a, const Value& b);  // + - * / // % **
Value negate(Runtime& rt, const Value& value, bool keeps_sign);           // -x, or +x

bool equal(Runtime& rt, const Value& a, const Value& b, int depth = 0);
bool less(Runtime& rt, const Value& a, const Value& b, std::string_view sign = "<", int depth = 0);
bool contains(Runtime& rt, const Value& container, const Value& item);
bool compare(Runtime& rt, Comparison comparison, const Value& a, const Value& b);

Value find_attribute(Runtime& rt, const Value& object, const Text& name);  // methods and fields; `missing`: none
Value get_attribute(Runtime& rt, const Value& object, const Text& name);   // a.name
Value get_item(Runtime& rt, const Value& object, const Value& key);        // a[key]
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

// len(); -1: not supported.
int64_t length_of(Runtime& rt, const Value& value);

// Converts an integer argument. False: failed.
bool to_integer(Runtime& rt, const Value& value, int64_t& out);

}  // namespace zinc::jinja
