#include "constrain/json_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "constrain/number_range.h"
#include "constrain/regex.h"
#include "constrain/schema_overlap.h"
#include "constrain/schema_translator.h"
#include "constrain/string_format.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
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

bool is_multiple(double number, double divisor) {
  const double quotient = number / divisor;
  return std::fabs(quotient - std::round(quotient)) <= 1e-9 * std::max(1.0, std::fabs(quotient));
}

// Text that starts with one of these may be read as white space or as a JSON value that is not a string, also in
// Python's spelling.
constexpr std::string_view kJsonStarts = "{[-0123456789tfnTFN\" \n\r\t";
bool is_json_start(char c) { return kJsonStarts.find(c) != std::string_view::npos; }

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

// Restrict a schema to some types.
const json::value kObjectSchema = {{"type", "object"}};

}  // namespace

Result<Rule> SchemaTranslator::add_document() { return translate({reader_.root()}, Writing::json); }
Result<Rule> SchemaTranslator::add_object() {
  return translate({reader_.root(), {&kObjectSchema, reader_.root().path}}, Writing::json);
}
Result<Rule> SchemaTranslator::add_parameters(const ParameterSyntax& syntax) {
  parameter_syntax_ = &syntax;
  return translate({reader_.root(), {&kObjectSchema, reader_.root().path}}, Writing::parameters);
}

Result<Rule> SchemaTranslator::translate(const Schemas& schemas, Writing writing) {
  ZINC_TRY(root, find_or_add_rule(schemas, writing));
  for (size_t i = 0; i < pending_rules_.size(); ++i) {
    const PendingRule next = pending_rules_[i];
    writing_ = next.writing;
    ZINC_TRY(constraints, reader_.constraints_of(next.schemas));
    std::vector<Expr> alternatives;
    ZINC_TRY(added, add_alternatives(constraints, next.rule, alternatives));
    if (builder_.is_too_large()) break;  // finish() reports it
    if (alternatives.empty() && !may_be_empty()) return *contradiction_;
    const bool writes_json = writing_ == Writing::json || writing_ == Writing::json_among_text;
    if (constraints.or_null && writes_json) alternatives.push_back(builder_.text("null"));
    builder_.define(next.rule, builder_.choice(std::move(alternatives)));
  }
  ZINC_TRY(checked, check_choices());
  return root;
}

Result<Rule> SchemaTranslator::find_or_add_rule(const Schemas& schemas, Writing writing) {
  PendingRule next;
  next.writing = writing;
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
  if (key.empty() && writing == Writing::json) return json_.value();
  const auto [found, is_new] = rule_index_.try_emplace({std::move(key), writing}, pending_rules_.size());
  if (!is_new) return pending_rules_[found->second].rule;
  ZINC_TRY(spent, reader_.spend(kStepsPerRule));
  next.rule = builder_.declare(next.schemas.empty() ? "value" : reader_.path_text(next.schemas.front().path));
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
  check_one_of(choice);
  for (size_t i = 0; i < choice.options.size() && !builder_.is_too_large(); ++i) {
    if (constraints.n_keywords == 0 && constraints.choices.size() == 1) {
      ZINC_TRY(chosen, find_or_add_rule({choice.options[i]}, writing_));
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

void SchemaTranslator::not_enforced(int32_t path, std::string_view why) {
  builder_.add_unenforced(reader_.error_at(path, why).message);
}

// The grammar allows a value that satisfies several options, if there is one.
void SchemaTranslator::check_one_of(const SchemaConstraints::Choice& choice) {
  if (!choice.is_one_of || !checked_one_ofs_.insert(choice.options.front().schema).second) return;
  std::vector<const json::value*> options;
  for (const SchemaRef& option : choice.options) {
    const Result<SchemaRef> target = reader_.resolve_pure_ref(option);
    options.push_back(target.ok() ? target.value().schema : option.schema);
  }
  if (!are_pairwise_disjoint(options, n_overlap_steps_left_)) {
    not_enforced(choice.path, "\"oneOf\" is treated as \"anyOf\": its options may overlap");
  }
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
  if (writing_ == Writing::parameters) return parameters(constraints);
  if (constraints.values) return values(constraints);
  const uint8_t types = types_of(constraints) & written_types();
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

Result<std::vector<const json::value*>> SchemaTranslator::allowed_values(const SchemaConstraints& constraints) const {
  std::vector<const json::value*> out;
  for (const json::value* value : *constraints.values) {
    ZINC_TRY(is_allowed, allows(constraints, *value));
    if (is_allowed) out.push_back(value);
  }
  return out;
}

Result<Expr> SchemaTranslator::values(const SchemaConstraints& constraints) {
  std::vector<Expr> alternatives;
  ZINC_TRY(allowed, allowed_values(constraints));
  for (const json::value* value : allowed) {
    if (builder_.is_too_large()) break;
    const bool is_misread = writing_ == Writing::text_among_json && value->is_string() &&
                            (value->get_string().empty() || is_json_start(value->get_string().front()));
    if (!(type_of(*value) & written_types()) || is_misread) continue;
    ZINC_TRY(written, written_value(constraints, *value));
    alternatives.push_back(written);
  }
  if (alternatives.empty() && !may_be_empty())
    return reader_.error_at(constraints.path, "no value of \"enum\" or \"const\" satisfies the other keywords");
  return builder_.choice(std::move(alternatives));
}

Result<Expr> SchemaTranslator::written_value(const SchemaConstraints& constraints, const json::value& value) {
  const RawStrings* const raw = raw_strings();
  if (!raw || !value.is_string()) return builder_.text(to_json(value));
  const std::string text(value.get_string());
  if (text.find(raw->excluded) != std::string::npos)
    return reader_.error_at(constraints.path,
                            fmt::format("a value of \"enum\" or \"const\" contains {}", raw->excluded));
  return builder_.text(raw->quote + text + raw->quote);
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
    if (constraints.multiple_of && !is_multiple(number, *constraints.multiple_of)) return false;
    const NumberBound low = lower_of(constraints), high = upper_of(constraints);
    return (low.is_open ? number > low.value : number >= low.value) &&
           (high.is_open ? number < high.value : number <= high.value);
  }
  const auto has_counts = [](const CountLimits& limits) { return limits.min > 0 || limits.max != kNoLimit; };
  const bool has_more =
      (value.is_array() &&
       (!constraints.arrays.empty() || has_counts(constraints.n_items) || constraints.has_unique_items)) ||
      (value.is_object() && (!constraints.objects.empty() || !constraints.required.empty() ||
                             has_counts(constraints.n_properties) || !constraints.property_names.empty()));
  if (has_more) {
    return reader_.error_at(
        constraints.path, "an array or object in \"enum\" or \"const\" is not supported together with other keywords");
  }
  return true;
}

bool SchemaTranslator::may_be_empty() const {
  return writing_ == Writing::text_among_json || writing_ == Writing::json_among_text;
}

uint8_t SchemaTranslator::written_types() const {
  if (writing_ == Writing::json_among_text) return JsonTypeSet::kAll & ~JsonTypeSet::string;
  if (writing_ == Writing::json) return JsonTypeSet::kAll;
  return JsonTypeSet::string;
}

const RawStrings* SchemaTranslator::raw_strings() const {
  if (writing_ == Writing::json) return json_.raw_strings() ? &*json_.raw_strings() : nullptr;
  return writing_ == Writing::json_among_text ? nullptr : &parameter_syntax_->text;
}

Expr SchemaTranslator::unlimited_string(const RawStrings* raw) {
  if (writing_ == Writing::json) return json_.string();
  if (writing_ == Writing::text) return raw_string(builder_, *raw);
  CharRanges first = {{'<', '<'}};
  for (const char c : kJsonStarts) first.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return builder_.sequence({builder_.chars(complement(std::move(first))), builder_.text_without(raw->excluded)});
}

Result<Expr> SchemaTranslator::string(const SchemaConstraints& constraints) {
  const RawStrings* const raw = raw_strings();
  const auto quoted = [&](Expr inner) {
    return raw ? builder_.sequence({builder_.text(raw->quote), inner, builder_.text(raw->quote)}) : json_.quoted(inner);
  };
  std::string_view pattern = constraints.pattern.value_or("");
  if (!constraints.pattern && constraints.format) pattern = pattern_of_format(*constraints.format);
  const auto& [min, max] = constraints.lengths;
  const bool is_unlimited = !constraints.pattern && pattern.empty() && min == 0 && max == kNoLimit;
  if (is_unlimited) return unlimited_string(raw);
  if (writing_ == Writing::text_among_json) return builder_.choice({});  // the text could be another value
  if (constraints.pattern || !pattern.empty()) {
    const Result<Expr> inner =
        regex_grammar(builder_, pattern, constraints.lengths, raw ? StringSyntax::raw : StringSyntax::json);
    if (inner.ok()) return quoted(inner.value());
    const std::string_view keyword = constraints.pattern ? "pattern" : "format";
    return reader_.error_at(constraints.path, fmt::format("\"{}\": {}", keyword, inner.error().message));
  }
  const Expr one = raw ? builder_.chars(complement({{'<', '<'}})) : json_.string_char();
  return quoted(builder_.repeat(one, static_cast<int>(min), static_cast<int>(max)));
}

Result<Expr> SchemaTranslator::number(const SchemaConstraints& constraints, bool is_integer) {
  if (constraints.multiple_of) {
    const Result<Expr> expr =
        multiples_between(builder_, *constraints.multiple_of, lower_of(constraints), upper_of(constraints),
                          is_integer ? NumberKind::integer : NumberKind::any);
    return expr.ok() ? expr : reader_.error_at(constraints.path, expr.error().message);
  }
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

Result<Grammar> json_object_grammar() {
  GrammarBuilder builder;
  const JsonGrammar parts(builder);
  const Rule root = builder.declare("root");
  builder.define(root, parts.object());
  return builder.finish(root);
}

Result<Rule> add_json_schema(GrammarBuilder& builder, const JsonGrammar& json, const json::value& schema) {
  return SchemaTranslator(schema, builder, json).add_document();
}

Result<Rule> add_json_object_schema(GrammarBuilder& builder, const JsonGrammar& json, const json::value& schema) {
  return SchemaTranslator(schema, builder, json).add_object();
}

Result<Rule> add_parameter_schema(GrammarBuilder& builder, const JsonGrammar& json, const json::value& schema,
                                  const ParameterSyntax& syntax) {
  return SchemaTranslator(schema, builder, json).add_parameters(syntax);
}

Result<Grammar> json_schema_grammar(const json::value& schema) {
  GrammarBuilder builder;
  const JsonGrammar parts(builder);
  ZINC_TRY(root, add_json_schema(builder, parts, schema));
  return builder.finish(root);
}

}  // namespace zinc
