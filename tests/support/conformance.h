// What every backend must compute: small graphs of one op each, with inputs and the numbers expected of them. The
// expectations are written apart from any kernel, in double precision and per token, so that the reference backend is
// checked by them like every other.
//
// A case family is a function that lists sources (name + how to make the case); conformance_test.cc runs all of them on
// all backends. Inputs enter through one hidden_in node, cut into parts; results leave as logits of all tokens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc::conformance {

using Numbers = std::vector<double>;

// What a token's row must be, and how large the terms were that made it: sums that cancel cannot be exact to less.
struct ExpectedRow {
  Numbers values;
  double magnitude;
  ExpectedRow(Numbers row, double terms = 0) : values(std::move(row)), magnitude(terms) {}
};

// Consecutive tokens of the sequence that owns `slot`, within one step.
struct TokenRun {
  int slot = 0;
  int32_t first_position = 0;
  int n_tokens = 1;
};

struct CaseStep {
  std::vector<TokenRun> runs;
  std::vector<TokenId> tokens;        // [T]
  std::vector<float> hidden;          // [T, hidden_dim]
  std::vector<int32_t> output_rows;   // tokens whose results are compared
  std::vector<ExpectedRow> expected;  // one row for each of them
};

struct Case {
  std::shared_ptr<WeightSet> weights = std::make_shared<WeightSet>();  // the graph points into it
  Graph graph;
  const Format* kv_format = &k_f32;
  std::vector<CaseStep> steps;
  double tolerance = 2e-6;  // relative to the largest number of the step, or the row's magnitude if that is larger
};

// One token as the expectation sees it; called in the order of steps and tokens, so it may keep a history per slot.
struct Token {
  int slot = 0;
  int32_t position = 0;
  TokenId id = 0;
  std::vector<Numbers> in;  // one per input
};
using Expect = std::function<ExpectedRow(const Token&)>;
using Draw = std::function<float(std::mt19937&)>;  // how an input's numbers are drawn

class CaseMaker {
 public:
  explicit CaseMaker(std::string_view name);  // the numbers follow from the name

  GraphBuilder& g() { return g_; }
  // All activations of the case, [T, shape] each, drawn evenly from -1 to 1. Called once, before the nodes.
  std::vector<Value> inputs(std::initializer_list<Shape> shapes);
  void draw(size_t input, Draw draw) { draws_[input] = std::move(draw); }
  // A weight of random numbers; formats that cannot be encoded take blocks from tests/data/quants.
  Value weight(const Shape& shape, const Format& format = k_f32);
  Value weight_of(const Shape& shape, const std::vector<float>& numbers);
  Numbers numbers(Value weight) const;  // decoded

  void kv_format(const Format& format) { case_.kv_format = &format; }
  void tolerance(double tolerance) { case_.tolerance = tolerance; }
  void has_rows() { has_rows_ = true; }                        // the case's own nodes pick the rows that are wanted
  void vocabulary(int n_tokens) { n_vocabulary_ = n_tokens; }  // token ids are drawn below it; default 1

  // REQUIRES: no error in the builder. Each step is a list of runs; `wanted` picks the rows compared (default: all).
  Case finish(Value out, std::vector<std::vector<TokenRun>> steps, const Expect& expect,
              const std::function<bool(int row)>& wanted = {});

 private:
  void add_step(std::vector<TokenRun> runs, const Expect& expect, const std::function<bool(int)>& wanted);

  std::mt19937 random_;
  Case case_;
  GraphBuilder g_;
  std::vector<int64_t> widths_;
  std::vector<Draw> draws_;
  std::map<int32_t, std::string> weight_names_;  // by value
  int n_vocabulary_ = 1;
  bool has_rows_ = false;
};

struct CaseSource {
  std::string name;  // "linear q4_k 512x5 T3"
  std::function<Case(std::string_view name)> make;
  friend void PrintTo(const CaseSource& source, std::ostream* out) { *out << source.name; }
};

std::vector<CaseSource> linear_cases();
std::vector<CaseSource> norm_rope_cases();
std::vector<CaseSource> attention_cases();
std::vector<CaseSource> elementwise_cases();
std::vector<CaseSource> moe_cases();
std::vector<CaseSource> recurrent_cases();
std::vector<CaseSource> fused_cases();

// The formats whose weights a case can make: encodable ones and those in tests/data/quants.
std::vector<const Format*> weight_formats();

// Runs the case; empty: every number is as expected, and every sampled token is the first largest of its logits.
std::string first_mismatch(const Case& c, Backend& backend);

}  // namespace zinc::conformance
