// Values as text: str(), repr() and JSON. Texts inside keep their origin; brackets and numbers take that of the list or
// dict they stand in.
#pragma once

#include <string>

#include "text/jinja/runtime.h"

namespace zinc::jinja {

std::string real_to_text(double real);  // as Python prints it: "1.0", "1e-07", "inf"

void append_str(Runtime& rt, TextBuilder& out, const Value& value);
void append_repr(Runtime& rt, TextBuilder& out, const Value& value, bool from_input = false, int depth = 0);
Value to_repr(Runtime& rt, const Value& value);

const Text& to_text(Runtime& rt, const Value& value);  // str(value); the text itself if it is one
Text escape_html(Runtime& rt, const Text& text);       // markup stays as it is

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
