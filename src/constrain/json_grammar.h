// Grammar rules for JSON values, added to a grammar under construction. Between JSON tokens they allow nothing, one
// space, or a line break and a bounded indentation: enough for common layouts, and a model cannot emit white space
// forever.
#pragma once

#include <span>
#include <string_view>

#include "constrain/grammar.h"

namespace zinc {

class JsonGrammar {
 public:
  using Expr = GrammarBuilder::Expr;
  using Rule = GrammarBuilder::Rule;

  explicit JsonGrammar(GrammarBuilder& builder);

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

  // Any string without escapes, except these names. A name that needs escapes cannot occur among them.
  Expr string_except(std::span<const std::string_view> names) const;

 private:
  Rule define(const char* name, Expr expr);
  Expr any_string_char();
  Expr any_object(Rule member);
  Expr any_array(Rule element);

  GrammarBuilder& builder_;
  Rule space_, colon_, string_char_, string_, number_, integer_, object_, array_, value_;
};

}  // namespace zinc
