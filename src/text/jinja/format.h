// Python's string formatting: '%s' % x and '{}'.format(x). Pieces keep their origin.
#pragma once

#include "text/jinja/runtime.h"

namespace zinc::jinja {

Value format_percent(Runtime& rt, const Text& format, const Value& values);  // a tuple, dict or single value
Value format_braces(Runtime& rt, const Text& format, const Args& args);

// Format specification: [[fill]align][sign][#][0][width][,][.precision][type].
struct FormatSpec {
  Text fill{" ", {}};
  char align = 0;  // < > ^ =; 0: default of the type
  char sign = '-';
  bool is_alternate = false;
  bool has_zeros = false;
  bool has_commas = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;
};
void append_formatted(Runtime& rt, TextBuilder& out, const Value& value, const FormatSpec& spec);

}  // namespace zinc::jinja
