#include <algorithm>

#include "text/jinja/limits.h"
#include "text/jinja/parser.h"

namespace zinc::jinja {
namespace {

int depth_of(const ExprPtr& expr) { return expr ? expr->depth : 0; }

template <class... Exprs>
int deepest(const Exprs&... exprs) {
  return std::max({depth_of(exprs)...});
}

}  // namespace

template <class T>
std::unique_ptr<T> Parser::make(Pos pos) const {
  auto node = std::make_unique<T>();
  node->pos = pos;
  return node;
}

// Sets the depth of every inner node and limits it, so that the tree can be walked and destroyed recursively.
ExprPtr Parser::deepen(ExprPtr node, int child_depth) {
  node->depth = child_depth + 1;
  if (node->depth > kMaxExpressionDepth) {
    return fail_expr(node->pos, fmt::format("expression nested too deeply: more than {} levels", kMaxExpressionDepth));
  }
  return node;
}

ExprPtr Parser::parse_expression(Conditional conditional) {
  const NestingGuard nesting(*this);
  if (conditional == Conditional::no) return parse_logic(true);
  const Pos pos = current().pos;
  ExprPtr expr = parse_logic(true);
  while (skip_keyword("if")) {
    auto node = make<ConditionalExpr>(pos);
    node->test = parse_logic(true);
    if (skip_keyword("else")) node->else_expr = parse_expression();
    node->then_expr = std::move(expr);
    const int depth = deepest(node->test, node->then_expr, node->else_expr);
    expr = deepen(std::move(node), depth);
  }
  return expr;
}

// `or` binds weaker than `and`.
ExprPtr Parser::parse_logic(bool is_or) {
  const Pos pos = current().pos;
  ExprPtr left = is_or ? parse_logic(false) : parse_not();
  while (skip_keyword(is_or ? "or" : "and")) {
    auto node = make<LogicExpr>(pos);
    node->is_or = is_or;
    node->left = std::move(left);
    node->right = is_or ? parse_logic(false) : parse_not();
    const int depth = deepest(node->left, node->right);
    left = deepen(std::move(node), depth);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_keyword("not")) return parse_compare();
  const NestingGuard nesting(*this);
  auto node = make<UnaryExpr>(current().pos);
  advance();
  node->op = Tok::name;
  node->operand = parse_not();
  const int depth = deepest(node->operand);
  return deepen(std::move(node), depth);
}

std::optional<Comparison> Parser::take_comparison() {
  static constexpr std::pair<Tok, Comparison> kSigns[] = {{Tok::eq, Comparison::eq}, {Tok::ne, Comparison::ne},
                                                          {Tok::lt, Comparison::lt}, {Tok::lteq, Comparison::le},
                                                          {Tok::gt, Comparison::gt}, {Tok::gteq, Comparison::ge}};
  for (const auto& [type, comparison] : kSigns) {
    if (skip_if(type)) return comparison;
  }
  if (skip_keyword("in")) return Comparison::in;
  if (!is_keyword("not") || look().type != Tok::name || look().text != "in") return std::nullopt;
  advance();
  advance();
  return Comparison::not_in;
}

ExprPtr Parser::parse_compare() {
  const Pos pos = current().pos;
  ExprPtr first = parse_sum();
  std::optional<Comparison> comparison = take_comparison();
  if (!comparison) return first;
  auto node = make<CompareExpr>(pos);
  int depth = deepest(first);
  node->first = std::move(first);
  for (; comparison; comparison = take_comparison()) {
    node->rest.emplace_back(*comparison, parse_sum());
    depth = std::max(depth, depth_of(node->rest.back().second));
  }
  return deepen(std::move(node), depth);
}

ExprPtr Parser::binary(Tok op, Pos pos, ExprPtr left, ExprPtr right) {
  auto node = make<BinaryExpr>(pos);
  node->op = op;
  node->left = std::move(left);
  node->right = std::move(right);
  const int depth = deepest(node->left, node->right);
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is(Tok::add) || is(Tok::sub)) {
    const Tok op = current().type;
    const Pos pos = current().pos;
    advance();
    left = binary(op, pos, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const Pos pos = current().pos;
  ExprPtr first = parse_product();
  if (!is(Tok::tilde)) return first;
  auto node = make<ConcatExpr>(pos);
  int depth = deepest(first);
  node->parts.push_back(std::move(first));
  while (skip_if(Tok::tilde)) {
    node->parts.push_back(parse_product());
    depth = std::max(depth, depth_of(node->parts.back()));
  }
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (is(Tok::mul) || is(Tok::div) || is(Tok::floordiv) || is(Tok::mod)) {
    const Tok op = current().type;
    const Pos pos = current().pos;
    advance();
    left = binary(op, pos, std::move(left), parse_power());
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (is(Tok::pow)) {
    const Pos pos = current().pos;
    advance();
    left = binary(Tok::pow, pos, std::move(left), parse_unary());
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  const NestingGuard nesting(*this);
  ExprPtr node;
  if (is(Tok::sub) || is(Tok::add)) {
    auto sign = make<UnaryExpr>(current().pos);
    sign->op = current().type;
    advance();
    sign->operand = parse_unary(false);
    const int depth = deepest(sign->operand);
    node = deepen(std::move(sign), depth);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  switch (token.type) {
    case Tok::name:
      return parse_name();
    case Tok::text:
      return parse_text();
    case Tok::integer:
      advance();
      return constant(token.pos, Value(token.integer));
    case Tok::real:
      advance();
      return constant(token.pos, Value(token.real));
    case Tok::lparen:
      return parse_parentheses();
    case Tok::lbracket:
      return parse_list();
    case Tok::lbrace:
      return parse_dict();
    default:
      return fail_expr(token.pos, fmt::format("unexpected '{}'", describe_current()));
  }
}

ExprPtr Parser::constant(Pos pos, Value value) {
  auto node = make<ConstantExpr>(pos);
  node->value = value;
  return node;
}

ExprPtr Parser::parse_name() {
  const Token& token = current();
  advance();
  if (token.text == "true" || token.text == "True") return constant(token.pos, Value(true));
  if (token.text == "false" || token.text == "False") return constant(token.pos, Value(false));
  if (token.text == "none" || token.text == "None") return constant(token.pos, Value::none());
  auto node = make<NameExpr>(token.pos);
  node->symbol = symbol_of(token.text);
  node->name = &program_.names[node->symbol]->text;
  for (MacroNode* macro : macros_) {
    macro->uses_caller |= node->symbol == program_.caller;
    macro->uses_varargs |= node->symbol == program_.varargs;
    macro->uses_kwargs |= node->symbol == program_.kwargs;
  }
  return node;
}

ExprPtr Parser::parse_text() {
  auto node = make<ConstantExpr>(current().pos);
  std::string text;
  for (; is(Tok::text); advance()) text += current().text;  // 'a' 'b' is 'ab'
  node->text = own(std::move(text));
  node->value = Value(&node->text->text);
  return node;
}

ExprPtr Parser::parse_parentheses() {
  const Pos pos = current().pos;
  advance();
  ExprPtr node;
  if (is(Tok::rparen)) {
    auto empty = make<ListExpr>(pos);
    empty->is_tuple = true;
    node = std::move(empty);
  } else {
    node = parse_tuple(Conditional::yes);
  }
  expect(Tok::rparen);
  return node;
}

ExprPtr Parser::parse_tuple(Conditional conditional, std::string_view end_tag) {
  const Pos pos = current().pos;
  const auto at_end = [&] {
    return is(Tok::variable_end) || is(Tok::block_end) || is(Tok::rparen) || (!end_tag.empty() && is_keyword(end_tag));
  };
  if (at_end()) return fail_expr(pos, fmt::format("Expected an expression, got '{}'", describe_current()));
  ExprPtr first = parse_expression(conditional);
  if (!is(Tok::comma)) return first;
  auto node = make<ListExpr>(pos);
  node->is_tuple = true;
  int depth = deepest(first);
  node->items.push_back(std::move(first));
  while (skip_if(Tok::comma) && !at_end()) {
    node->items.push_back(parse_expression(conditional));
    depth = std::max(depth, depth_of(node->items.back()));
  }
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_list() {
  auto node = make<ListExpr>(current().pos);
  int depth = 0;
  advance();
  while (!failed() && !is(Tok::rbracket)) {
    node->items.push_back(parse_expression());
    depth = std::max(depth, depth_of(node->items.back()));
    if (!is(Tok::rbracket)) expect(Tok::comma);
  }
  expect(Tok::rbracket);
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_dict() {
  auto node = make<DictExpr>(current().pos);
  int depth = 0;
  advance();
  while (!failed() && !is(Tok::rbrace)) {
    ExprPtr key = parse_expression();
    expect(Tok::colon);
    ExprPtr value = parse_expression();
    depth = std::max({depth, depth_of(key), depth_of(value)});
    node->entries.emplace_back(std::move(key), std::move(value));
    if (!is(Tok::rbrace)) expect(Tok::comma);
  }
  expect(Tok::rbrace);
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  for (;;) {
    if (is(Tok::dot)) {
      node = parse_attribute(std::move(node));
    } else if (is(Tok::lbracket)) {
      node = parse_subscript(std::move(node));
    } else if (is(Tok::lparen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  for (;;) {
    if (is(Tok::pipe)) {
      advance();
      node = parse_filter(std::move(node));
    } else if (is_keyword("is")) {
      node = parse_test(std::move(node));
    } else if (is(Tok::lparen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr object) {
  const Pos pos = current().pos;
  advance();
  const Token& token = current();
  advance();
  const int depth = deepest(object);
  if (token.type == Tok::name) {
    auto node = make<AttributeExpr>(pos);
    node->object = std::move(object);
    node->name = own(token.text);
    node->dict_method = find_method(Kind::dict, token.text);
    node->text_method = find_method(Kind::text, token.text);
    return deepen(std::move(node), depth);
  }
  if (token.type != Tok::integer) return fail_expr(token.pos, "expected name or number");
  auto node = make<ItemExpr>(pos);
  node->object = std::move(object);
  node->key = constant(token.pos, Value(token.integer));
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const Pos pos = current().pos;
  advance();
  ExprPtr key = is(Tok::colon) ? nullptr : parse_expression();
  if (is(Tok::colon)) return parse_slice(std::move(object), pos, std::move(key));
  auto node = make<ItemExpr>(pos);
  if (is(Tok::comma)) {
    auto tuple = make<ListExpr>(pos);
    tuple->is_tuple = true;
    int depth = deepest(key);
    tuple->items.push_back(std::move(key));
    while (skip_if(Tok::comma)) {
      tuple->items.push_back(parse_expression());
      depth = std::max(depth, depth_of(tuple->items.back()));
    }
    key = deepen(std::move(tuple), depth);
  }
  expect(Tok::rbracket);
  node->object = std::move(object);
  node->key = std::move(key);
  const int depth = deepest(node->object, node->key);
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_slice(ExprPtr object, Pos pos, ExprPtr start) {
  auto node = make<SliceExpr>(pos);
  node->object = std::move(object);
  node->start = std::move(start);
  advance();
  if (!is(Tok::colon) && !is(Tok::rbracket)) node->stop = parse_expression();
  if (skip_if(Tok::colon) && !is(Tok::rbracket)) node->step = parse_expression();
  expect(Tok::rbracket);
  const int depth = deepest(node->object, node->start, node->stop, node->step);
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  auto node = make<CallExpr>(current().pos);
  int depth = deepest(callee);
  node->callee = std::move(callee);
  node->args = parse_call_args(depth);
  return deepen(std::move(node), depth);
}

CallArgs Parser::parse_call_args(int& depth) {
  CallArgs args;
  expect(Tok::lparen);
  while (!failed() && !is(Tok::rparen)) {
    parse_call_arg(args, depth);
    if (!is(Tok::rparen)) expect(Tok::comma);
  }
  expect(Tok::rparen);
  return args;
}

void Parser::parse_call_arg(CallArgs& args, int& depth) {
  const Pos pos = current().pos;
  const auto parse_into = [&](ExprPtr& target) {
    target = parse_expression();
    depth = std::max(depth, depth_of(target));
  };
  const bool has_more = args.dyn_args || args.dyn_kwargs;
  if (skip_if(Tok::mul)) {
    if (has_more) return fail(pos, "invalid syntax for function call expression");
    return parse_into(args.dyn_args);
  }
  if (skip_if(Tok::pow)) {
    if (args.dyn_kwargs) return fail(pos, "invalid syntax for function call expression");
    return parse_into(args.dyn_kwargs);
  }
  if (is(Tok::name) && look().type == Tok::assign) {
    if (args.dyn_kwargs) return fail(pos, "invalid syntax for function call expression");
    args.named.emplace_back(own(current().text), nullptr);
    advance();
    advance();
    return parse_into(args.named.back().second);
  }
  if (has_more || !args.named.empty()) return fail(pos, "invalid syntax for function call expression");
  args.positional.emplace_back();
  parse_into(args.positional.back());
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_if(Tok::dot)) {
    name += '.';
    name += expect_name();
  }
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr subject) {
  auto node = make<FilterExpr>(current().pos);
  node->name = parse_dotted_name();
  node->filter = find_filter(node->name);
  int depth = deepest(subject);
  node->subject = std::move(subject);
  if (is(Tok::lparen)) node->args = parse_call_args(depth);
  return deepen(std::move(node), depth);
}

ExprPtr Parser::parse_test(ExprPtr subject) {
  const Pos pos = current().pos;
  advance();
  const bool is_negated = skip_keyword("not");
  auto node = make<TestExpr>(current().pos);
  node->name = parse_dotted_name();
  node->test = find_test(node->name);
  int depth = deepest(subject);
  node->subject = std::move(subject);
  const bool has_operand =
      is(Tok::name) || is(Tok::text) || is(Tok::integer) || is(Tok::real) || is(Tok::lbracket) || is(Tok::lbrace);
  if (is(Tok::lparen)) {
    node->args = parse_call_args(depth);
  } else if (is_keyword("is")) {
    return fail_expr(current().pos, "You cannot chain multiple tests with is");
  } else if (has_operand && !is_any_keyword({"else", "or", "and"})) {
    node->args.positional.push_back(parse_postfix(parse_primary()));
    depth = std::max(depth, depth_of(node->args.positional.back()));
  }
  ExprPtr test = deepen(std::move(node), depth);
  if (!is_negated) return test;
  auto negation = make<UnaryExpr>(pos);
  negation->op = Tok::name;
  negation->operand = std::move(test);
  const int test_depth = deepest(negation->operand);
  return deepen(std::move(negation), test_depth);
}

}  // namespace zinc::jinja
