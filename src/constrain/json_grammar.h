// Grammar rules for JSON values, added to a grammar under construction. Between JSON tokens they allow nothing, one
// space, or a line break and a bounded indentation: enough for common layouts, and a model cannot emit white space
// forever.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "constrain/grammar.h"

namespace zinc {

// Strings without escapes between two marks, as some models write them in tool calls.
struct RawStrings {
  std::string quote = {};          // as a grammar reads it, so with kControlTokenByte for control tokens; may be empty
  std::string_view excluded = {};  // text that would end the string early
};

class JsonGrammar {
 public:
  using Expr = GrammarBuilder::Expr;
  using Rule = GrammarBuilder::Rule;

  explicit JsonGrammar(GrammarBuilder& builder) : JsonGrammar(builder, std::nullopt) {}
  // With raw strings, names of members are identifiers without quotes, and there is no white space.
  JsonGrammar(GrammarBuilder& builder, std::optional<RawStrings> raw_strings);

  const std::optional<RawStrings>& raw_strings() const { return raw_strings_; }
  Expr space() const { return builder_.rule(space_); }
  Expr colon() const { return builder_.rule(colon_); }  // with the space around it
  Expr string() const { return builder_.rule(string_); }
  Expr string_char() const { return builder_.rule(string_char_); }
  Expr quoted(Expr inner) const { return builder_.sequence({builder_.text("\""), inner, builder_.text("\"")}); }
  Expr number() const { return builder_.rule(number_); }
  Expr integer() const { return builder_.rule(integer_); }
  Expr object() const { return builder_.rule(object_); }
  Expr array() const { return builder_.rule(array_); }
  Rule value() const { return value_; }  // any

  Expr name(std::string_view name) const;  // of a member
  // Any name without escapes, except these. A name that needs escapes cannot occur among them.
  Expr name_except(std::span<const std::string_view> names) const;

 private:
  Rule define(const char* name, Expr expr);
  Expr any_string_char();
  Expr any_string();
  Expr any_object(Rule member);
  Expr any_array(Rule element);

  GrammarBuilder& builder_;
  std::optional<RawStrings> raw_strings_;
  Rule space_, colon_, string_char_, string_, number_, integer_, object_, array_, value_;
};

// A string between quotes that does not contain the excluded text.
GrammarBuilder::Expr raw_string(GrammarBuilder& builder, const RawStrings& syntax);
// An identifier of a member or parameter without quotes, except these names.
GrammarBuilder::Expr identifier_except(GrammarBuilder& builder, std::span<const std::string_view> names);
bool is_identifier(std::string_view name);

}  // namespace zinc
