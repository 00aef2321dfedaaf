// The values a template computes with: Python's, as far as templates can see them. A Value is 16 bytes and points into
// the rendering's Arena, the compiled template or the caller's JSON; it is copied freely and owns nothing.
// Texts remember for every byte whether it came from input (messages, tools, ...) or from the template itself.
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
class Loop;
class Runtime;

enum class Kind : uint8_t {
  missing,  // an argument that was not given; never seen by templates
  undefined,
  none,
  boolean,
  integer,
  big_integer,  // 2^63 .. 2^64-1: printed and compared, not computed with
  real,
  text,
  list,
  tuple,
  dict,
  view,  // dict.keys(), .values(), .items()
  range,
  generator,
  space,  // namespace()
  macro,
  builtin,
  method,
  loop
};

// Why a value is undefined, for the message should it be used. Text names what is missing.
enum class Absence : uint8_t { unknown, variable, attribute, element, is_unsafe, other };

struct Run {
  size_t end;  // first byte after the run
  bool from_input;
};

// An immutable text. `runs` is empty when all of it has the same origin.
struct Text {
  std::string_view bytes = {};
  std::span<const Run> runs = {};
  bool from_input = false;
  bool is_markup = false;  // made by |safe or |escape: joining it with other text escapes that text, as in Python
};

struct List;
struct Dict;
struct View;
struct Range;
struct Generator;
struct Space;
struct Macro;
struct Method;

struct Value {
  Kind kind = Kind::undefined;
  Absence absence = Absence::unknown;  // of an undefined: the reason, ...
  Kind owner = Kind::none;             // ... and what has no such attribute or element
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
    Space* space;
    const Macro* macro;
    const Builtin* builtin;
    const Method* method;
    Loop* loop;
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
  explicit Value(Space* s) : kind(Kind::space), space(s) {}
  explicit Value(const Macro* m) : kind(Kind::macro), macro(m) {}
  explicit Value(const Builtin* b) : kind(Kind::builtin), builtin(b) {}
  explicit Value(const Method* m) : kind(Kind::method), method(m) {}
  explicit Value(Loop* l) : kind(Kind::loop), loop(l) {}
  static Value none() { return Value(Kind::none, 0); }
  static Value missing() { return Value(Kind::missing, 0); }
  static Value undefined(Absence why, const Text* what, Kind owner = Kind::none) {
    Value value;
    value.absence = why;
    value.owner = owner;
    value.text = what;
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
  bool from_input = false;  // its brackets and numbers, when printed, count as input
  bool is_group = false;    // a pair made by |groupby: has .grouper and .list
};

struct Entry {
  Value key, value;
};

// Keeps insertion order. `sorted` lists the entries by key where there are too many to search one by one.
struct Dict {
  std::span<const Entry> entries;
  std::span<const uint32_t> sorted;
  bool from_input = false;

  const Value* find(Runtime& rt, const Value& key) const;  // nullptr: not there
  const Value* find(Runtime& rt, std::string_view key) const;
};

constexpr size_t kSearchedEntries = 8;
const Dict* make_dict(Runtime& rt, std::span<const Entry> entries, bool from_input);  // REQUIRES: distinct keys

struct View {
  enum class Part : uint8_t { keys, values, items } part;
  const Dict* dict;
};

struct Range {
  int64_t start, stop, step;
  size_t size() const;
};

// What Python computes on demand and only once; here computed at once, but still handed out only once.
struct Generator {
  std::span<const Value> items;
  size_t n_taken = 0;
};

struct NamedValue {
  const Text* name;
  Value value;
};

struct Space {
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

std::string_view type_name(const Value& value);  // as Python calls it: "str", "NoneType"
std::string_view type_name(Kind kind);
bool is_true(const Value& value);
bool is_hashable(const Value& value);  // may be a key; also false for very large tuples

// A total order over hashable values in which equal keys (1, 1.0, true) are the same. Negative: a comes first.
// Charges for the texts it looks at; once the budget is spent it is still that order, so that sorts may end by it.
int compare_keys(Runtime& rt, const Value& a, const Value& b);  // REQUIRES: is_hashable of both

int compare_numbers(const Value& a, const Value& b);  // NaN comes first. REQUIRES: both are numbers
double to_double(const Value& number);

}  // namespace zinc::jinja
