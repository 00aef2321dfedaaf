#include "constrain/json_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constrain/json_parts.h"
#include "constrain/number_range.h"
#include "constrain/regex.h"
#include "constrain/schema_facts.h"
#include "constrain/string_format.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
constexpr int kNoLimit = GrammarBuilder::kNoLimit;
constexpr int kStepsPerRule = 8;

uint8_t types_of(const SchemaFacts& facts) {
  if (facts.types) return *facts.types;
  return facts.hinted_types ? facts.hinted_types : JsonTypes::kAll;
}

uint8_t type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return JsonTypes::null;
    case json::kind::bool_:
      return JsonTypes::boolean;
    case json::kind::object:
      return JsonTypes::object;
    case json::kind::array:
      return JsonTypes::array;
    case json::kind::string:
      return JsonTypes::string;
    case json::kind::double_:
      return value.get_double() == std::floor(value.get_double()) ? JsonTypes::integer : JsonTypes::fraction;
    default:
      return JsonTypes::integer;
  }
}

int64_t n_chars(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

NumberBound lower_of(const SchemaFacts& facts) {
  NumberBound out = {-std::numeric_limits<double>::infinity()};
  for (const NumberBound& b : facts.lower) {
    if (b.value > out.value || (b.value == out.value && b.is_open)) out = b;
  }
  return out;
}
NumberBound upper_of(const SchemaFacts& facts) {
  NumberBound out = {std::numeric_limits<double>::infinity()};
  for (const NumberBound& b : facts.upper) {
    if (b.value < out.value || (b.value == out.value && b.is_open)) out = b;
  }
  return out;
}

bool is_false(const SchemaPlace& place) { return place.schema->is_bool() && !place.schema->get_bool(); }

// Schemas to rules, one for each set of schemas that hold at the same place of the document. What is found on the way
// waits in a list, so that no chain of schemas is too long.
class SchemaTranslator {
 public:
  explicit SchemaTranslator(const json::value& schema) : reader_(schema), parts_(builder_) {}

  Result<Grammar> translate() {
    ZINC_TRY(root, rule_of({reader_.root()}));
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const Waiting next = waiting_[i];
      ZINC_TRY(facts, reader_.facts_of(next.schemas));
      std::vector<Expr> ways;
      ZINC_TRY(added, add_ways(facts, next.rule, ways));
      if (builder_.is_too_large()) break;  // finish() says so
      if (ways.empty()) return *impossible_;
      if (facts.or_null) ways.push_back(builder_.text("null"));
      builder_.define(next.rule, builder_.choice(std::move(ways)));
    }
    ZINC_TRY(checked, check_choices());
    return builder_.finish(root);
  }

 private:
  struct Waiting {
    Rule rule;
    Schemas schemas;
    std::vector<Rule> choices;  // that are its own texts
  };

  Result<Rule> rule_of(const Schemas& schemas);
  Status check_choices() const;
  Status add_ways(const SchemaFacts& facts, Rule rule, std::vector<Expr>& ways);
  std::optional<Error> why_impossible(const SchemaFacts& facts) const;
  Result<Expr> all_types(const SchemaFacts& facts);
  Result<Expr> values(const SchemaFacts& facts);
  Result<bool> allows(const SchemaFacts& facts, const json::value& value) const;
  Result<Expr> string(const SchemaFacts& facts);
  Result<Expr> number(const SchemaFacts& facts, bool is_integer);

  Result<Expr> array(const SchemaFacts& facts);
  bool has_end_after(const SchemaFacts& facts, size_t n_items) const;
  Result<Rule> item_at(const SchemaFacts& facts, size_t index);

  struct Property {
    std::string_view name;
    Schemas schemas = {};
    bool is_required = false;
    bool is_forbidden = false;
  };
  Result<Expr> object(const SchemaFacts& facts);
  Result<std::vector<Property>> properties(const SchemaFacts& facts);
  Result<Expr> other_member(const SchemaFacts& facts, const std::vector<Property>& declared, Rule more);

  SchemaReader reader_;
  GrammarBuilder builder_;
  JsonParts parts_;
  std::vector<Waiting> waiting_;
  std::optional<Error> impossible_;                          // why the last way was left out
  std::map<std::vector<const json::value*>, size_t> known_;  // among those that wait or waited
  std::unordered_map<Rule, size_t> waiting_of_;
};

Result<Rule> SchemaTranslator::rule_of(const Schemas& schemas) {
  Waiting next;
  std::vector<const json::value*> key;
  for (const SchemaPlace& place : schemas) {
    ZINC_TRY(spent, reader_.spend(1));
    ZINC_TRY(target, reader_.without_references(place));
    const bool says_nothing =
        *target.schema == true || (target.schema->is_object() && target.schema->get_object().empty());
    if (says_nothing || std::ranges::find(key, target.schema) != key.end()) continue;
    key.push_back(target.schema);
    next.schemas.push_back(target);
  }
  if (key.empty()) return parts_.value();
  const auto [found, is_new] = known_.try_emplace(std::move(key), waiting_.size());
  if (!is_new) return waiting_[found->second].rule;
  ZINC_TRY(spent, reader_.spend(kStepsPerRule));
  next.rule = builder_.declare(reader_.path_text(next.schemas.front().path));
  waiting_of_[next.rule] = waiting_.size();
  waiting_.push_back(std::move(next));
  return waiting_.back().rule;
}

// Rules that are a choice of rules, and so on: none may lead back to itself. Those that lead to others only are settled
// from the end.
Status SchemaTranslator::check_choices() const {
  std::vector<size_t> n_open(waiting_.size()), settled;
  std::vector<std::vector<size_t>> chosen_by(waiting_.size());
  for (size_t i = 0; i < waiting_.size(); ++i) {
    for (const Rule rule : waiting_[i].choices) {
      const auto found = waiting_of_.find(rule);
      if (found == waiting_of_.end()) continue;
      chosen_by[found->second].push_back(i);
      ++n_open[i];
    }
    if (n_open[i] == 0) settled.push_back(i);
  }
  for (size_t i = 0; i < settled.size(); ++i) {
    for (const size_t by : chosen_by[settled[i]]) {
      if (--n_open[by] == 0) settled.push_back(by);
    }
  }
  const auto left = std::ranges::find_if(n_open, [](size_t n) { return n > 0; });
  if (left == n_open.end()) return ok_status();
  return reader_.refuse(waiting_[static_cast<size_t>(left - n_open.begin())].schemas.front().path,
                        "a $ref leads back to itself with nothing in between");
}

// Alternatives stand for themselves where nothing is said beside them; else each is joined with the rest, and left out
// where they contradict each other.
Status SchemaTranslator::add_ways(const SchemaFacts& facts, Rule rule, std::vector<Expr>& ways) {
  if (facts.choices.empty()) {
    if (std::optional<Error> why = why_impossible(facts)) {
      impossible_ = std::move(why);
      return ok_status();
    }
    ZINC_TRY(way, all_types(facts));
    ways.push_back(way);
    return ok_status();
  }
  const SchemaFacts::Choice& choice = facts.choices.back();
  for (size_t i = 0; i < choice.of.size() && !builder_.is_too_large(); ++i) {
    if (facts.n_said == 0 && facts.choices.size() == 1) {
      ZINC_TRY(chosen, rule_of({choice.of[i]}));
      waiting_[waiting_of_.at(rule)].choices.push_back(chosen);
      ways.push_back(builder_.rule(chosen));
      continue;
    }
    ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(facts.seen.size() + facts.required.size())));
    SchemaFacts joined = facts;
    joined.choices.pop_back();
    joined.path = choice.of[i].path;
    ZINC_TRY(chosen, reader_.add_chosen(choice, i, joined));
    ZINC_TRY(added, add_ways(joined, rule, ways));
  }
  return ok_status();
}

std::optional<Error> SchemaTranslator::why_impossible(const SchemaFacts& facts) const {
  if (facts.impossible) return facts.impossible;
  const bool is_integer = types_of(facts) == JsonTypes::integer;
  if (is_integer && (facts.has_no_integer || facts.least_integer > facts.most_integer)) {
    return reader_.refuse(facts.path, "no integer lies within its bounds");
  }
  return std::nullopt;
}

Result<Expr> SchemaTranslator::all_types(const SchemaFacts& facts) {
  if (facts.values) return values(facts);
  const uint8_t types = types_of(facts);
  std::vector<Expr> ways;
  if (types & JsonTypes::object) {
    ZINC_TRY(way, object(facts));
    ways.push_back(way);
  }
  if (types & JsonTypes::array) {
    ZINC_TRY(way, array(facts));
    ways.push_back(way);
  }
  if (types & JsonTypes::string) {
    ZINC_TRY(way, string(facts));
    ways.push_back(way);
  }
  if (types & JsonTypes::kNumber) {
    ZINC_TRY(way, number(facts, !(types & JsonTypes::fraction)));
    ways.push_back(way);
  }
  if (types & JsonTypes::boolean) {
    ways.push_back(builder_.text("true"));
    ways.push_back(builder_.text("false"));
  }
  if (types & JsonTypes::null) ways.push_back(builder_.text("null"));
  return builder_.choice(std::move(ways));
}

Result<Expr> SchemaTranslator::values(const SchemaFacts& facts) {
  std::vector<Expr> ways;
  for (const json::value* value : *facts.values) {
    if (builder_.is_too_large()) break;
    ZINC_TRY(is_allowed, allows(facts, *value));
    if (is_allowed) ways.push_back(builder_.text(to_json(*value)));
  }
  if (ways.empty()) return reader_.refuse(facts.path, "none of the values of \"enum\" or \"const\" is allowed");
  return builder_.choice(std::move(ways));
}

Result<bool> SchemaTranslator::allows(const SchemaFacts& facts, const json::value& value) const {
  if (facts.types && !(*facts.types & type_of(value))) return false;
  if (value.is_string()) {
    if (facts.pattern) return reader_.refuse(facts.path, "\"pattern\" is not supported beside \"enum\" or \"const\"");
    const int64_t length = n_chars(value.get_string());
    return length >= facts.lengths.min && (facts.lengths.max == kNoLimit || length <= facts.lengths.max);
  }
  if (value.is_number()) {
    const auto number = value.to_number<double>();
    const NumberBound low = lower_of(facts), high = upper_of(facts);
    return (low.is_open ? number > low.value : number >= low.value) &&
           (high.is_open ? number < high.value : number <= high.value);
  }
  const bool has_more =
      (value.is_array() && (!facts.arrays.empty() || facts.n_items.min > 0 || facts.n_items.max != kNoLimit)) ||
      (value.is_object() && (!facts.objects.empty() || !facts.required.empty()));
  if (has_more) {
    return reader_.refuse(facts.path,
                          "an array or object in \"enum\" or \"const\" is not supported beside other keywords");
  }
  return true;
}

Result<Expr> SchemaTranslator::string(const SchemaFacts& facts) {
  std::string_view pattern = facts.pattern.value_or("");
  if (!facts.pattern && facts.format) pattern = pattern_of_format(*facts.format);
  if (facts.pattern || !pattern.empty()) {
    const Result<Expr> inner = regex_grammar(builder_, pattern, facts.lengths);
    if (inner.ok()) return parts_.quoted(inner.value());
    const std::string_view keyword = facts.pattern ? "pattern" : "format";
    return reader_.refuse(facts.path, fmt::format("\"{}\": {}", keyword, inner.error().message));
  }
  const auto& [min, max] = facts.lengths;
  if (min == 0 && max == kNoLimit) return parts_.string();
  return parts_.quoted(builder_.repeat(parts_.string_char(), static_cast<int>(min), static_cast<int>(max)));
}

Result<Expr> SchemaTranslator::number(const SchemaFacts& facts, bool is_integer) {
  if (facts.lower.empty() && facts.upper.empty()) return is_integer ? parts_.integer() : parts_.number();
  if (!is_integer) {
    const Result<Expr> expr = number_between(builder_, lower_of(facts), upper_of(facts));
    return expr.ok() ? expr : reader_.refuse(facts.path, expr.error().message);
  }
  int64_t low = facts.least_integer, high = facts.most_integer;
  if (facts.has_no_integer || low > high) return reader_.refuse(facts.path, "no integer lies within its bounds");
  if (facts.upper.empty() && low <= kMostInteger) high = kMostInteger;
  if (facts.lower.empty() && high >= -kMostInteger) low = -kMostInteger;
  return integer_between(builder_, low, high);
}

// After each element: either the end or the next. Beyond those that are told apart the last rule leads to itself.
Result<Expr> SchemaTranslator::array(const SchemaFacts& facts) {
  size_t n_told_apart = static_cast<size_t>(facts.n_items.min);
  for (const SchemaFacts::Array& array : facts.arrays) n_told_apart = std::max(n_told_apart, array.first.size());
  const bool has_most = facts.n_items.max != kNoLimit;
  if (has_most) n_told_apart = static_cast<size_t>(facts.n_items.max);
  if (n_told_apart == 0 && !has_most && facts.arrays.empty()) return parts_.array();
  ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(n_told_apart * (facts.arrays.size() + 1))));
  for (size_t i = 0; i < n_told_apart; ++i) {
    if (has_end_after(facts, i)) n_told_apart = i;
  }
  if (n_told_apart < static_cast<size_t>(facts.n_items.min)) {
    return reader_.refuse(facts.path, "\"minItems\" is more than the elements that may be");
  }
  const bool is_closed = n_told_apart == static_cast<size_t>(facts.n_items.max) || has_end_after(facts, n_told_apart);

  std::vector<Rule> after;  // so many elements
  for (size_t i = 0; i <= n_told_apart; ++i) after.push_back(builder_.declare("array"));
  const Expr close = builder_.text("]");
  Expr first = close;
  for (size_t i = 0; i <= n_told_apart; ++i) {
    std::vector<Expr> ways;
    const bool may_end = i >= static_cast<size_t>(facts.n_items.min);
    if (may_end) ways.push_back(close);
    std::vector<Expr> next;
    if (i < n_told_apart || !is_closed) {
      ZINC_TRY(item, item_at(facts, i));
      next = {builder_.rule(item), builder_.rule(after[std::min(i + 1, n_told_apart)])};
      ways.push_back(builder_.sequence({builder_.text(","), parts_.space(), next[0], next[1]}));
    }
    builder_.define(after[i], builder_.sequence({parts_.space(), builder_.choice(std::move(ways))}));
    if (i > 0 || next.empty()) continue;
    first = builder_.sequence(next);
    if (may_end) first = builder_.choice({close, first});
  }
  return builder_.sequence({builder_.text("["), parts_.space(), first});
}

// Nothing may follow so many elements: it is forbidden, or they were told one by one and there is no word of others.
bool SchemaTranslator::has_end_after(const SchemaFacts& facts, size_t n_items) const {
  return std::ranges::any_of(facts.arrays, [&](const SchemaFacts::Array& array) {
    if (n_items < array.first.size()) return is_false(array.first[n_items]);
    if (array.rest) return is_false(*array.rest);
    return !array.first.empty() && n_items >= static_cast<size_t>(facts.n_items.min);
  });
}

Result<Rule> SchemaTranslator::item_at(const SchemaFacts& facts, size_t index) {
  Schemas all;
  for (const SchemaFacts::Array& array : facts.arrays) {
    if (index < array.first.size()) {
      all.push_back(array.first[index]);
    } else if (array.rest) {
      all.push_back(*array.rest);
    }
  }
  return rule_of(all);
}

// In the order in which they are first named. Where one schema names a property, another's additionalProperties may
// speak of it.
Result<std::vector<SchemaTranslator::Property>> SchemaTranslator::properties(const SchemaFacts& facts) {
  std::vector<Property> out;
  std::unordered_map<std::string_view, size_t> index;
  const auto at = [&](std::string_view name) -> Property& {
    const auto [found, is_new] = index.try_emplace(name, out.size());
    if (is_new) out.push_back({.name = name});
    return out[found->second];
  };
  for (const SchemaFacts::Object& object : facts.objects) {
    if (!object.properties) continue;
    for (const auto& member : *object.properties) at(member.key());
  }
  for (const std::string_view name : facts.required) at(name).is_required = true;
  ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(out.size() * (facts.objects.size() + kStepsPerRule))));
  for (Property& property : out) {
    for (const SchemaFacts::Object& object : facts.objects) {
      const json::value* const schema = object.properties ? object.properties->if_contains(property.name) : nullptr;
      if (schema) {
        const std::string_view name = object.properties->find(property.name)->key();
        property.schemas.push_back(reader_.child(object.properties_path, name, *schema));
      } else if (object.rest) {
        property.schemas.push_back(*object.rest);
      }
    }
    property.is_forbidden = std::ranges::any_of(property.schemas, is_false);
    if (property.is_forbidden && property.is_required) {
      return reader_.refuse(property.schemas.front().path, "a required property is not allowed");
    }
  }
  return out;
}

// Two rules for each property: from it on, one must be named (`named`), and after it, one may be (`more`).
Result<Expr> SchemaTranslator::object(const SchemaFacts& facts) {
  if (facts.objects.empty() && facts.required.empty()) return parts_.object();
  ZINC_TRY(declared, properties(facts));
  std::vector<Property> allowed = declared;
  std::erase_if(allowed, [](const Property& property) { return property.is_forbidden; });

  const size_t n = allowed.size();
  std::vector<Rule> named, more;
  for (size_t i = 0; i <= n; ++i)
    named.push_back(builder_.declare("member")), more.push_back(builder_.declare("object"));
  ZINC_TRY(other, other_member(facts, declared, more[n]));
  builder_.define(named[n], other);
  bool must_go_on = false;  // one that is required comes at or after this one
  const Expr close = builder_.text("}");
  for (size_t i = n + 1; i-- > 0;) {
    const Expr next = builder_.sequence({builder_.text(","), parts_.space(), builder_.rule(named[i])});
    builder_.define(more[i], builder_.sequence({parts_.space(), must_go_on ? next : builder_.choice({close, next})}));
    if (i == 0) break;
    const Property& property = allowed[i - 1];
    ZINC_TRY(value, rule_of(property.schemas));
    const Expr member = builder_.sequence({builder_.text(to_json(json::string(property.name))), parts_.colon(),
                                           builder_.rule(value), builder_.rule(more[i])});
    builder_.define(named[i - 1], property.is_required ? member : builder_.choice({member, builder_.rule(named[i])}));
    must_go_on = must_go_on || property.is_required;
  }
  const Expr first = builder_.rule(named[0]);
  return builder_.sequence({builder_.text("{"), parts_.space(), must_go_on ? first : builder_.choice({close, first})});
}

Result<Expr> SchemaTranslator::other_member(const SchemaFacts& facts, const std::vector<Property>& declared,
                                            Rule more) {
  Schemas schemas;
  const bool has_properties = std::ranges::any_of(facts.objects, [](const auto& object) { return object.properties; });
  for (const SchemaFacts::Object& object : facts.objects) {
    if (object.rest) schemas.push_back(*object.rest);
  }
  const bool is_closed = std::ranges::any_of(schemas, is_false) || (schemas.empty() && has_properties);
  if (is_closed) return builder_.choice({});
  std::vector<std::string_view> names;
  for (const Property& property : declared) {
    ZINC_TRY(spent, reader_.spend(kStepsPerRule * static_cast<int64_t>(property.name.size())));
    names.push_back(property.name);
  }
  ZINC_TRY(value, rule_of(schemas));
  return builder_.sequence({parts_.string_but(names), parts_.colon(), builder_.rule(value), builder_.rule(more)});
}

}  // namespace

Result<Grammar> json_object_grammar() {
  GrammarBuilder builder;
  const JsonParts parts(builder);
  const Rule root = builder.declare("root");
  builder.define(root, parts.object());
  return builder.finish(root);
}

Result<Grammar> json_schema_grammar(const json::value& schema) { return SchemaTranslator(schema).translate(); }

}  // namespace zinc
