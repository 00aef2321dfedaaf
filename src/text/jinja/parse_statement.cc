#include <algorithm>
#include <set>

#include "text/jinja/limits.h"
#include "text/jinja/parser.h"

namespace zinc::jinja {
namespace {

std::string quoted_list(std::initializer_list<std::string_view> words) {
  std::string list;
  for (const std::string_view word : words) list += fmt::format("{}'{}'", list.empty() ? "" : " or ", word);
  return list;
}

}  // namespace

// Parses statements up to one of `end_tags`, where the cursor stops; up to the end if there are none.
Body Parser::parse_body(Keywords end_tags) {
  Body body;
  while (!is(Tok::eof)) {
    if (is(Tok::data)) {
      auto data = std::make_unique<DataStmt>();
      data->pos = current().pos;
      data->text = own(current().text);
      advance();
      body.push_back(std::move(data));
    } else if (is(Tok::variable_begin)) {
      auto print = std::make_unique<PrintStmt>();
      print->pos = current().pos;
      advance();
      print->values.push_back(parse_tuple(Conditional::yes));
      expect(Tok::variable_end);
      body.push_back(std::move(print));
    } else {
      expect(Tok::block_begin);
      if (is_any_keyword(end_tags)) return body;
      body.push_back(parse_statement());
      expect(Tok::block_end);
    }
  }
  return body;
}

// The rest of an opening tag, then its body; the cursor stops at the end tag.
Body Parser::parse_block_body(Keywords end_tags) {
  skip_if(Tok::colon);
  if (!expect(Tok::block_end)) return {};
  const std::string wanted = quoted_list(end_tags);
  end_tags_.push_back(wanted);
  Body body = parse_body(end_tags);
  end_tags_.pop_back();
  if (is(Tok::eof) && !failed()) {
    fail(current().pos, fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}. "
                                    "The innermost block that needs to be closed is '{}'.",
                                    wanted, open_tags_.empty() ? "" : open_tags_.back()));
  }
  return body;
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  using Parse = std::unique_ptr<Stmt> (Parser::*)();
  static const std::map<std::string_view, Parse> kTags = {
      {"print", &Parser::parse_print},
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"autoescape", &Parser::parse_scope},
      {"generation", &Parser::parse_scope},
      {"block", &Parser::parse_block},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
      {"include", &Parser::parse_import},
      {"import", &Parser::parse_import},
      {"from", &Parser::parse_import},
      {"extends", &Parser::parse_import},
  };
  const NestingGuard nesting(*this);
  const Token& tag = current();
  if (tag.type != Tok::name) {
    fail(tag.pos, "tag name expected");
    return std::make_unique<LoopControlStmt>();
  }
  const auto row = kTags.find(tag.text);
  if (row == kTags.end()) return fail_unknown_tag(tag);
  open_tags_.push_back(tag.text);
  std::unique_ptr<Stmt> statement = (this->*row->second)();
  statement->pos = tag.pos;
  open_tags_.pop_back();
  return statement;
}

std::unique_ptr<Stmt> Parser::fail_unknown_tag(const Token& tag) {
  std::string message = fmt::format("Encountered unknown tag '{}'.", tag.text);
  if (!end_tags_.empty()) {
    message += fmt::format(" Jinja was looking for the following tags: {}.", end_tags_.back());
  }
  if (!open_tags_.empty()) {
    message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
  }
  fail(tag.pos, message);
  return std::make_unique<LoopControlStmt>();
}

std::unique_ptr<Stmt> Parser::parse_print() {
  auto node = std::make_unique<PrintStmt>();
  advance();
  while (!failed() && !is(Tok::block_end)) {
    node->values.push_back(parse_expression());
    if (!is(Tok::block_end)) expect(Tok::comma);
  }
  return node;
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto node = std::make_unique<IfStmt>();
  do {
    advance();  // over `if` or `elif`
    ExprPtr test = parse_tuple(Conditional::no);
    Body body = parse_block_body({"elif", "else", "endif"});
    node->branches.emplace_back(std::move(test), std::move(body));
  } while (!failed() && is_keyword("elif"));
  if (skip_keyword("else")) node->else_body = parse_block_body({"endif"});
  skip_end_tag();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto node = std::make_unique<ForStmt>();
  advance();
  node->target = parse_target(false, "in");
  expect_keyword("in");
  node->iterable = parse_tuple(Conditional::no, "recursive");
  if (skip_keyword("if")) node->condition = parse_expression();
  node->is_recursive = skip_keyword("recursive");
  ++n_loops_;
  node->body = parse_block_body({"endfor", "else"});
  --n_loops_;
  if (skip_keyword("else")) node->else_body = parse_block_body({"endfor"});
  skip_end_tag();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  advance();
  Target target = parse_target(true, {});
  if (skip_if(Tok::assign)) {
    auto node = std::make_unique<SetStmt>();
    node->target = std::move(target);
    node->value = parse_tuple(Conditional::yes);
    return node;
  }
  auto node = std::make_unique<SetBlockStmt>();
  node->target = std::move(target);
  if (skip_if(Tok::pipe)) node->filtered = parse_block_filters();
  node->body = parse_block_body({"endset"});
  skip_end_tag();
  return node;
}

// `upper|trim` of a block: filters of the block's output. The cursor is at the first name.
ExprPtr Parser::parse_block_filters() {
  ExprPtr node = std::make_unique<CapturedExpr>();
  do {
    node = parse_filter(std::move(node));
  } while (skip_if(Tok::pipe));
  return node;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto node = std::make_unique<FilterBlockStmt>();
  advance();
  node->filtered = parse_block_filters();
  node->body = parse_block_body({"endfilter"});
  skip_end_tag();
  return node;
}

void Parser::parse_signature(MacroNode& macro) {
  std::set<Symbol> seen;
  expect(Tok::lparen);
  while (!failed() && !is(Tok::rparen)) {
    const Pos pos = current().pos;
    Param param;
    std::string name = expect_name();
    param.symbol = symbol_of(name);
    if (!seen.insert(param.symbol).second) fail(pos, fmt::format("duplicate argument '{}'", name));
    if (skip_if(Tok::assign)) {
      param.default_value = parse_expression();
    } else if (!macro.params.empty() && macro.params.back().default_value) {
      fail(pos, "non-default argument follows default argument");
    }
    param.name = own(std::move(name));
    macro.params.push_back(std::move(param));
    if (!is(Tok::rparen)) expect(Tok::comma);
  }
  expect(Tok::rparen);
}

void Parser::parse_macro_body(MacroNode& macro, std::string_view end_tag) {
  const int n_loops_outside = std::exchange(n_loops_, 0);
  macros_.push_back(&macro);
  macro.body = parse_block_body({end_tag});
  macros_.pop_back();
  n_loops_ = n_loops_outside;
  skip_end_tag();
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto node = std::make_unique<MacroStmt>();
  advance();
  node->macro.name = expect_name();
  node->symbol = symbol_of(node->macro.name);
  parse_signature(node->macro);
  parse_macro_body(node->macro, "endmacro");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto node = std::make_unique<CallStmt>();
  advance();
  if (is(Tok::lparen)) parse_signature(node->caller);
  const Pos pos = current().pos;
  ExprPtr call = parse_expression();
  if (dynamic_cast<CallExpr*>(call.get()) == nullptr) {
    fail(pos, "expected call");
    return node;
  }
  node->call.reset(static_cast<CallExpr*>(call.release()));
  node->caller.name = "caller";
  node->caller_name = own("caller");
  parse_macro_body(node->caller, "endcall");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto node = std::make_unique<WithStmt>();
  advance();
  while (!failed() && !is(Tok::block_end)) {
    if (!node->variables.empty()) expect(Tok::comma);
    Target target = parse_target(false, {});
    expect(Tok::assign);
    node->variables.emplace_back(std::move(target), parse_expression());
  }
  node->body = parse_block_body({"endwith"});
  skip_end_tag();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_scope() {
  auto node = std::make_unique<ScopeStmt>();
  const bool is_generation = is_keyword("generation");
  advance();
  if (is_generation) {
    MacroNode body;  // jinja2 runs it as the body of a call, so break cannot leave an outer loop
    parse_macro_body(body, "endgeneration");
    node->body = std::move(body.body);
    return node;
  }
  node->autoescape = parse_expression();
  node->body = parse_block_body({"endautoescape"});
  skip_end_tag();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_block() {
  auto node = std::make_unique<ScopeStmt>();
  advance();
  const std::string name = expect_name();
  skip_keyword("scoped");
  skip_keyword("required");
  MacroNode body;
  parse_macro_body(body, "endblock");
  node->body = std::move(body.body);
  skip_keyword(name);
  return node;
}

std::unique_ptr<Stmt> Parser::parse_loop_control() {
  auto node = std::make_unique<LoopControlStmt>();
  const bool is_break = is_keyword("break");
  if (n_loops_ == 0) fail(current().pos, fmt::format("'{}' outside loop", current().text));
  node->flow = is_break ? Flow::break_loop : Flow::continue_loop;
  advance();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_import() {
  auto node = std::make_unique<ImportStmt>();
  node->tag = current().text;
  while (!is(Tok::block_end) && !is(Tok::eof)) advance();
  return node;
}

Target Parser::parse_single_target(bool with_attribute) {
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  Target target;
  target.pos = current().pos;
  if (skip_if(Tok::lparen)) {
    target = parse_target(with_attribute, {});
    expect(Tok::rparen);
    return target;
  }
  if (!is(Tok::name) && !is(Tok::eof)) {
    fail(target.pos, fmt::format("can't assign to '{}'", describe_current()));
    return target;
  }
  const std::string name = expect_name();
  if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
    fail(target.pos, fmt::format("can't assign to '{}'", name));
  }
  target.symbol = symbol_of(name);
  if (with_attribute && skip_if(Tok::dot)) target.attribute = own(expect_name());
  return target;
}

Target Parser::parse_target(bool with_attribute, std::string_view end_tag) {
  const NestingGuard nesting(*this);
  Target first = parse_single_target(with_attribute);
  if (failed() || !is(Tok::comma)) return first;
  Target tuple;
  tuple.pos = first.pos;
  tuple.is_tuple = true;
  tuple.items.push_back(std::move(first));
  while (!failed() && skip_if(Tok::comma)) {
    const bool at_end = is(Tok::assign) || is(Tok::rparen) || (!end_tag.empty() && is_keyword(end_tag));
    if (at_end) break;
    tuple.items.push_back(parse_single_target(with_attribute));
  }
  return tuple;
}

}  // namespace zinc::jinja
