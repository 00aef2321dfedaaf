#include <algorithm>

#include "constrain/automaton.h"
#include "constrain/schema_translator.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
constexpr int kStepsPerMember = 8;

bool allows_nothing(const SchemaRef& ref) { return ref.schema->is_bool() && !ref.schema->get_bool(); }

}  // namespace

// After each element comes the end or the next element. After `n_distinct` elements the last rule repeats itself.
Result<Expr> SchemaTranslator::array(const SchemaConstraints& constraints) {
  size_t n_distinct = static_cast<size_t>(constraints.n_items.min);
  for (const SchemaConstraints::Array& array : constraints.arrays)
    n_distinct = std::max(n_distinct, array.prefix.size());
  if (constraints.has_unique_items) {
    ZINC_TRY(unique, unique_items(constraints));
    if (unique) return *unique;
    if (constraints.n_items.max == kNoLimit || constraints.n_items.max > 1)
      not_enforced(constraints.path,
                   "\"uniqueItems\" is not enforced: the elements have no \"enum\", \"const\" or boolean type");
  }
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
  ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(out.size() * (constraints.objects.size() + kStepsPerMember))));
  ZINC_TRY(names, name_constraints(constraints));
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
    if (!names) continue;
    ZINC_TRY(is_allowed, allows_name(*names, property.name));
    if (!is_allowed && property.is_required)
      return reader_.error_at(constraints.path, "\"propertyNames\" forbids a required property");
    property.is_forbidden = property.is_forbidden || !is_allowed;
  }
  return out;
}

// The constraints of "propertyNames"; nullopt: every name is allowed.
Result<std::optional<SchemaConstraints>> SchemaTranslator::name_constraints(const SchemaConstraints& constraints) {
  if (constraints.property_names.empty()) return std::optional<SchemaConstraints>();
  ZINC_TRY(names, reader_.constraints_of(constraints.property_names));
  if (names.contradiction) return *names.contradiction;
  const bool is_any = !names.values && !names.pattern && !names.format && names.choices.empty() &&
                      names.lengths.min == 0 && names.lengths.max == kNoLimit;
  return is_any ? std::optional<SchemaConstraints>() : std::optional(std::move(names));
}

Result<bool> SchemaTranslator::allows_name(const SchemaConstraints& names, std::string_view name) {
  if (!names.choices.empty())
    return reader_.error_at(names.path,
                            "\"anyOf\" and \"oneOf\" are not supported in \"propertyNames\" together with "
                            "\"properties\" or \"required\"");
  GrammarBuilder builder;
  const JsonGrammar json(builder);
  Result<Expr> expr = builder.text(to_json(json::string(name)));
  if (names.values) {
    const auto is_name = [&](const json::value* value) { return value->is_string() && value->get_string() == name; };
    if (std::ranges::none_of(*names.values, is_name)) return false;
  }
  if (names.pattern) expr = regex_grammar(builder, *names.pattern, names.lengths);
  if (!expr.ok()) return reader_.error_at(names.path, expr.error().message);
  if (!names.pattern) {
    const auto length = std::ranges::count_if(name, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
    return length >= names.lengths.min && (names.lengths.max == kNoLimit || length <= names.lengths.max);
  }
  const Rule root = builder.declare("name");
  builder.define(root, expr.value());
  ZINC_TRY(grammar, builder.finish(root));
  Automaton automaton(std::move(grammar));
  std::string written = to_json(json::string(name));
  Automaton::State state = automaton.start();
  for (size_t i = 1; i + 1 < written.size() && state != Automaton::kDeadState; ++i) {
    state = automaton.next(state, static_cast<uint8_t>(written[i]));
  }
  return state != Automaton::kDeadState && automaton.may_end(state);
}

// Rules for every position in the list and every number of members so far that matters to the limits: a member from
// this position on must follow (`next`), or may follow (`after`).
Result<Expr> SchemaTranslator::list(const std::vector<Member>& members, std::optional<Expr> other, CountLimits counts,
                                    const ListSyntax& syntax) {
  const size_t n = members.size();
  const auto n_required = std::ranges::count_if(members, &Member::is_required);
  if (counts.min <= n_required) counts.min = 0;
  if (!other && counts.max >= static_cast<int64_t>(n)) counts.max = kNoLimit;
  const auto last_count = static_cast<size_t>(counts.max != kNoLimit ? counts.max : counts.min);
  ZINC_TRY(spent, reader_.spend(static_cast<int64_t>((n + 1) * (last_count + 1)) * kStepsPerMember));
  const auto may_close = [&](size_t count) { return static_cast<int64_t>(count) >= counts.min; };
  const auto may_continue = [&](size_t count) { return counts.max == kNoLimit || count < last_count; };

  std::vector<std::vector<Rule>> next(n + 1), after(n + 1);  // [position][members so far]
  for (size_t i = 0; i <= n; ++i) {
    for (size_t count = 0; count <= last_count; ++count) {
      next[i].push_back(builder_.declare("member"));
      after[i].push_back(builder_.declare("list"));
    }
  }
  bool has_required_after = false;  // at or after this position
  for (size_t i = n + 1; i-- > 0;) {
    has_required_after = has_required_after || (i < n && members[i].is_required);
    for (size_t count = 0; count <= last_count; ++count) {
      const size_t next_count = std::min(count + 1, last_count);
      std::vector<Expr> members_next, members_after;
      if (i < n) members_next.push_back(builder_.sequence({members[i].expr, builder_.rule(after[i + 1][next_count])}));
      if (i < n && !members[i].is_required) members_next.push_back(builder_.rule(next[i + 1][count]));
      if (i == n && other) members_next.push_back(builder_.sequence({*other, builder_.rule(after[n][next_count])}));
      builder_.define(next[i][count],
                      builder_.choice(may_continue(count) ? std::move(members_next) : std::vector<Expr>()));
      if (!has_required_after && may_close(count)) members_after.push_back(syntax.close);
      members_after.push_back(builder_.sequence({syntax.separator, builder_.rule(next[i][count])}));
      builder_.define(after[i][count], builder_.sequence({syntax.after_member, builder_.choice(members_after)}));
    }
  }
  std::vector<Expr> first = {builder_.rule(next[0][0])};
  if (!has_required_after && may_close(0)) first.push_back(syntax.close);
  return builder_.sequence({syntax.open, builder_.choice(std::move(first))});
}

// Unique elements of an enumerated set, in the order of the set; nullopt: the elements are not enumerated.
Result<std::optional<Expr>> SchemaTranslator::unique_items(const SchemaConstraints& constraints) {
  Schemas all;
  for (const SchemaConstraints::Array& array : constraints.arrays) {
    if (!array.prefix.empty() || !array.rest) return std::optional<Expr>();
    all.push_back(*array.rest);
  }
  ZINC_TRY(items, reader_.constraints_of(all));
  const bool is_boolean = !items.values && items.types == JsonTypeSet::boolean;
  if ((!items.values && !is_boolean) || !items.choices.empty() || items.contradiction) return std::optional<Expr>();
  std::vector<Member> members;
  if (is_boolean) members = {{builder_.text("false")}, {builder_.text("true")}};
  if (items.values) {
    ZINC_TRY(values, allowed_values(items));
    std::vector<std::string> seen;
    for (const json::value* value : values) {
      ZINC_TRY(spent, reader_.spend(static_cast<int64_t>(seen.size()) + 1));
      const std::string text = to_json(*value);
      if (std::ranges::find(seen, text) != seen.end()) continue;
      seen.push_back(text);
      ZINC_TRY(written, written_value(items, *value));
      members.push_back({written});
    }
  }
  ZINC_TRY(expr, list(members, std::nullopt, constraints.n_items,
                      {.open = builder_.sequence({builder_.text("["), json_.space()}),
                       .after_member = json_.space(),
                       .separator = builder_.sequence({builder_.text(","), json_.space()}),
                       .close = builder_.text("]")}));
  return std::optional(expr);
}

Result<Expr> SchemaTranslator::object(const SchemaConstraints& constraints) {
  const bool has_counts = constraints.n_properties.min > 0 || constraints.n_properties.max != kNoLimit;
  if (constraints.objects.empty() && constraints.required.empty() && constraints.property_names.empty() && !has_counts)
    return json_.object();
  ZINC_TRY(declared, properties(constraints));
  std::vector<Member> members;
  for (const Property& property : declared) {
    if (property.is_forbidden) continue;
    ZINC_TRY(value, find_or_add_rule(property.schemas));
    members.push_back(
        {builder_.sequence({json_.name(property.name), json_.colon(), builder_.rule(value)}), property.is_required});
  }
  ZINC_TRY(other, other_member(constraints, declared));
  return list(members, other, constraints.n_properties,
              {.open = builder_.sequence({builder_.text("{"), json_.space()}),
               .after_member = json_.space(),
               .separator = builder_.sequence({builder_.text(","), json_.space()}),
               .close = builder_.text("}")});
}

std::optional<Schemas> SchemaTranslator::other_schemas(const SchemaConstraints& constraints) const {
  Schemas schemas;
  const bool has_properties =
      std::ranges::any_of(constraints.objects, [](const auto& object) { return object.properties; });
  for (const SchemaConstraints::Object& object : constraints.objects) {
    if (object.rest) schemas.push_back(*object.rest);
  }
  if (std::ranges::any_of(schemas, allows_nothing) || (schemas.empty() && has_properties)) return std::nullopt;
  return schemas;
}

// With constrained names there are either declared members or others: a name of both kinds could occur twice.
Result<std::optional<Expr>> SchemaTranslator::other_member(const SchemaConstraints& constraints,
                                                           const std::vector<Property>& declared) {
  const std::optional<Schemas> schemas = other_schemas(constraints);
  ZINC_TRY(names, name_constraints(constraints));
  if (!schemas || (names && (!declared.empty() || json_.raw_strings()))) return std::optional<Expr>();
  std::vector<std::string_view> excluded;
  for (const Property& property : declared) {
    ZINC_TRY(spent, reader_.spend(kStepsPerMember * static_cast<int64_t>(property.name.size())));
    excluded.push_back(property.name);
  }
  ZINC_TRY(value, find_or_add_rule(*schemas));
  Expr name = 0;
  if (names) {
    static const json::value kStringSchema = {{"type", "string"}};
    Schemas all = constraints.property_names;
    all.push_back({&kStringSchema, all.front().path});
    ZINC_TRY(rule, find_or_add_rule(all));
    name = builder_.rule(rule);
  } else {
    name = json_.name_except(excluded);
  }
  return std::optional(builder_.sequence({name, json_.colon(), builder_.rule(value)}));
}

Expr SchemaTranslator::parameter(Expr name, Expr value) {
  const ParameterSyntax& syntax = *parameter_syntax_;
  return builder_.sequence({builder_.text(syntax.before_name), name, builder_.text(syntax.before_value), value,
                            builder_.text(syntax.after_value)});
}

Result<Expr> SchemaTranslator::parameter_value(const Property& property) {
  const ParameterTypes types = parameter_syntax_->types(property.name);
  if (types != 0 && (types & kStringType) == 0) {
    ZINC_TRY(value, find_or_add_rule(property.schemas));
    return builder_.rule(value);
  }
  ZINC_TRY(text, find_or_add_rule(property.schemas, types == kStringType ? Writing::text : Writing::text_among_json));
  if (types == kStringType) return builder_.rule(text);
  ZINC_TRY(value, find_or_add_rule(property.schemas, Writing::json_among_text));
  return builder_.choice({builder_.rule(text), builder_.rule(value)});
}

Result<Expr> SchemaTranslator::parameters(const SchemaConstraints& constraints) {
  ZINC_TRY(declared, properties(constraints));
  std::vector<Member> members;
  std::vector<std::string_view> names;
  for (const Property& property : declared) {
    names.push_back(property.name);
    if (property.is_forbidden) continue;
    if (property.name.find_first_of("<>\n") != std::string_view::npos)
      return reader_.error_at(constraints.path, "a parameter's name contains '<', '>' or a line break");
    ZINC_TRY(value, parameter_value(property));
    members.push_back({parameter(builder_.text(property.name), value), property.is_required});
  }
  std::optional<Expr> other;
  const std::optional<Schemas> schemas = other_schemas(constraints);
  if (schemas && constraints.property_names.empty()) {
    ZINC_TRY(value, parameter_value({.name = "", .schemas = *schemas}));
    other = parameter(identifier_except(builder_, names), value);
  }
  const Expr nothing = builder_.text("");
  return list(members, other, constraints.n_properties,
              {.open = nothing, .after_member = nothing, .separator = nothing, .close = nothing});
}

}  // namespace zinc
