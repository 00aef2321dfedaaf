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

#include "constrain/json_grammar.h"
#include "constrain/number_range.h"
#include "constrain/regex.h"
#include "constrain/schema_reader.h"
#include "constrain/string_format.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
constexpr int kNoLimit = GrammarBuilder::kNoLimit;
constexpr int kStepsPerRule = 8;

uint8_t types_of(const SchemaConstraints& constraints) {
  if (constraints.types) return *constraints.types;
  return constraints.implied_types ? constraints.implied_types : JsonTypeSet::kAll;
}

uint8_t type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return JsonTypeSet::null;
    case json::kind::bool_:
      return JsonTypeSet::boolean;
    case json::kind::object:
      return JsonTypeSet::object;
    case json::kind::array:
      return JsonTypeSet::array;
    case json::kind::string:
      return JsonTypeSet::string;
    case json::kind::double_:
      return value.get_double() == std::floor(value.get_double()) ? JsonTypeSet::integer : JsonTypeSet::fraction;
    default:
      return JsonTypeSet::integer;
  }
}

int64_t n_chars(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

NumberBound lower_of(const SchemaConstraints& constraints) {
  NumberBound out = {-std::numeric_limits<double>::infinity()};
  for (const NumberBound& b : constraints.lower) {
    if (b.value > out.value || (b.value == out.value && b.is_open)) out = b;
  }
  return out;
}
NumberBound upper_of(const SchemaConstraints& constraints) {
  NumberBound out = {std::numeric_limits<double>::infinity()};
  for (const NumberBound& b : constraints.upper) {
    if (b.value < out.value || (b.value == out.value && b.is_open)) out = b;
  }
  return out;
}

bool allows_nothing(const SchemaRef& ref) { return ref.schema->is_bool() && !ref.schema->get_bool(); }

// Translates schemas to rules, one per set of schemas that apply to the same value. Subschemas are put into a work
// list, so that deep schemas do not recurse.
class SchemaTranslator {
 public:
  explicit SchemaTranslator(const json::value& schema) : reader_(schema), json_(builder_) {}

  Result<Grammar> translate() {
    ZINC_TRY(root, find_or_add_rule({reader_.root()}));
    for (size_t i = 0; i < pending_rules_.size(); ++i) {
      const PendingRule next = pending_rules_[i];
      ZINC_TRY(constraints, reader_.constraints_of(next.schemas));
      std::vector<Expr> alternatives;
      ZINC_TRY(added, add_alternatives(constraints, next.rule, alternatives));
      if (builder_.is_too_large()) break;  // finish() reports it
      if (alternatives.empty()) return *contradiction_;
      if (constraints.or_null) alternatives.push_back(builder_.text("null"));
      builder_.define(next.rule, builder_.choice(std::move(alternatives)));
    }
    ZINC_TRY(checked, check_choices());
    return builder_.finish(root);
  }

 private:
  struct PendingRule {
    Rule rule;
    Schemas schemas;
    std::vector<Rule> choices;  // rules it is a choice of
  };

  Result<Rule> find_or_add_rule(const Schemas& schemas);
  Status check_choices() const;
  Status add_alternatives(const SchemaConstraints& constraints, Rule rule, std::vector<Expr>& alternatives);
  std::optional<Error> contradiction_of(const SchemaConstraints& constraints) const;
  Result<Expr> all_types(const SchemaConstraints& constraints);
  Result<Expr> values(const SchemaConstraints& constraints);
  Result<bool> allows(const SchemaConstraints& constraints, const json::value& value) const;
  Result<Expr> string(const SchemaConstraints& constraints);
  Result<Expr> number(const SchemaConstraints& constraints, bool is_integer);

  Result<Expr> array(const SchemaConstraints& constraints);
  bool is_closed_after(const SchemaConstraints& constraints, size_t n_items) const;
  Result<Rule> item_at(const SchemaConstraints& constraints, size_t index);

  struct Property {
    std::string_view name;
    Schemas schemas = {};
    bool is_required = false;
    bool is_forbidden = false;
  };
  Result<Expr> object(const SchemaConstraints& constraints);
  Result<std::vector<Property>> properties(const SchemaConstraints& constraints);
  Result<Expr> other_member(const SchemaConstraints& constraints, const std::vector<Property>& declared,
                            Rule after_member);

  SchemaReader reader_;
  GrammarBuilder builder_;
  JsonGrammar json_;
  std::vector<PendingRule> pending_rules_;
  std::optional<Error> contradiction_;                            // why the last alternative was dropped
  std::map<std::vector<const json::value*>, size_t> rule_index_;  // index in pending_rules_
  std::unordered_map<Rule, size_t> pending_index_;
};

Result<Rule> SchemaTranslator::find_or_add_rule(const Schemas& schemas) {
  PendingRule next;
  std::vector<const json::value*> key;
  for (const SchemaRef& ref : schemas) {
    ZINC_TRY(spent, reader_.spend(1));
    ZINC_TRY(target, reader_.resolve_pure_ref(ref));
    const bool is_unconstrained =
        *target.schema == true || (target.schema->is_object() && target.schema->get_object().empty());
    if (is_unconstrained || std::ranges::find(key, target.schema) != key.end()) continue;
    key.push_back(target.schema);
    next.schemas.push_back(target);
  }
  if (key.empty()) return json_.value();
  const auto [found, is_new] = rule_index_.try_emplace(std::move(key), pending_rules_.size());
  if (!is_new) return pending_rules_[found->second].rule;
  ZINC_TRY(spent, reader_.spend(kStepsPerRule));
  next.rule = builder_.declare(reader_.path_text(next.schemas.front().path));
  pending_index_[next.rule] = pending_rules_.size();
  pending_rules_.push_back(std::move(next));
  return pending_rules_.back().rule;
}

// Rules that are choices of rules must not form a cycle (topological sort).
Status SchemaTranslator::check_choices() const {
  std::vector<size_t> n_unresolved(pending_rules_.size()), acyclic;
  std::vector<std::vector<size_t>> chosen_by(pending_rules_.size());
  for (size_t i = 0; i < pending_rules_.size(); ++i) {
    for (const Rule rule : pending_rules_[i].choices) {
      const auto found = pending_index_.find(rule);
      if (found == pending_index_.end()) continue;
      chosen_by[found->second].push_back(i);
      ++n_unresolved[i];
    }
    if (n_unresolved[i] == 0) acyclic.push_back(i);
  }
  for (size_t i = 0; i < acyclic.size(); ++i) {
    for (const size_t by : chosen_by[acyclic[i]]) {
      if (--n_unresolved[by] == 0) acyclic.push_back(by);
    }
  }
  const auto unresolved = std::ranges::find_if(n_unresolved, [](size_t n) { return n > 0; });
  if (unresolved == n_unresolved.end()) return ok_status();
  return reader_.error_at(pending_rules_[static_cast<size_t>(unresolved - n_unresolved.begin())].schemas.front().path,
                          "circular $ref");
}

// If a choice is the only keyword its options become rules of their own; otherwise each is merged with the other
// keywords, and dropped if they contradict each other.
Status SchemaTranslator::add_alternatives(const SchemaConstraints& constraints, Rule rule,
                                          std::vector<Expr>& alternatives) {
  if (constraints.choices.empty()) {
    if (std::optional<Error> why = contradiction_of(constraints)) {
      contradiction_ = std::move(why);
      return ok_status();
    }
    ZINC_TRY(alternative, all_types(constraints));
    alternatives.push_back(alternative);
    return ok_status();
  }
  const SchemaConstraints::Choice& choice = constraints.choices.back();
  for (size_t i = 0; i < choice.options.size() && !builder_.is_too_large(); ++i) {
    if (constraints.n_keywords == 0 && constraints.choices.size() == 1) {
      ZINC_TRY(chosen, find_or_add_rule({choice.options[i]}));
      pending_rules_[pending_index_.at(rule)].choices.push_back(chosen);
      alternatives.push_back(builder_.rule(chosen));
      continue;
    }
    ZINC_TRY(spent,
             reader_.spend(static_cast<int64_t>(constraints.visited_schemas.size() + constraints.required.size())));
    SchemaConstraints joined = constraints;
    joined.choices.pop_back();
    joined.path = choice.options[i].path;
    ZINC_TRY(chosen, reader_.add_option(choice, i, joined));
    ZINC_TRY(added, add_alternatives(joined, rule, alternatives));
  }
  return ok_status();
}

std::optional<Error> SchemaTranslator::contradiction_of(const SchemaConstraints& constraints) const {
  if (constraints.contradiction) return constraints.contradiction;
  const bool is_integer = types_of(constraints) == JsonTypeSet::integer;
  if (is_integer && (constraints.no_integer_fits || constraints.min_integer > constraints.max_integer)) {
    return reader_.error_at(constraints.path, "no integer satisfies the bounds");
  }
  return std::nullopt;
}

Result<Expr> SchemaTranslator::all_types(const SchemaConstraints& constraints) {
  if (constraints.values) return values(constraints);
  const uint8_t types = types_of(constraints);
  std::vector<Expr> alternatives;
  if (types & JsonTypeSet::object) {
    ZINC_TRY(alternative, object(constraints));
    alternatives.push_back(alternative);
  }
  if (types & JsonTypeSet::array) {
    ZINC_TRY(alternative, array(constraints));
    alternatives.push_back(alternative);
  }
  if (types & JsonTypeSet::string) {
    ZINC_TRY(alternative, string(constraints));
    alternatives.push_back(alternative);
  }
  if (types & JsonTypeSet::kNumber) {
    ZINC_TRY(alternative, number(constraints, !(types & JsonTypeSet::fraction)));
    alternatives.push_back(alternative);
  }
  if (types & JsonTypeSet::boolean) {
    alternatives.push_back(builder_.text("true"));
    alternatives.push_back(builder_.text("false"));
  }
  if (types & JsonTypeSet::null) alternatives.push_back(builder_.text("null"));
  return builder_.choice(std::move(alternatives));
}

Result<Expr> SchemaTranslator::values(const SchemaConstraints& constraints) {
  std::vector<Expr> alternatives;
  for (const json::value* value : *constraints.values) {
    if (builder_.is_too_large()) break;
    ZINC_TRY(is_allowed, allows(constraints, *value));
    if (is_allowed) alternatives.push_back(builder_.text(to_json(*value)));
  }
  if (alternatives.empty())
    return reader_.error_at(constraints.path, "no value of \"enum\" or \"const\" satisfies the other keywords");
  return builder_.choice(std::move(alternatives));
}

Result<bool> SchemaTranslator::allows(const SchemaConstraints& constraints, const json::value& value) const {
  if (constraints.types && !(*constraints.types & type_of(value))) return false;
  if (value.is_string()) {
    if (constraints.pattern)
      return reader_.error_at(constraints.path, "\"pattern\" is not supported together with \"enum\" or \"const\"");
    const int64_t length = n_chars(value.get_string());
    return length >= constraints.lengths.min &&
           (constraints.lengths.max == kNoLimit || length <= constraints.lengths.max);
  }
  if (value.is_number()) {
    const auto number = value.to_number<double>();
    const NumberBound low = lower_of(constraints), high = upper_of(constraints);
    return (low.is_open ? number > low.value : number >= low.value) &&
           (high.is_open ? number < high.value : number <= high.value);
  }
  const bool has_more = (value.is_array() && (!constraints.arrays.empty() || constraints.n_items.min > 0 ||
                                              constraints.n_items.max != kNoLimit)) ||
                        (value.is_object() && (!constraints.objects.empty() || !constraints.required.empty()));
  if (has_more) {
    return reader_.error_at(
        constraints.path, "an array or object in \"enum\" or \"const\" is not supported together with other keywords");
  }
  return true;
}

Result<Expr> SchemaTranslator::string(const SchemaConstraints& constraints) {
  std::string_view pattern = constraints.pattern.value_or("");
  if (!constraints.pattern && constraints.format) pattern = pattern_of_format(*constraints.format);
  if (constraints.pattern || !pattern.empty()) {
    const Result<Expr> inner = regex_grammar(builder_, pattern, constraints.lengths);
    if (inner.ok()) return json_.quoted(inner.value());
    const std::string_view keyword = constraints.pattern ? "pattern" : "format";
    return reader_.error_at(constraints.path, fmt::format("\"{}\": {}", keyword, inner.error().message));
  }
  const auto& [min, max] = constraints.lengths;
  if (min == 0 && max == kNoLimit) return json_.string();
  return json_.quoted(builder_.repeat(json_.string_char(), static_cast<int>(min), static_cast<int>(max)));
}

Result<Expr> SchemaTranslator::number(const SchemaConstraints& constraints, bool is_integer) {
  if (constraints.lower.empty() && constraints.upper.empty()) return is_integer ? json_.integer() : json_.number();
  if (!is_integer) {
    const Result<Expr> expr = number_between(builder_, lower_of(constraints), upper_of(constraints));
    return expr.ok() ? expr : reader_.error_at(constraints.path, expr.error().message);
  }
  int64_t low = constraints.min_integer, high = constraints.max_integer;
  if (constraints.no_integer_fits || low > high)
    return reader_.error_at(constraints.path, "no integer satisfies the bounds");
  if (constraints.upper.empty() && low <= kMaxInteger) high = kMaxInteger;
  if (constraints.lower.empty() && high >= -kMaxInteger) low = -kMaxInteger;
  return integer_between(builder_, low, high);
}

// After each element comes the end or the next element. After `n_distinct` elements the last rule repeats itself.
Result<Expr> SchemaTranslator::array(const SchemaConstraints& constraints) {
  size_t n_distinct = static_cast<size_t>(constraints.n_items.min);
  for (const SchemaConstraints::Array& array : constraints.arrays)
    n_distinct = std::max(n_distinct, array.prefix.size());
  const bool has_max = constraints.n_items.max != kNoLimit;
  if (has_max) n_distinct = static_cast<size_t>(constraints.n_items.max);
  if (n_distinct == 0 && !has_max && constraints.arrays.empty()) return json_.array();
  ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(n_distinct * (constraints.arrays.size() + 1))));
  for (size_t i = 0; i < n_distinct; ++i) {
    if (is_closed_after(constraints, i)) n_distinct = i;
  }
  if (n_distinct < static_cast<size_t>(constraints.n_items.min)) {
    return reader_.error_at(constraints.path, "\"minItems\" is greater than the number of allowed elements");
  }
  const bool is_closed =
      n_distinct == static_cast<size_t>(constraints.n_items.max) || is_closed_after(constraints, n_distinct);

  std::vector<Rule> after;  // [i]: after i elements
  for (size_t i = 0; i <= n_distinct; ++i) after.push_back(builder_.declare("array"));
  const Expr close = builder_.text("]");
  Expr first = close;
  for (size_t i = 0; i <= n_distinct; ++i) {
    std::vector<Expr> alternatives;
    const bool may_end = i >= static_cast<size_t>(constraints.n_items.min);
    if (may_end) alternatives.push_back(close);
    std::vector<Expr> next;
    if (i < n_distinct || !is_closed) {
      ZINC_TRY(item, item_at(constraints, i));
      next = {builder_.rule(item), builder_.rule(after[std::min(i + 1, n_distinct)])};
      alternatives.push_back(builder_.sequence({builder_.text(","), json_.space(), next[0], next[1]}));
    }
    builder_.define(after[i], builder_.sequence({json_.space(), builder_.choice(std::move(alternatives))}));
    if (i > 0 || next.empty()) continue;
    first = builder_.sequence(next);
    if (may_end) first = builder_.choice({close, first});
  }
  return builder_.sequence({builder_.text("["), json_.space(), first});
}

// Whether no element may follow the first `n_items`: the next is forbidden, or `prefixItems` is given without `items`.
bool SchemaTranslator::is_closed_after(const SchemaConstraints& constraints, size_t n_items) const {
  return std::ranges::any_of(constraints.arrays, [&](const SchemaConstraints::Array& array) {
    if (n_items < array.prefix.size()) return allows_nothing(array.prefix[n_items]);
    if (array.rest) return allows_nothing(*array.rest);
    return !array.prefix.empty() && n_items >= static_cast<size_t>(constraints.n_items.min);
  });
}

Result<Rule> SchemaTranslator::item_at(const SchemaConstraints& constraints, size_t index) {
  Schemas all;
  for (const SchemaConstraints::Array& array : constraints.arrays) {
    if (index < array.prefix.size()) {
      all.push_back(array.prefix[index]);
    } else if (array.rest) {
      all.push_back(*array.rest);
    }
  }
  return find_or_add_rule(all);
}

// In the order of first mention. A property that one schema declares may fall under another's additionalProperties.
Result<std::vector<SchemaTranslator::Property>> SchemaTranslator::properties(const SchemaConstraints& constraints) {
  std::vector<Property> out;
  std::unordered_map<std::string_view, size_t> index;
  const auto at = [&](std::string_view name) -> Property& {
    const auto [found, is_new] = index.try_emplace(name, out.size());
    if (is_new) out.push_back({.name = name});
    return out[found->second];
  };
  for (const SchemaConstraints::Object& object : constraints.objects) {
    if (!object.properties) continue;
    for (const auto& member : *object.properties) at(member.key());
  }
  for (const std::string_view name : constraints.required) at(name).is_required = true;
  ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(out.size() * (constraints.objects.size() + kStepsPerRule))));
  for (Property& property : out) {
    for (const SchemaConstraints::Object& object : constraints.objects) {
      const json::value* const schema = object.properties ? object.properties->if_contains(property.name) : nullptr;
      if (schema) {
        const std::string_view name = object.properties->find(property.name)->key();
        property.schemas.push_back(reader_.child(object.properties_path, name, *schema));
      } else if (object.rest) {
        property.schemas.push_back(*object.rest);
      }
    }
    property.is_forbidden = std::ranges::any_of(property.schemas, allows_nothing);
    if (property.is_forbidden && property.is_required) {
      return reader_.error_at(property.schemas.front().path, "a required property has the schema 'false'");
    }
  }
  return out;
}

// Two rules per property: a member from this one on must follow (`next_member`); after it, one may follow
// (`after_member`).
Result<Expr> SchemaTranslator::object(const SchemaConstraints& constraints) {
  if (constraints.objects.empty() && constraints.required.empty()) return json_.object();
  ZINC_TRY(declared, properties(constraints));
  std::vector<Property> allowed = declared;
  std::erase_if(allowed, [](const Property& property) { return property.is_forbidden; });

  const size_t n = allowed.size();
  std::vector<Rule> next_member, after_member;
  for (size_t i = 0; i <= n; ++i)
    next_member.push_back(builder_.declare("member")), after_member.push_back(builder_.declare("object"));
  ZINC_TRY(other, other_member(constraints, declared, after_member[n]));
  builder_.define(next_member[n], other);
  bool has_required_after = false;  // a required property is at or after this one
  const Expr close = builder_.text("}");
  for (size_t i = n + 1; i-- > 0;) {
    const Expr next = builder_.sequence({builder_.text(","), json_.space(), builder_.rule(next_member[i])});
    builder_.define(after_member[i],
                    builder_.sequence({json_.space(), has_required_after ? next : builder_.choice({close, next})}));
    if (i == 0) break;
    const Property& property = allowed[i - 1];
    ZINC_TRY(value, find_or_add_rule(property.schemas));
    const Expr member = builder_.sequence({builder_.text(to_json(json::string(property.name))), json_.colon(),
                                           builder_.rule(value), builder_.rule(after_member[i])});
    builder_.define(next_member[i - 1],
                    property.is_required ? member : builder_.choice({member, builder_.rule(next_member[i])}));
    has_required_after = has_required_after || property.is_required;
  }
  const Expr first = builder_.rule(next_member[0]);
  return builder_.sequence(
      {builder_.text("{"), json_.space(), has_required_after ? first : builder_.choice({close, first})});
}

Result<Expr> SchemaTranslator::other_member(const SchemaConstraints& constraints, const std::vector<Property>& declared,
                                            Rule after_member) {
  Schemas schemas;
  const bool has_properties =
      std::ranges::any_of(constraints.objects, [](const auto& object) { return object.properties; });
  for (const SchemaConstraints::Object& object : constraints.objects) {
    if (object.rest) schemas.push_back(*object.rest);
  }
  const bool is_closed = std::ranges::any_of(schemas, allows_nothing) || (schemas.empty() && has_properties);
  if (is_closed) return builder_.choice({});
  std::vector<std::string_view> names;
  for (const Property& property : declared) {
    ZINC_TRY(spent, reader_.spend(kStepsPerRule * static_cast<int64_t>(property.name.size())));
    names.push_back(property.name);
  }
  ZINC_TRY(value, find_or_add_rule(schemas));
  return builder_.sequence(
      {json_.string_except(names), json_.colon(), builder_.rule(value), builder_.rule(after_member)});
}

}  // namespace

Result<Grammar> json_object_grammar() {
  GrammarBuilder builder;
  const JsonGrammar parts(builder);
  const Rule root = builder.declare("root");
  builder.define(root, parts.object());
  return builder.finish(root);
}

Result<Grammar> json_schema_grammar(const json::value& schema) { return SchemaTranslator(schema).translate(); }

}  // namespace zinc
