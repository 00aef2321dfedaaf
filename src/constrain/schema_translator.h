// Translates one JSON schema to rules of a grammar under construction, one rule per set of schemas that apply to the
// same value. Subschemas are put into a work list, so that deep schemas do not recurse. After a failure the grammar has
// undefined rules and must not be used.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constrain/json_grammar.h"
#include "constrain/json_schema.h"
#include "constrain/schema_reader.h"

namespace zinc {

class SchemaTranslator {
 public:
  using Expr = GrammarBuilder::Expr;
  using Rule = GrammarBuilder::Rule;

  SchemaTranslator(const json::value& schema, GrammarBuilder& builder, const JsonGrammar& json)
      : reader_(schema), builder_(builder), json_(json) {}

  Result<Rule> add_document();  // any value that satisfies the schema
  Result<Rule> add_object();    // an object that satisfies the schema
  Result<Rule> add_parameters(const ParameterSyntax& syntax);

 private:
  static constexpr int kNoLimit = GrammarBuilder::kNoLimit;
  // How a rule writes its values.
  enum class Writing : uint8_t {
    json,
    text,             // a string as raw text
    text_among_json,  // the same, but it cannot be taken for another JSON value
    json_among_text,  // values that are not strings
    parameters,       // an object as parameters with tags
  };
  struct RuleKey {
    std::vector<const json::value*> schemas;
    Writing writing;
    auto operator<=>(const RuleKey&) const = default;
  };
  struct PendingRule {
    Rule rule;
    Schemas schemas;
    std::vector<Rule> choices;  // rules it is a choice of
    Writing writing = Writing::json;
  };

  Result<Rule> translate(const Schemas& schemas, Writing writing);
  Result<Rule> find_or_add_rule(const Schemas& schemas, Writing writing = Writing::json);
  Status check_choices() const;
  Status add_alternatives(const SchemaConstraints& constraints, Rule rule, std::vector<Expr>& alternatives);
  void check_one_of(const SchemaConstraints::Choice& choice);
  void not_enforced(int32_t path, std::string_view why);
  std::optional<Error> contradiction_of(const SchemaConstraints& constraints) const;
  Result<Expr> all_types(const SchemaConstraints& constraints);
  Result<Expr> values(const SchemaConstraints& constraints);
  Result<std::vector<const json::value*>> allowed_values(const SchemaConstraints& constraints) const;
  Result<bool> allows(const SchemaConstraints& constraints, const json::value& value) const;
  Result<Expr> written_value(const SchemaConstraints& constraints, const json::value& value);
  bool may_be_empty() const;  // no value satisfies the schema in this way of writing
  uint8_t written_types() const;
  const RawStrings* raw_strings() const;  // nullptr: strings are written as in JSON
  Result<Expr> string(const SchemaConstraints& constraints);
  Expr unlimited_string(const RawStrings* raw);
  Result<Expr> number(const SchemaConstraints& constraints, bool is_integer);

  Result<Expr> array(const SchemaConstraints& constraints);
  bool is_closed_after(const SchemaConstraints& constraints, size_t n_items) const;
  Result<Rule> item_at(const SchemaConstraints& constraints, size_t index);
  Result<std::optional<Expr>> unique_items(const SchemaConstraints& constraints);

  struct Property {
    std::string_view name;
    Schemas schemas = {};
    bool is_required = false;
    bool is_forbidden = false;
  };
  // Members in a fixed order, some of which may be left out, then any number of others.
  struct Member {
    Expr expr;
    bool is_required = false;
  };
  struct ListSyntax {
    Expr open, after_member, separator, close;
  };
  Result<Expr> list(const std::vector<Member>& members, std::optional<Expr> other, CountLimits counts,
                    const ListSyntax& syntax);

  Result<Expr> object(const SchemaConstraints& constraints);
  Result<Expr> parameters(const SchemaConstraints& constraints);
  Result<std::vector<Property>> properties(const SchemaConstraints& constraints);
  Result<std::optional<SchemaConstraints>> name_constraints(const SchemaConstraints& constraints);
  Result<bool> allows_name(const SchemaConstraints& names, std::string_view name);
  std::optional<Schemas> other_schemas(const SchemaConstraints& constraints) const;  // nullopt: no other members
  Result<std::optional<Expr>> other_member(const SchemaConstraints& constraints, const std::vector<Property>& declared);
  Result<Expr> parameter_value(const Property& property);
  Expr parameter(Expr name, Expr value);

  SchemaReader reader_;
  GrammarBuilder& builder_;
  const JsonGrammar& json_;
  const ParameterSyntax* parameter_syntax_ = nullptr;
  Writing writing_ = Writing::json;  // of the rule being translated
  std::vector<PendingRule> pending_rules_;
  std::optional<Error> contradiction_;    // why the last alternative was dropped
  std::map<RuleKey, size_t> rule_index_;  // index in pending_rules_
  std::unordered_map<Rule, size_t> pending_index_;
  std::set<const json::value*> checked_one_ofs_;  // by their first option
  size_t n_overlap_steps_left_ = 200'000;         // milliseconds
};

}  // namespace zinc
