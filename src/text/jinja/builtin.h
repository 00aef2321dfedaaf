// Built-in filters, tests, global functions and methods: rows of one type.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace zinc::jinja {

class Runtime;

struct Args {
  std::span<const Value> positional;
  std::span<const NamedValue> named;

  const Value& operator[](size_t i) const { return positional[i]; }
  bool has(size_t i) const { return i < positional.size() && !positional[i].is(Kind::missing); }
};

struct Builtin {
  // `self` is the value before `|`, `is` or `.` (none for functions). A row with named parameters gets exactly that
  // many positional arguments, `missing` for those not given.
  using Function = Value (*)(Runtime& rt, const Value& self, const Args& args);
  static constexpr std::string_view kVariadic = "*";  // as `params`: arguments are passed unchecked

  std::string_view name;
  Function run;
  std::string_view params;  // names in order, separated by one space
  size_t n_required;

  constexpr Builtin(std::string_view n, Function f, std::string_view p = "", size_t required = 0)
      : name(n), run(f), params(p), n_required(required) {}
  constexpr size_t n_params() const {
    return params.empty() ? 0 : static_cast<size_t>(std::count(params.begin(), params.end(), ' ')) + 1;
  }
};

inline const Builtin* find_builtin(std::span<const Builtin> rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Builtin& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> selection_filters();
std::span<const Builtin> functions();
std::span<const Builtin> text_methods();
std::span<const Builtin> text_query_methods();

const Builtin* find_filter(std::string_view name);  // nullptr: unknown
const Builtin* find_test(std::string_view name);
const Builtin* find_method(Kind kind, std::string_view name);

extern const Builtin kToJson;

}  // namespace zinc::jinja
