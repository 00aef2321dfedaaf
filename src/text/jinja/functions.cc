// Global functions, and the methods of lists, dicts and loops.
#include "text/jinja/loop_context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/sequence_ops.h"
#include "text/jinja/strftime.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

Value range(Runtime& rt, Self, const Args& args) {
  const bool has_stop = args.has(1);
  const int64_t first = integer_arg(rt, args, 0, 0);
  Range made{has_stop ? first : 0, has_stop ? integer_arg(rt, args, 1, 0) : first, integer_arg(rt, args, 2, 1)};
  if (made.step == 0) return rt.fail("range() arg 3 must not be zero");
  if (rt.failed()) return Value();
  if (made.size() > static_cast<size_t>(kMaxRange)) {
    return rt.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  }
  return Value(rt.arena().make<Range>(made));
}

// The entries of dict(x, name=value): a mapping or pairs, then keyword arguments.
std::vector<Entry> gather_entries(Runtime& rt, const Args& args) {
  std::vector<Entry> entries;
  const auto put = [&](const Value& key, const Value& value) {
    if (!is_hashable(key)) rt.fail("unhashable type: '{}'", type_name(key));
    if (!rt.charge(1 + entries.size() / 4)) return;
    for (Entry& entry : entries) {
      if (compare_keys(rt, entry.key, key) != 0) continue;
      entry.value = value;
      return;
    }
    entries.push_back({key, value});
  };
  if (args.positional.size() > 1) rt.fail("dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty() && args[0].is(Kind::dict)) {
    rt.charge(args[0].dict->entries.size() / 4);
    entries.assign(args[0].dict->entries.begin(), args[0].dict->entries.end());
  } else if (!args.positional.empty()) {
    for (const Value& pair : collect(rt, args[0])) {
      const std::vector<Value> both = collect(rt, pair);
      if (both.size() != 2) rt.fail("dict: expected pairs");
      if (rt.failed()) break;
      put(both[0], both[1]);
    }
  }
  for (const NamedValue& arg : args.named) put(Value(arg.name), arg.value);
  return entries;
}

Value dict(Runtime& rt, Self, const Args& args) {
  const std::vector<Entry> entries = gather_entries(rt, args);
  return rt.failed() ? Value() : rt.dict(entries);
}

Value make_namespace(Runtime& rt, Self, const Args& args) {
  Namespace* const ns = rt.arena().make<Namespace>();
  for (const Entry& entry : gather_entries(rt, args)) {
    if (!entry.key.is(Kind::text)) return rt.fail("namespace: attribute names must be strings");
    ns->attributes.push(rt.arena(), {entry.key.text, entry.value});
  }
  return Value(ns);
}

Value raise_exception(Runtime& rt, Self, const Args& args) { return rt.fail("{}", to_text(rt, args[0]).bytes); }

Value strftime_now(Runtime& rt, Self, const Args& args) {
  const Text& format = text_arg(rt, args[0]);
  if (format.bytes.size() > kMaxTimeFormatBytes) return rt.fail("strftime_now: the format is too long");
  const std::string text = strftime(rt.now, format.bytes);
  return rt.text(text, format.from_input || !format.runs.empty());
}

// ---- methods

Value dict_get(Runtime& rt, Self self, const Args& args) {
  if (!is_hashable(args[0])) return rt.fail("unhashable type: '{}'", type_name(args[0]));
  if (const Value* const value = self.dict->find(rt, args[0])) return *value;
  return args.has(1) ? args[1] : Value::none();
}

template <View::Part kPart>
Value dict_view(Runtime& rt, Self self, const Args&) {
  return Value(rt.arena().make<View>(kPart, self.dict));
}

Value copy(Runtime&, Self self, const Args&) { return self; }  // values are immutable

Value list_count(Runtime& rt, Self self, const Args& args) {
  int64_t n = 0;
  for (const Value& item : self.list->items) {
    if (!rt.charge(1)) break;
    n += equal(rt, item, args[0]) ? 1 : 0;
  }
  return Value(n);
}

Value list_index(Runtime& rt, Self self, const Args& args) {
  for (size_t i = 0; i < self.list->items.size() && rt.charge(1); ++i) {
    if (equal(rt, self.list->items[i], args[0])) return Value(static_cast<int64_t>(i));
  }
  return rt.fail("the value is not in the list");
}

Value loop_cycle(Runtime& rt, Self self, const Args& args) { return self.loop->cycle(rt, args); }
Value loop_changed(Runtime& rt, Self self, const Args& args) { return self.loop->changed(rt, args); }

constexpr Builtin kFunctions[] = {
    {"range", range, "start stop step", 1},
    {"dict", dict, Builtin::kVariadic},
    {"namespace", make_namespace, Builtin::kVariadic},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
};
constexpr Builtin kDictMethods[] = {
    {"get", dict_get, "key default", 1},
    {"keys", dict_view<View::Part::keys>},
    {"values", dict_view<View::Part::values>},
    {"items", dict_view<View::Part::items>},
    {"copy", copy},
};
constexpr Builtin kListMethods[] = {
    {"count", list_count, "value", 1},
    {"index", list_index, "value", 1},
    {"copy", copy},
};
constexpr Builtin kLoopMethods[] = {
    {"cycle", loop_cycle, Builtin::kVariadic},
    {"changed", loop_changed, Builtin::kVariadic},
};

}  // namespace

std::span<const Builtin> functions() { return kFunctions; }

const Builtin* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::text: {
      const Builtin* const method = find_builtin(text_methods(), name);
      return method ? method : find_builtin(text_query_methods(), name);
    }
    case Kind::dict:
      return find_builtin(kDictMethods, name);
    case Kind::list:
    case Kind::tuple:
      return find_builtin(kListMethods, name);
    case Kind::loop:
      return find_builtin(kLoopMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace zinc::jinja
