// The AST of a template: expressions with eval() and statements with exec(). Immutable once parsed; any number of
// renderings may walk it at the same time.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtin.h"
#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace zinc::jinja {

class Runtime;
using Symbol = uint32_t;  // index of a variable's name in Program::names

struct Expr {
  Pos pos;
  int depth = 1;
  virtual ~Expr() = default;
  virtual Value eval(Runtime& rt) const = 0;
};
using ExprPtr = std::unique_ptr<Expr>;

enum class Flow : uint8_t { next, break_loop, continue_loop };

struct Stmt {
  Pos pos;
  virtual ~Stmt() = default;
  virtual Flow exec(Runtime& rt) const = 0;
};
using Body = std::vector<std::unique_ptr<Stmt>>;

// A name or string literal of the template that is also used as a value: owned here, trusted.
struct OwnedText {
  std::string bytes;
  Text text;
  explicit OwnedText(std::string b) : bytes(std::move(b)), text{bytes, {}} {}
  OwnedText(const OwnedText&) = delete;
  OwnedText& operator=(const OwnedText&) = delete;
};
using TextPtr = std::unique_ptr<OwnedText>;

// ---- expressions

struct ConstantExpr : Expr {
  Value value;
  TextPtr text;  // set if the value is a string
  Value eval(Runtime&) const override { return value; }
};

struct NameExpr : Expr {
  Symbol symbol = 0;
  const Text* name = nullptr;  // in Program::names
  Value eval(Runtime& rt) const override;
};

struct ListExpr : Expr {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  Value eval(Runtime& rt) const override;
};

struct DictExpr : Expr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
  Value eval(Runtime& rt) const override;
};

struct AttributeExpr : Expr {
  ExprPtr object;
  TextPtr name;
  const Builtin* dict_method = nullptr;  // looked up at parse time
  const Builtin* text_method = nullptr;
  Value eval(Runtime& rt) const override;
};

struct ItemExpr : Expr {
  ExprPtr object, key;
  Value eval(Runtime& rt) const override;
};

struct SliceExpr : Expr {
  ExprPtr object, start, stop, step;  // null if omitted
  Value eval(Runtime& rt) const override;
};

// Stack buffer for the arguments of nearly every call.
using ArgBuffer = std::array<Value, 4>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<TextPtr, ExprPtr>> named;
  ExprPtr dyn_args, dyn_kwargs;  // *args and **kwargs
  // `first_named`: placed first; the `caller` of a call block. False: failed. `out` may point into `buffer`.
  bool eval(Runtime& rt, ArgBuffer& buffer, Args& out, const NamedValue* first_named = nullptr) const;
};

struct CallExpr : Expr {
  ExprPtr callee;
  CallArgs args;
  Value eval(Runtime& rt) const override { return call(rt, nullptr); }
  Value call(Runtime& rt, const NamedValue* caller) const;
};

struct FilterExpr : Expr {
  ExprPtr subject;
  std::string name;
  const Builtin* filter = nullptr;  // null: unknown, an error when evaluated
  CallArgs args;
  Value eval(Runtime& rt) const override;
};

struct TestExpr : Expr {
  ExprPtr subject;
  std::string name;
  const Builtin* test = nullptr;  // null: unknown
  CallArgs args;
  Value eval(Runtime& rt) const override;
};

// The captured output of a filter block or set block, as the input of its filters.
struct CapturedExpr : Expr {
  Value eval(Runtime& rt) const override;
};

struct UnaryExpr : Expr {
  Tok op = Tok::add;  // sub, add, or name for `not`
  ExprPtr operand;
  Value eval(Runtime& rt) const override;
};

struct BinaryExpr : Expr {
  Tok op = Tok::add;
  ExprPtr left, right;
  Value eval(Runtime& rt) const override;
};

struct LogicExpr : Expr {
  bool is_or = false;
  ExprPtr left, right;
  Value eval(Runtime& rt) const override;
};

enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct CompareExpr : Expr {
  ExprPtr first;
  std::vector<std::pair<Comparison, ExprPtr>> rest;
  Value eval(Runtime& rt) const override;
};

struct ConcatExpr : Expr {
  std::vector<ExprPtr> parts;
  Value eval(Runtime& rt) const override;
};

struct ConditionalExpr : Expr {
  ExprPtr test, then_expr, else_expr;  // else_expr: null if omitted
  Value eval(Runtime& rt) const override;
};

// ---- statements

// Assignment target: a variable, an attribute of a namespace, or a tuple of targets.
struct Target {
  Pos pos;
  Symbol symbol = 0;
  TextPtr attribute;  // set: symbol.attribute
  std::vector<Target> items;
  bool is_tuple = false;
};

struct DataStmt : Stmt {
  TextPtr text;
  Flow exec(Runtime& rt) const override;
};

struct PrintStmt : Stmt {
  std::vector<ExprPtr> values;
  Flow exec(Runtime& rt) const override;
};

struct IfStmt : Stmt {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body else_body;
  Flow exec(Runtime& rt) const override;
};

struct ForStmt : Stmt {
  Target target;
  ExprPtr iterable, condition;
  Body body, else_body;
  bool is_recursive = false;
  Flow exec(Runtime& rt) const override;
  Flow run(Runtime& rt, const Value& over, int depth0) const;
};

struct SetStmt : Stmt {
  Target target;
  ExprPtr value;
  Flow exec(Runtime& rt) const override;
};

struct SetBlockStmt : Stmt {
  Target target;
  ExprPtr filtered;  // null: no filters
  Body body;
  Flow exec(Runtime& rt) const override;
};

struct FilterBlockStmt : Stmt {
  ExprPtr filtered;
  Body body;
  Flow exec(Runtime& rt) const override;
};

struct Param {
  Symbol symbol = 0;
  TextPtr name;
  ExprPtr default_value;  // null: none
};

// Shared by macros and the body of a call block.
struct MacroNode {
  std::string name;
  std::vector<Param> params;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct MacroStmt : Stmt {
  Symbol symbol = 0;
  MacroNode macro;
  Flow exec(Runtime& rt) const override;
};

struct CallStmt : Stmt {
  std::unique_ptr<CallExpr> call;
  MacroNode caller;
  TextPtr caller_name;
  Flow exec(Runtime& rt) const override;
};

struct WithStmt : Stmt {
  std::vector<std::pair<Target, ExprPtr>> variables;
  Body body;
  Flow exec(Runtime& rt) const override;
};

// A body with its own scope: generation, block, autoescape.
struct ScopeStmt : Stmt {
  ExprPtr autoescape;  // the argument of autoescape, which must be false; null otherwise
  Body body;
  Flow exec(Runtime& rt) const override;
};

struct LoopControlStmt : Stmt {
  Flow flow = Flow::break_loop;
  Flow exec(Runtime&) const override { return flow; }
};

// include, import and extends: there is no template loader, so executing one is an error.
struct ImportStmt : Stmt {
  std::string tag;
  Flow exec(Runtime& rt) const override;
};

struct Program {
  Body body;
  std::vector<TextPtr> names;  // by Symbol
  Symbol loop = 0, caller = 0, varargs = 0, kwargs = 0;

  const Symbol* find(std::string_view name) const;  // nullptr: not used in the template
  std::vector<std::pair<std::string_view, Symbol>> sorted_names;
};

}  // namespace zinc::jinja
