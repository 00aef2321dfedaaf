#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/limits.h"

namespace zinc::jinja {

Parser::Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  program_.loop = symbol_of("loop");
  program_.caller = symbol_of("caller");
  program_.varargs = symbol_of("varargs");
  program_.kwargs = symbol_of("kwargs");
}

Result<Program> Parser::run() {
  program_.body = parse_body({});
  if (error_) return *error_;
  for (const auto& [name, symbol] : symbols_) program_.sorted_names.emplace_back(program_.names[symbol]->bytes, symbol);
  return std::move(program_);
}

Parser::NestingGuard::NestingGuard(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    parser_.fail(parser_.current().pos, fmt::format("nested too deeply: more than {} levels", kMaxNesting));
  }
}

bool Parser::is_any_keyword(Keywords words) const {
  return std::any_of(words.begin(), words.end(), [this](std::string_view word) { return is_keyword(word); });
}

bool Parser::skip_if(Tok type) {
  if (!is(type)) return false;
  advance();
  return true;
}

bool Parser::skip_keyword(std::string_view word) {
  if (!is_keyword(word)) return false;
  advance();
  return true;
}

bool Parser::expect(Tok type) {
  if (skip_if(type)) return true;
  fail_unexpected(describe(type));
  return false;
}

bool Parser::expect_keyword(std::string_view word) {
  if (skip_keyword(word)) return true;
  fail_unexpected(word);
  return false;
}

std::string Parser::expect_name() {
  std::string name = is(Tok::name) ? current().text : std::string();
  expect(Tok::name);
  return name;
}

void Parser::fail(Pos pos, std::string_view message) {
  if (!error_) error_ = error_at(pos, message);
  at_ = tokens_.size() - 1;
}

void Parser::fail_unexpected(std::string_view expected) {
  if (is(Tok::eof)) return fail(current().pos, fmt::format("unexpected end of template, expected '{}'", expected));
  fail(current().pos, fmt::format("expected token '{}', got '{}'", expected, describe_current()));
}

ExprPtr Parser::fail_expr(Pos pos, std::string_view message) {
  fail(pos, message);
  return std::make_unique<ConstantExpr>();
}

std::string Parser::describe_current() const {
  return is(Tok::name) ? current().text : std::string(describe(current().type));
}

Symbol Parser::symbol_of(std::string_view name) {
  const auto found = symbols_.find(name);
  if (found != symbols_.end()) return found->second;
  const Symbol symbol = static_cast<Symbol>(program_.names.size());
  program_.names.push_back(own(std::string(name)));
  symbols_.emplace(name, symbol);
  return symbol;
}

const Symbol* Program::find(std::string_view name) const {
  const auto found = std::lower_bound(sorted_names.begin(), sorted_names.end(), name,
                                      [](const auto& row, std::string_view wanted) { return row.first < wanted; });
  return found != sorted_names.end() && found->first == name ? &found->second : nullptr;
}

Result<Program> parse(std::string_view source) {
  ZINC_TRY(tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace zinc::jinja
