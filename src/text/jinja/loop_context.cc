#include "text/jinja/loop_context.h"

#include <vector>

#include "text/jinja/operators.h"

namespace zinc::jinja {
namespace {

std::span<const Value> chars_of(Runtime& rt, const Text& text) {
  std::vector<Value> chars;
  for_each_char(rt, text, [&](char32_t, std::string_view bytes, bool from_input) {
    if (!rt.charge(1)) return;
    chars.push_back(Value(rt.arena().make<Text>(bytes, std::span<const Run>{}, from_input)));
  });
  return rt.arena().copy(std::span<const Value>(chars));
}

std::span<const Value> part_of(Runtime& rt, const Dict& dict, View::Part part) {
  if (!rt.charge(dict.entries.size() / 4)) return {};
  const std::span<Value> items = rt.arena().array<Value>(dict.entries.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const Entry& entry = dict.entries[i];
    const Value pair[] = {entry.key, entry.value};
    items[i] = part == View::Part::keys ? entry.key : (part == View::Part::values ? entry.value : rt.tuple(pair));
  }
  return items;
}

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::generator:
      return true;
    default:
      return false;
  }
}

bool items_of(Runtime& rt, const Value& value, Items& items) {
  switch (value.kind) {
    case Kind::undefined:
      items = Items();
      break;
    case Kind::text:
      items = Items(chars_of(rt, *value.text));
      break;
    case Kind::list:
    case Kind::tuple:
      items = Items(value.list->items);
      break;
    case Kind::dict:
      items = Items(part_of(rt, *value.dict, View::Part::keys));
      break;
    case Kind::view:
      items = Items(part_of(rt, *value.view->dict, value.view->part));
      break;
    case Kind::range:
      items = Items(*value.range);
      break;
    case Kind::generator:
      items = Items(value.generator->items.subspan(value.generator->n_taken));
      value.generator->n_taken = value.generator->items.size();
      break;
    default:
      rt.fail("'{}' object is not iterable", type_name(value));
  }
  return !rt.failed();
}

bool LoopContext::meets_condition(Runtime& rt, const Value& item) const {
  if (!statement_.condition) return true;
  Scope* const previous = rt.enter_scope(outside_);
  rt.assign(statement_.target, item);
  const bool is_met = is_true(rt.eval(*statement_.condition));
  rt.leave_scope(previous);
  return is_met;
}

bool LoopContext::peek(Runtime& rt) {
  while (!has_after_ && n_fetched_ < items_.size() && !rt.failed()) {
    after_ = items_[n_fetched_++];
    has_after_ = meets_condition(rt, after_);
  }
  return has_after_;
}

bool LoopContext::advance(Runtime& rt) {
  if (!peek(rt) || rt.failed()) return false;
  before_ = current_;
  current_ = after_;
  has_after_ = false;
  ++index0_;
  return true;
}

int64_t LoopContext::length(Runtime& rt) {
  if (!statement_.condition) return static_cast<int64_t>(items_.size());
  if (n_items_ >= 0) return n_items_;
  // Evaluates the condition for all remaining items and keeps those that pass.
  std::vector<Value> rest;
  while (peek(rt) && !rt.failed()) {
    rest.push_back(after_);
    has_after_ = false;
  }
  n_items_ = index0_ + 1 + static_cast<int64_t>(rest.size());
  items_ = Items(rt.arena().copy(std::span<const Value>(rest)));
  n_fetched_ = 0;
  return n_items_;
}

Value LoopContext::attribute(Runtime& rt, std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek(rt));
  if (name == "length") return Value(length(rt));
  if (name == "revindex") return Value(length(rt) - index0_);
  if (name == "revindex0") return Value(length(rt) - index0_ - 1);
  if (name == "depth") return Value(int64_t{depth0_} + 1);
  if (name == "depth0") return Value(int64_t{depth0_});
  if (name == "previtem") return index0_ > 0 ? before_ : rt.undefined_with_hint("there is no previous item");
  if (name == "nextitem") return peek(rt) ? after_ : rt.undefined_with_hint("there is no next item");
  return Value::missing();
}

Value LoopContext::recurse(Runtime& rt, const Args& args) {
  if (!statement_.is_recursive) {
    return rt.fail("the loop must have the 'recursive' marker to be called recursively");
  }
  if (args.positional.size() != 1 || !args.named.empty()) return rt.fail("loop() takes exactly one argument");
  Scope* const previous = rt.scope();
  rt.leave_scope(outside_);
  const Value text = rt.capture([&] { statement_.run(rt, args[0], depth0_ + 1); });
  rt.leave_scope(previous);
  return text;
}

Value LoopContext::cycle(Runtime& rt, const Args& args) const {
  if (args.positional.empty()) return rt.fail("no items for cycling given");
  return args[static_cast<size_t>(index0_) % args.positional.size()];
}

Value LoopContext::changed(Runtime& rt, const Args& args) {
  const Value now = rt.tuple(args.positional);
  const bool is_new = last_changed_.is(Kind::missing) || !equal(rt, last_changed_, now);
  last_changed_ = now;
  return Value(is_new);
}

}  // namespace zinc::jinja
