// Tokens to Program, by the grammar of Python's jinja2 with its loopcontrols extension and the `generation` tag.
// The first error ends parsing: it is recorded and the cursor moves to the end.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace zinc::jinja {

Result<Program> parse(std::string_view source);  // REQUIRES: valid UTF-8

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens);
  Result<Program> run();

 private:
  enum class Conditional : bool { no, yes };  // is `a if b else c` allowed?
  using Keywords = std::initializer_list<std::string_view>;

  // Cursor and errors (parser.cc)
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Tok type) const { return current().type == type; }
  bool is_keyword(std::string_view word) const { return is(Tok::name) && current().text == word; }
  bool is_any_keyword(Keywords words) const;
  void advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool skip_if(Tok type);
  bool skip_keyword(std::string_view word);
  bool expect(Tok type);
  bool expect_keyword(std::string_view word);
  std::string expect_name();
  bool failed() const { return error_.has_value(); }
  void fail(Pos pos, std::string_view message);
  void fail_unexpected(std::string_view expected);
  ExprPtr fail_expr(Pos pos, std::string_view message);
  std::string describe_current() const;
  Symbol symbol_of(std::string_view name);
  static TextPtr own(std::string text) { return std::make_unique<OwnedText>(std::move(text)); }

  // Counts nesting for its lifetime; fails above kMaxNesting.
  class NestingGuard {
   public:
    explicit NestingGuard(Parser& parser);
    ~NestingGuard() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // Expressions (parse_expression.cc)
  template <class T>
  std::unique_ptr<T> make(Pos pos) const;
  ExprPtr deepen(std::unique_ptr<Expr> node, int child_depth);
  ExprPtr parse_expression(Conditional conditional = Conditional::yes);
  ExprPtr parse_logic(bool is_or);
  ExprPtr parse_not();
  ExprPtr parse_compare();
  std::optional<Comparison> take_comparison();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr binary(Tok op, Pos pos, ExprPtr left, ExprPtr right);
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr constant(Pos pos, Value value);
  ExprPtr parse_text();
  ExprPtr parse_parentheses();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_slice(ExprPtr object, Pos pos, ExprPtr start);
  ExprPtr parse_call(ExprPtr callee);
  CallArgs parse_call_args(int& depth);
  void parse_call_arg(CallArgs& args, int& depth);
  std::string parse_dotted_name();
  ExprPtr parse_filter(ExprPtr subject);
  ExprPtr parse_test(ExprPtr subject);
  // `a, b` is a tuple; a single expression stays one. `end_tag` also ends it.
  ExprPtr parse_tuple(Conditional conditional, std::string_view end_tag = {});

  // Statements (parse_statement.cc)
  Body parse_body(Keywords end_tags);
  Body parse_block_body(Keywords end_tags);
  void skip_end_tag() { advance(); }
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> parse_print();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_scope();
  std::unique_ptr<Stmt> parse_block();
  std::unique_ptr<Stmt> parse_loop_control();
  std::unique_ptr<Stmt> parse_import();
  std::unique_ptr<Stmt> fail_unknown_tag(const Token& tag);
  void parse_signature(MacroNode& macro);
  void parse_macro_body(MacroNode& macro, std::string_view end_tag);
  ExprPtr parse_block_filters();
  Target parse_target(bool with_attribute, std::string_view end_tag);
  Target parse_single_target(bool with_attribute);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::optional<Error> error_;
  int nesting_ = 0;
  int n_loops_ = 0;                    // enclosing loops within the innermost macro
  std::vector<MacroNode*> macros_;     // enclosing macros
  std::vector<std::string> end_tags_;  // expected end tags of the open blocks, for messages
  std::vector<std::string> open_tags_;
  Program program_;
  std::map<std::string, Symbol, std::less<>> symbols_;
};

}  // namespace zinc::jinja
