// Values as text: str(), repr() and JSON. Nested strings keep their origin; brackets and numbers get the origin of the
// enclosing list or dict.
#pragma once

#include <string>

#include "text/jinja/runtime.h"

namespace zinc::jinja {

std::string real_to_text(double real);  // Python's repr(float): "1.0", "1e-07", "inf"

void append_str(Runtime& rt, TextBuilder& out, const Value& value);
void append_repr(Runtime& rt, TextBuilder& out, const Value& value, bool from_input = false, int depth = 0);
Value to_repr(Runtime& rt, const Value& value);

const Text& to_text(Runtime& rt, const Value& value);  // str(value); the same object if it is a string
Text escape_html(Runtime& rt, const Text& text);       // markup is unchanged

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  Text indent{{}, {}};
  Text item_separator{", ", {}};
  Text key_separator{": ", {}};
};
void append_json(Runtime& rt, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace zinc::jinja
