// String operations shared by filters and methods. Every byte of a result keeps its origin.
#pragma once

#include "text/jinja/runtime.h"
#include "text/unicode_case.h"

namespace zinc::jinja {

Value to_case(Runtime& rt, const Text& text, Case wanted);  // upper or lower
Value to_title(Runtime& rt, const Text& text);              // str.title()
Value to_title_words(Runtime& rt, const Text& text);        // the title filter: words start after spaces, - ( { [ <
Value capitalize(Runtime& rt, const Text& text);

enum class Side : uint8_t { both, left, right };
Value strip(Runtime& rt, const Text& text, Side side, const Value& chars);  // chars: missing or none for white space

Value replace(Runtime& rt, const Text& text, const Text& old, const Text& with, int64_t max_count);
Value split(Runtime& rt, const Text& text, const Text& separator, int64_t max_splits, bool from_right);
Value split_at_spaces(Runtime& rt, const Text& text, int64_t max_splits, bool from_right);
Value split_lines(Runtime& rt, const Text& text, bool keeps_ends);
Value center(Runtime& rt, const Text& text, int64_t width, const Text& fill);

// The string argument; fails if it is not a string.
const Text& text_arg(Runtime& rt, const Value& value);
// An optional integer: `fallback` if missing or none.
int64_t integer_arg(Runtime& rt, const Args& args, size_t i, int64_t fallback);
bool flag_arg(const Args& args, size_t i, bool fallback);

}  // namespace zinc::jinja
