// The reference kernels against numbers worked out by hand. The conformance cases cover shapes and formats; these fix
// what each op means where a formula could be read two ways.
#include "backend/reference/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/support/conformance.h"

namespace zinc::reference {
namespace {

using conformance::CaseMaker;
using conformance::Numbers;
using conformance::Token;
using conformance::TokenRun;

// Draws `numbers` one after the other, again from the front at the end.
conformance::Draw in_order(std::vector<float> numbers) {
  return [numbers = std::move(numbers), next = size_t{0}](std::mt19937&) mutable {
    return numbers[next++ % numbers.size()];
  };
}

// Expects the rows one after the other.
conformance::Expect rows(std::vector<Numbers> expected) {
  return [expected = std::move(expected), next = std::make_shared<size_t>(0)](const Token&) {
    return expected.at((*next)++);
  };
}

std::string mismatch(const conformance::Case& c) {
  const std::unique_ptr<Backend> backend = std::move(find_backend("reference").value()->open(1).value());
  return conformance::first_mismatch(c, *backend);
}

TEST(ReferenceNorm, rms_divides_by_the_root_of_the_mean_square) {
  CaseMaker m("rms");
  const Value x = m.inputs({{2}})[0];
  m.draw(0, in_order({1, 7}));  // mean square 25
  const Value y = m.g().rms_norm(x, m.weight_of({2}, {10, 100}), 0);
  EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{}}}, rows({{2, 140}}))), "");
}

TEST(ReferenceNorm, rms_adds_epsilon_under_the_root) {
  CaseMaker m("rms");
  const Value x = m.inputs({{1}})[0];
  m.draw(0, in_order({3}));
  EXPECT_EQ(mismatch(m.finish(m.g().rms_norm(x, {}, 16), {{TokenRun{}}}, rows({{0.6}}))), "");
}

TEST(ReferenceNorm, l2_divides_by_the_length_but_never_by_less_than_epsilon) {
  CaseMaker m("l2");
  const Value x = m.inputs({{2, 2}})[0];
  m.draw(0, in_order({3, 4, 0.3f, 0.4f}));
  const Value y = m.g().l2_norm(x, 2);
  EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{}}}, rows({{0.6, 0.8, 0.15, 0.2}}))), "");
}

// At position 1 with base 1 every pair turns by one radian.
TEST(ReferenceRope, pairs_are_neighbours_or_lie_half_a_head_apart) {
  const double c = std::cos(1.0), s = std::sin(1.0);
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    CaseMaker m("rope");
    const Value x = m.inputs({{1, 4}})[0];
    m.draw(0, in_order({1, 0, 0, 0}));
    const Value y = m.g().rope(x, {.pairs = pairs, .n_dims = 4, .theta = 1});
    const Numbers expected = pairs == RopePairs::adjacent ? Numbers{c, s, 0, 0} : Numbers{c, 0, s, 0};
    EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{0, 1, 1}}}, rows({expected}))), "");
  }
}

// Halves are halves of what is rotated, not of the head; the rest of the head passes through.
TEST(ReferenceRope, numbers_beyond_the_rotated_ones_pass_unchanged) {
  CaseMaker m("rope");
  const Value x = m.inputs({{1, 4}})[0];
  m.draw(0, in_order({1, 0, 5, 6}));
  const Value y = m.g().rope(x, {.pairs = RopePairs::halves, .n_dims = 2, .theta = 1, .amplitude = 2});
  EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{0, 1, 1}}}, rows({{2 * std::cos(1.0), 2 * std::sin(1.0), 5, 6}}))), "");
}

// Equal scores: each position weighs the same, so the result is a mean of the visible values.
conformance::Case mean_of_values(int64_t window, bool sinks) {
  CaseMaker m("mean");
  const std::vector<Value> in = m.inputs({{1, 1}, {1, 1}, {1, 1}});
  m.draw(0, in_order({0}));
  m.draw(2, in_order({1, 10, 100, 1000}));
  const Value sink = sinks ? m.weight_of({1}, {0}) : Value{};
  const Value y = m.g().attention({in[0], in[1], in[2], sink}, {.window = window});
  const auto expect = [=, values = std::make_shared<Numbers>()](const Token& token) {
    values->push_back(token.in[2][0]);
    const size_t n = window > 0 ? std::min(values->size(), static_cast<size_t>(window)) : values->size();
    double sum = 0;
    for (size_t i = values->size() - n; i < values->size(); ++i) sum += (*values)[i];
    return Numbers{sum / static_cast<double>(n + (sinks ? 1 : 0))};
  };
  return m.finish(y, {{TokenRun{0, 0, 3}}, {TokenRun{0, 3, 1}}}, expect);
}

TEST(ReferenceAttention, sees_itself_and_what_came_before) { EXPECT_EQ(mismatch(mean_of_values(0, false)), ""); }
TEST(ReferenceAttention, a_window_counts_the_token_itself) { EXPECT_EQ(mismatch(mean_of_values(2, false)), ""); }
TEST(ReferenceAttention, a_sink_of_zero_weighs_like_one_more_position_of_value_zero) {
  EXPECT_EQ(mismatch(mean_of_values(0, true)), "");
}

TEST(ReferenceAttention, neighbouring_query_heads_share_a_key_head) {
  CaseMaker m("groups");
  const std::vector<Value> in = m.inputs({{4, 1}, {2, 1}, {2, 1}});
  m.draw(2, in_order({7, 9}));
  const Value y = m.g().attention({in[0], in[1], in[2]}, {});
  EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{}}}, rows({{7, 7, 9, 9}}))), "");
}

TEST(ReferenceGatedAct, swiglu_oai_clamps_the_gate_from_above_only_and_the_input_on_both_sides) {
  CaseMaker m("oai");
  const std::vector<Value> in = m.inputs({{4}, {4}});
  m.draw(0, in_order({9, -9, 7, 1}));
  m.draw(1, in_order({9, 1, -9, 0}));
  const auto silu = [](double g) { return g / (1 + std::exp(-1.702 * g)); };
  const Value y = m.g().gated_act(Act::swiglu_oai, in[0], in[1]);
  EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{}}}, rows({{silu(7) * 8, silu(-9) * 2, silu(7) * -6, silu(1)}}))), "");
}

// Tanh form: gelu(1) = 0.8411920, against 0.8413447 of the exact form.
TEST(ReferenceGatedAct, gelu_is_the_tanh_form) {
  CaseMaker m("gelu");
  const std::vector<Value> in = m.inputs({{1}, {1}});
  m.draw(0, in_order({1}));
  m.draw(1, in_order({1}));
  EXPECT_EQ(mismatch(m.finish(m.g().gated_act(Act::gelu, in[0], in[1]), {{TokenRun{}}}, rows({{0.84119199}}))), "");
}

TEST(ReferenceShortConv, the_last_tap_meets_the_newest_input) {
  CaseMaker m("conv");
  const Value x = m.inputs({{1}})[0];
  m.draw(0, in_order({1, 0, 0, 0}));
  const Value y = m.g().short_conv(x, m.weight_of({1, 3}, {100, 10, 1}), {});
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  // the 1 moves from the newest tap to the oldest, over two step boundaries
  const std::vector<std::vector<TokenRun>> steps = {{TokenRun{0, 0, 1}}, {TokenRun{0, 1, 2}}, {TokenRun{0, 3, 1}}};
  EXPECT_EQ(mismatch(m.finish(y, steps, rows({{silu(1)}, {silu(10)}, {silu(100)}, {0}}))), "");
}

// One head, keys of length one, no decay, full writes: the state answers a key with the value last written under it.
TEST(ReferenceDeltaNet, a_key_recalls_its_last_value) {
  CaseMaker m("delta");
  const std::vector<Value> in = m.inputs({{1, 2}, {1, 2}, {1, 1}, {1}, {1}});
  m.draw(0, in_order({1, 0, 1, 0, 0, 1, 1, 0}));  // asked:   a a b a
  m.draw(1, in_order({1, 0, 0, 1, 0, 1, 1, 0}));  // written: a b b a
  m.draw(2, in_order({3, 5, 8, 13}));
  m.draw(3, in_order({-100}));  // softplus 0: no decay
  m.draw(4, in_order({100}));   // beta 1
  const Value zero = m.weight_of({1}, {0}), a = m.weight_of({1}, {-1});
  const Value y = m.g().delta_net({in[0], in[1], in[2], in[3], in[4], zero, a}, {});
  const std::vector<std::vector<TokenRun>> steps = {{TokenRun{0, 0, 2}}, {TokenRun{0, 2, 2}}};
  EXPECT_EQ(mismatch(m.finish(y, steps, rows({{3}, {3}, {8}, {13}}))), "");
}

TEST(ReferenceDeltaNet, the_state_decays_before_it_is_read) {
  CaseMaker m("decay");
  const std::vector<Value> in = m.inputs({{1, 1}, {1, 1}, {1, 1}, {1}, {1}});
  m.draw(0, in_order({1}));
  m.draw(1, in_order({1, 0}));  // the second token writes nothing
  m.draw(2, in_order({4}));
  m.draw(3, in_order({0}));
  m.draw(4, in_order({100}));
  const Value zero = m.weight_of({1}, {0}), a = m.weight_of({1}, {-1});  // g = -softplus(0) = -ln 2: the half remains
  const Value y = m.g().delta_net({in[0], in[1], in[2], in[3], in[4], zero, a}, {});
  EXPECT_EQ(mismatch(m.finish(y, {{TokenRun{0, 0, 2}}}, rows({{4}, {2}}))), "");
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
    EXPECT_EQ(dot(a, b), expected) << n;  // small whole numbers: exact in any order
  }
}

TEST(ReferenceKernels, exist_for_every_op) {
  for (size_t op = 0; op < kOpCount; ++op) EXPECT_NE(find_kernel(static_cast<Op>(op)), nullptr) << op;
}

}  // namespace
}  // namespace zinc::reference
