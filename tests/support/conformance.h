// Conformance cases: small graphs of one op each, with inputs and expected results. The expected results are computed
// independently of any kernel, in double precision and per token, so that the reference backend is checked like every
// other.
//
// A case family is a function that lists sources (a name and a factory); conformance_test.cc runs all of them on all
// backends. Inputs enter through one hidden_in node, sliced into parts; results are returned as logits of all tokens.
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

using Doubles = std::vector<double>;

// The expected row of a token, and the magnitude of its terms: it limits the accuracy of sums that cancel.
struct ExpectedRow {
  Doubles values;
  double magnitude;
  ExpectedRow(Doubles row, double terms = 0) : values(std::move(row)), magnitude(terms) {}
};

// Consecutive tokens of the sequence in `slot`, within one step.
struct TokenChunk {
  int slot = 0;
  int32_t first_position = 0;
  int n_tokens = 1;
  int rope_scaling = 0;
};

struct CaseStep {
  std::vector<TokenChunk> chunks;
  std::vector<TokenId> tokens;        // [T]
  std::vector<float> hidden;          // [T, hidden_dim]
  std::vector<int32_t> output_rows;   // rows that are compared
  std::vector<ExpectedRow> expected;  // one per output row
};

struct Case {
  std::shared_ptr<WeightSet> weights = std::make_shared<WeightSet>();  // owns the memory of the graph's weights
  Graph graph;
  const Format* kv_format = &k_f32;
  std::vector<CaseStep> steps;
  double tolerance = 2e-6;  // relative to the largest element of the step, or the row's magnitude if larger
};

// A token, as passed to Expect, which is called in the order of steps and tokens: it may keep a history per slot.
struct Token {
  int slot = 0;
  int32_t position = 0;
  int rope_scaling = 0;
  TokenId id = 0;
  std::vector<Doubles> in;  // one per input
};
using Expect = std::function<ExpectedRow(const Token&)>;
using Generator = std::function<float(std::mt19937&)>;  // generates the elements of an input

class CaseBuilder {
 public:
  explicit CaseBuilder(std::string_view name);  // the name is the random seed

  GraphBuilder& g() { return g_; }
  // All activations of the case, [T, shape] each, uniform in [-1, 1]. Called once, before the nodes are built.
  std::vector<Value> inputs(std::initializer_list<Shape> shapes);
  void set_generator(size_t input, Generator generator) { generators_[input] = std::move(generator); }
  // A random weight; formats without an encoder use blocks from tests/data/quants.
  Value weight(const Shape& shape, const Format& format = k_f32);
  Value weight_of(const Shape& shape, const std::vector<float>& values);
  Doubles dequantized(Value weight) const;

  void kv_format(const Format& format) { case_.kv_format = &format; }
  void tolerance(double tolerance) { case_.tolerance = tolerance; }
  void has_rows() { has_rows_ = true; }                        // the case itself has a rows op
  void vocabulary(int n_tokens) { n_vocabulary_ = n_tokens; }  // random token ids are below it; default 1

  // REQUIRES: no error in the builder. Each step is a list of chunks; `is_output` selects the rows that are compared
  // (default: all).
  Case finish(Value out, std::vector<std::vector<TokenChunk>> steps, const Expect& expect,
              const std::function<bool(int row)>& is_output = {});

 private:
  void add_step(std::vector<TokenChunk> chunks, const Expect& expect, const std::function<bool(int)>& is_output);

  std::mt19937 random_;
  Case case_;
  GraphBuilder g_;
  std::vector<int64_t> widths_;
  std::vector<Generator> generators_;
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

// The formats a case can use: those with an encoder and those in tests/data/quants.
std::vector<const Format*> weight_formats();

// Runs the case. Empty: all elements are as expected, and every sampled token is the first maximum of its logits.
std::string first_mismatch(const Case& c, Backend& backend);

}  // namespace zinc::conformance
