// Python values of the interpreter. A Value is 16 bytes, non-owning and cheap to copy; it points into the rendering's
// Arena, the compiled template or the caller's JSON. Strings (Text) track for every byte whether it came from input
// (messages, tools, ...) or from the template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/arena.h"

namespace zinc::jinja {

struct Builtin;
struct MacroNode;
struct Scope;
class LoopContext;
class Runtime;

enum class Kind : uint8_t {
  missing,  // an argument that was not given; internal
  undefined,
  none,
  boolean,
  integer,
  big_integer,  // 2^63 .. 2^64-1: print and compare only
  real,
  text,
  list,
  tuple,
  dict,
  view,  // dict.keys(), .values(), .items()
  range,
  generator,
  namespace_,
  macro,
  builtin,
  method,
  loop
};

// Why a value is undefined, for the error if it is used; Value::text is the missing name.
enum class UndefinedReason : uint8_t { unknown, variable, attribute, element, unsafe, other };

struct Run {
  size_t end;  // offset after the last byte
  bool from_input;
};

// An immutable string. Origins are run-length encoded; `runs` is empty if all bytes have the same origin.
struct Text {
  std::string_view bytes = {};
  std::span<const Run> runs = {};
  bool from_input = false;
  bool is_markup = false;  // from |safe or |escape: concatenation escapes the other operand, as Markup does
};

struct List;
struct Dict;
struct View;
struct Range;
struct Generator;
struct Namespace;
struct Macro;
struct Method;

struct Value {
  Kind kind = Kind::undefined;
  UndefinedReason undefined_reason = UndefinedReason::unknown;  // of an undefined
  Kind owner = Kind::none;                                      // type without that attribute or element
  union {
    int64_t integer;
    uint64_t big_integer;
    double real;
    const Text* text;
    const List* list;  // list and tuple
    const Dict* dict;
    const View* view;
    const Range* range;
    Generator* generator;
    Namespace* ns;
    const Macro* macro;
    const Builtin* builtin;
    const Method* method;
    LoopContext* loop;
  };

  Value() : integer(0) {}
  Value(Kind k, int64_t i) : kind(k), integer(i) {}
  explicit Value(bool b) : kind(Kind::boolean), integer(b ? 1 : 0) {}
  explicit Value(int64_t i) : kind(Kind::integer), integer(i) {}
  explicit Value(double d) : kind(Kind::real), real(d) {}
  explicit Value(const Text* t) : kind(Kind::text), text(t) {}
  explicit Value(const Dict* d) : kind(Kind::dict), dict(d) {}
  explicit Value(const View* v) : kind(Kind::view), view(v) {}
  explicit Value(const Range* r) : kind(Kind::range), range(r) {}
  explicit Value(Generator* g) : kind(Kind::generator), generator(g) {}
  explicit Value(Namespace* s) : kind(Kind::namespace_), ns(s) {}
  explicit Value(const Macro* m) : kind(Kind::macro), macro(m) {}
  explicit Value(const Builtin* b) : kind(Kind::builtin), builtin(b) {}
  explicit Value(const Method* m) : kind(Kind::method), method(m) {}
  explicit Value(LoopContext* l) : kind(Kind::loop), loop(l) {}
  static Value none() { return Value(Kind::none, 0); }
  static Value missing() { return Value(Kind::missing, 0); }
  static Value undefined(UndefinedReason reason, const Text* name, Kind owner = Kind::none) {
    Value value;
    value.undefined_reason = reason;
    value.owner = owner;
    value.text = name;
    return value;
  }
  static Value make_list(const List* l) {
    Value value;
    value.kind = Kind::list;
    value.list = l;
    return value;
  }
  static Value make_tuple(const List* l) {
    Value value = make_list(l);
    value.kind = Kind::tuple;
    return value;
  }

  bool is(Kind k) const { return kind == k; }
  bool is_integral() const { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_number() const { return is_integral() || kind == Kind::real || kind == Kind::big_integer; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
};

struct List {
  std::span<const Value> items;
  bool from_input = false;  // origin of its brackets and numbers when printed
  bool is_group = false;    // from |groupby: has .grouper and .list
};

struct Entry {
  Value key, value;
};

// In insertion order. `sorted` is an index by key for dicts too large for a linear search.
struct Dict {
  std::span<const Entry> entries;
  std::span<const uint32_t> sorted;
  bool from_input = false;

  const Value* find(Runtime& rt, const Value& key) const;  // nullptr: not found
  const Value* find(Runtime& rt, std::string_view key) const;
};

constexpr size_t kMaxLinearSearchEntries = 8;
const Dict* make_dict(Runtime& rt, std::span<const Entry> entries, bool from_input);  // REQUIRES: distinct keys

struct View {
  enum class Part : uint8_t { keys, values, items } part;
  const Dict* dict;
};

struct Range {
  int64_t start, stop, step;
  size_t size() const;
};

// A Python generator: evaluated eagerly here, but its items can be consumed only once.
struct Generator {
  std::span<const Value> items;
  size_t n_taken = 0;
};

struct NamedValue {
  const Text* name;
  Value value;
};

struct Namespace {
  ArenaVector<NamedValue> attributes;
  Value* find(Runtime& rt, std::string_view name);
};

struct Macro {
  const MacroNode* node;
  Scope* closure;
};

struct Method {
  const Builtin* function;
  Value self;
};

std::string_view type_name(const Value& value);  // Python's type name: "str", "NoneType"
std::string_view type_name(Kind kind);
bool is_true(const Value& value);
bool is_hashable(const Value& value);  // also false for very large tuples

// A total order of hashable values in which equal keys (1, 1.0, true) are equivalent. Negative: a comes first.
// Charges for the strings it reads; stays a valid order after a limit is exceeded, so that sorts terminate.
int compare_keys(Runtime& rt, const Value& a, const Value& b);  // REQUIRES: is_hashable of both

int compare_numbers(const Value& a, const Value& b);  // NaN comes first. REQUIRES: both are numbers
double to_double(const Value& number);

}  // namespace zinc::jinja
