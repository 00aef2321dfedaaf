// The reference kernels against values computed by hand. The conformance cases cover shapes and formats; these tests
// fix the meaning of each op where a formula is ambiguous.
#include "backend/reference/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/support/conformance.h"

namespace zinc::reference {
namespace {

using conformance::CaseBuilder;
using conformance::Doubles;
using conformance::Token;
using conformance::TokenChunk;

// Generates `values` in order, cyclically.
conformance::Generator in_order(std::vector<float> values) {
  return
      [values = std::move(values), next = size_t{0}](std::mt19937&) mutable { return values[next++ % values.size()]; };
}

// Expects the rows in order.
conformance::Expect rows(std::vector<Doubles> expected) {
  return [expected = std::move(expected), next = std::make_shared<size_t>(0)](const Token&) {
    return expected.at((*next)++);
  };
}

std::string mismatch(const conformance::Case& c) {
  const std::unique_ptr<Backend> backend = std::move(find_backend("reference").value()->open(1).value());
  return conformance::first_mismatch(c, *backend);
}

TEST(ReferenceNorm, rms_divides_by_the_root_of_the_mean_square) {
  CaseBuilder m("rms");
  const Value x = m.inputs({{2}})[0];
  m.set_generator(0, in_order({1, 7}));  // mean square 25
  const Value y = m.g().rms_norm(x, m.weight_of({2}, {10, 100}), 0);
  EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{}}}, rows({{2, 140}}))), "");
}

TEST(ReferenceNorm, rms_adds_epsilon_under_the_root) {
  CaseBuilder m("rms");
  const Value x = m.inputs({{1}})[0];
  m.set_generator(0, in_order({3}));
  EXPECT_EQ(mismatch(m.finish(m.g().rms_norm(x, {}, 16), {{TokenChunk{}}}, rows({{0.6}}))), "");
}

TEST(ReferenceNorm, l2_divides_by_the_length_but_never_by_less_than_epsilon) {
  CaseBuilder m("l2");
  const Value x = m.inputs({{2, 2}})[0];
  m.set_generator(0, in_order({3, 4, 0.3f, 0.4f}));
  const Value y = m.g().l2_norm(x, 2);
  EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{}}}, rows({{0.6, 0.8, 0.15, 0.2}}))), "");
}

// At position 1 with base 1 every pair is rotated by one radian.
TEST(ReferenceRope, pairs_are_adjacent_or_half_a_head_apart) {
  const double c = std::cos(1.0), s = std::sin(1.0);
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    CaseBuilder m("rope");
    const Value x = m.inputs({{1, 4}})[0];
    m.set_generator(0, in_order({1, 0, 0, 0}));
    const Value y = m.g().rope(x, {.pairs = pairs, .n_dims = 4, .theta = 1});
    const Doubles expected = pairs == RopePairs::adjacent ? Doubles{c, s, 0, 0} : Doubles{c, 0, s, 0};
    EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{0, 1, 1}}}, rows({expected}))), "");
  }
}

// The halves are those of the rotated dimensions, not of the head; the rest of the head is copied.
TEST(ReferenceRope, dimensions_beyond_the_rotated_ones_are_unchanged) {
  CaseBuilder m("rope");
  const Value x = m.inputs({{1, 4}})[0];
  m.set_generator(0, in_order({1, 0, 5, 6}));
  const Value y = m.g().rope(x, {.pairs = RopePairs::halves, .n_dims = 2, .theta = 1, .amplitude = 2});
  EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{0, 1, 1}}}, rows({{2 * std::cos(1.0), 2 * std::sin(1.0), 5, 6}}))), "");
}

// Equal scores: each position weighs the same, so the result is a mean of the visible values.
conformance::Case mean_of_values(int64_t window, bool sinks) {
  CaseBuilder m("mean");
  const std::vector<Value> in = m.inputs({{1, 1}, {1, 1}, {1, 1}});
  m.set_generator(0, in_order({0}));
  m.set_generator(2, in_order({1, 10, 100, 1000}));
  const Value sink = sinks ? m.weight_of({1}, {0}) : Value{};
  const Value y = m.g().attention({in[0], in[1], in[2], sink}, {.window = window});
  const auto expect = [=, values = std::make_shared<Doubles>()](const Token& token) {
    values->push_back(token.in[2][0]);
    const size_t n = window > 0 ? std::min(values->size(), static_cast<size_t>(window)) : values->size();
    double sum = 0;
    for (size_t i = values->size() - n; i < values->size(); ++i) sum += (*values)[i];
    return Doubles{sum / static_cast<double>(n + (sinks ? 1 : 0))};
  };
  return m.finish(y, {{TokenChunk{0, 0, 3}}, {TokenChunk{0, 3, 1}}}, expect);
}

TEST(ReferenceAttention, attends_to_itself_and_all_earlier_positions) {
  EXPECT_EQ(mismatch(mean_of_values(0, false)), "");
}
TEST(ReferenceAttention, a_window_counts_the_token_itself) { EXPECT_EQ(mismatch(mean_of_values(2, false)), ""); }
TEST(ReferenceAttention, a_sink_of_zero_acts_like_one_more_position_with_value_zero) {
  EXPECT_EQ(mismatch(mean_of_values(0, true)), "");
}

TEST(ReferenceAttention, adjacent_query_heads_share_a_kv_head) {
  CaseBuilder m("groups");
  const std::vector<Value> in = m.inputs({{4, 1}, {2, 1}, {2, 1}});
  m.set_generator(2, in_order({7, 9}));
  const Value y = m.g().attention({in[0], in[1], in[2]}, {});
  EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{}}}, rows({{7, 7, 9, 9}}))), "");
}

TEST(ReferenceGatedAct, swiglu_oai_clamps_the_gate_from_above_only_and_the_input_on_both_sides) {
  CaseBuilder m("oai");
  const std::vector<Value> in = m.inputs({{4}, {4}});
  m.set_generator(0, in_order({9, -9, 7, 1}));
  m.set_generator(1, in_order({9, 1, -9, 0}));
  const auto silu = [](double g) { return g / (1 + std::exp(-1.702 * g)); };
  const Value y = m.g().gated_act(Act::swiglu_oai, in[0], in[1]);
  EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{}}}, rows({{silu(7) * 8, silu(-9) * 2, silu(7) * -6, silu(1)}}))), "");
}

// Tanh approximation: gelu(1) = 0.8411920; exact: 0.8413447.
TEST(ReferenceGatedAct, gelu_is_the_tanh_approximation) {
  CaseBuilder m("gelu");
  const std::vector<Value> in = m.inputs({{1}, {1}});
  m.set_generator(0, in_order({1}));
  m.set_generator(1, in_order({1}));
  EXPECT_EQ(mismatch(m.finish(m.g().gated_act(Act::gelu, in[0], in[1]), {{TokenChunk{}}}, rows({{0.84119199}}))), "");
}

TEST(ReferenceShortConv, the_last_tap_multiplies_the_newest_input) {
  CaseBuilder m("conv");
  const Value x = m.inputs({{1}})[0];
  m.set_generator(0, in_order({1, 0, 0, 0}));
  const Value y = m.g().short_conv(x, m.weight_of({1, 3}, {100, 10, 1}), {});
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  // the 1 moves from the newest tap to the oldest, across two step boundaries
  const std::vector<std::vector<TokenChunk>> steps = {
      {TokenChunk{0, 0, 1}}, {TokenChunk{0, 1, 2}}, {TokenChunk{0, 3, 1}}};
  EXPECT_EQ(mismatch(m.finish(y, steps, rows({{silu(1)}, {silu(10)}, {silu(100)}, {0}}))), "");
}

// One head, unit keys, no decay, beta 1: the state returns the last value written under a key.
TEST(ReferenceDeltaNet, a_key_recalls_its_last_value) {
  CaseBuilder m("delta");
  const std::vector<Value> in = m.inputs({{1, 2}, {1, 2}, {1, 1}, {1}, {1}});
  m.set_generator(0, in_order({1, 0, 1, 0, 0, 1, 1, 0}));  // queried: a a b a
  m.set_generator(1, in_order({1, 0, 0, 1, 0, 1, 1, 0}));  // written: a b b a
  m.set_generator(2, in_order({3, 5, 8, 13}));
  m.set_generator(3, in_order({-100}));  // softplus 0: no decay
  m.set_generator(4, in_order({100}));   // beta 1
  const Value zero = m.weight_of({1}, {0}), a = m.weight_of({1}, {-1});
  const Value y = m.g().delta_net({in[0], in[1], in[2], in[3], in[4], zero, a}, {});
  const std::vector<std::vector<TokenChunk>> steps = {{TokenChunk{0, 0, 2}}, {TokenChunk{0, 2, 2}}};
  EXPECT_EQ(mismatch(m.finish(y, steps, rows({{3}, {3}, {8}, {13}}))), "");
}

TEST(ReferenceDeltaNet, the_state_decays_before_it_is_read) {
  CaseBuilder m("decay");
  const std::vector<Value> in = m.inputs({{1, 1}, {1, 1}, {1, 1}, {1}, {1}});
  m.set_generator(0, in_order({1}));
  m.set_generator(1, in_order({1, 0}));  // the second token writes nothing
  m.set_generator(2, in_order({4}));
  m.set_generator(3, in_order({0}));
  m.set_generator(4, in_order({100}));
  const Value zero = m.weight_of({1}, {0}), a = m.weight_of({1}, {-1});  // g = -softplus(0) = -ln 2: half remains
  const Value y = m.g().delta_net({in[0], in[1], in[2], in[3], in[4], zero, a}, {});
  EXPECT_EQ(mismatch(m.finish(y, {{TokenChunk{0, 0, 2}}}, rows({{4}, {2}}))), "");
}

TEST(ReferenceDot, agrees_with_a_plain_sum_for_every_length) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<float> a(n), b(n);
    double expected = 0;
    for (size_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(i % 7) - 3;
      b[i] = static_cast<float>(i % 5) - 1;
      expected += double{a[i]} * b[i];
    }
    EXPECT_EQ(dot(a, b), expected) << n;  // small integers: exact in any order
  }
}

}  // namespace
}  // namespace zinc::reference
