// Gated delta rule layers of several sequences and tokens in a step (delta_layer.comp, delta_finish.comp) against each
// sequence alone, one token per step (delta_decode.comp), bit for bit. On a GPU, on the emulated one, and on llvmpipe.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/conformance.h"
#include "tests/support/tested_backends.h"

namespace zinc::vulkan {
namespace {

using Floats = std::vector<float>;

struct LayerShape {
  int64_t k_heads, v_heads, k_dim, v_dim, n_taps;
};
// The first has the dimensions for which the kernel is specialized; the heads of the second cannot be normed with their
// gate.
constexpr std::array<LayerShape, 3> kShapes = {{{1, 2, 128, 128, 4}, {2, 4, 40, 36, 3}, {1, 1, 256, 160, 4}}};

constexpr int64_t kOut = 40;

Graph make_graph(conformance::CaseBuilder& m, const LayerShape& s, std::shared_ptr<WeightSet>& weights) {
  constexpr float kEps = 1e-6f;
  GraphBuilder& g = m.g();
  const int64_t key_dim = s.k_heads * s.k_dim, value_dim = s.v_heads * s.v_dim, qkv_dim = 2 * key_dim + value_dim;
  const std::vector<Value> in = m.inputs({{qkv_dim}, {s.v_heads}, {s.v_heads}, {value_dim}});
  const Value qkv = g.short_conv(in[0], m.weight({qkv_dim, s.n_taps}), {.cache_layer = 0});
  const Value out = g.delta_net({.q = g.l2_norm(g.heads(g.slice(qkv, 0, key_dim), s.k_heads), kEps),
                                 .k = g.l2_norm(g.heads(g.slice(qkv, key_dim, key_dim), s.k_heads), kEps),
                                 .v = g.heads(g.slice(qkv, 2 * key_dim, value_dim), s.v_heads),
                                 .alpha = in[1],
                                 .beta = in[2],
                                 .dt_bias = m.weight({s.v_heads}),
                                 .a = m.weight_of({s.v_heads}, Floats(static_cast<size_t>(s.v_heads), -0.2f))},
                                {.cache_layer = 0, .q_scale = 0.3f});
  const Value normed = g.flatten(g.rms_norm(out, m.weight({s.v_dim}), kEps));
  const Value y = g.linear(g.gated_act(Act::silu, in[3], normed), m.weight({kOut, value_dim}, *find_format("q8_0")));
  conformance::Case c = m.finish(y, {}, {});
  weights = c.weights;
  return std::move(c.graph);
}

// Where a step's states are: of sequence i in slot i if `states` is empty; `rows` as in StepInputs.
struct Slots {
  std::vector<int32_t> states = {}, rows = {};
};

class VulkanDeltaLayer : public testing::TestWithParam<std::tuple<const BackendInfo*, size_t>> {
 protected:
  static constexpr int kSeqs = 3, kDraftSlots = 2;
  struct Model {
    std::unique_ptr<CacheMemory> cache;
    std::unique_ptr<Plan> plan;
  };

  void SetUp() override {
    const auto& [info, shape] = GetParam();
    if (!info->is_available()) GTEST_SKIP() << info->name << " is not available on this machine";
    backend_ = std::move(info->open(0).value());
    conformance::CaseBuilder builder("delta layer");
    const LayerShape& s = kShapes[shape];
    graph_ = make_graph(builder, s, source_);
    width_ = static_cast<size_t>(2 * s.k_heads * s.k_dim + 2 * s.v_heads * s.v_dim + 2 * s.v_heads);
    const Graph* const graph = &graph_;
    weights_ = std::move(backend_->upload({&graph, 1}, [](auto) {}).value());
  }

  Model make_model(int max_tokens, int max_seqs) {
    Model model;
    const CacheSizes sizes{.n_pages = {}, .n_slots = kSeqs + kDraftSlots, .kv_format = &k_f32};
    model.cache = std::move(backend_->allocate_cache(graph_.caches(), sizes).value());
    const Bucket bucket{.max_tokens = max_tokens, .max_seqs = max_seqs, .max_outputs = max_tokens};
    model.plan = std::move(backend_->compile(graph_, *weights_, *model.cache, bucket).value());
    EXPECT_TRUE(model.plan->wait_until_prepared().ok());
    return model;
  }

  // Token `position` of a sequence.
  Floats input(int seq, int position) const {
    std::mt19937 random(static_cast<uint32_t>(1000 * seq + position));
    std::uniform_real_distribution<float> even(-1, 1);
    Floats x(width_);
    for (float& value : x) value = even(random);
    return x;
  }

  // A step with n_tokens[i] tokens of sequence seqs[i], from position[i] on; the result has kOut values per token.
  Floats run(Plan& plan, const std::vector<int32_t>& seqs, const std::vector<int>& n_tokens,
             const std::vector<int>& begin, const Slots& slots = {}) const {
    std::vector<int32_t> positions, seq_begin = {0};
    Floats hidden;
    for (size_t i = 0; i < seqs.size(); ++i) {
      for (int t = 0; t < n_tokens[i]; ++t) {
        positions.push_back(begin[i] + t);
        const Floats x = input(seqs[i], begin[i] + t);
        hidden.insert(hidden.end(), x.begin(), x.end());
      }
      seq_begin.push_back(static_cast<int32_t>(positions.size()));
    }
    const std::vector<int32_t> tokens(positions.size());
    std::vector<int32_t> rows(positions.size());
    std::iota(rows.begin(), rows.end(), 0);
    plan.start({.tokens = tokens,
                .positions = positions,
                .seq_begin = seq_begin,
                .slots = slots.states.empty() ? seqs : slots.states,
                .row_slots = slots.rows,
                .page_tables = {},
                .output_rows = rows,
                .logit_rows = rows,
                .hidden = hidden});
    const StepOutput output = plan.wait().value();
    return {output.logits.begin(), output.logits.end()};
  }

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<WeightSet> source_;
  Graph graph_;
  std::unique_ptr<DeviceWeights> weights_;
  size_t width_ = 0;
};

TEST_P(VulkanDeltaLayer, of_many_sequences_has_the_bits_of_each_alone) {
  const Model batch = make_model(16, kSeqs), alone = make_model(1, 1);
  std::vector<int> begin(kSeqs, 0);
  const std::vector<int32_t> seqs = {2, 0, 1};
  for (const std::vector<int>& n_tokens : {std::vector<int>{1, 6, 3}, {1, 1, 1}, {9, 1, 2}, {1, 1, 1}}) {
    const Floats together = run(*batch.plan, seqs, n_tokens, begin);
    auto row = together.begin();
    for (size_t i = 0; i < seqs.size(); ++i) {
      for (int t = 0; t < n_tokens[i]; ++t, row += kOut) {
        const Floats expected = run(*alone.plan, {seqs[i]}, {1}, {begin[i] + t});
        EXPECT_EQ(Floats(row, row + kOut), expected) << "sequence " << seqs[i] << ", position " << begin[i] + t;
      }
      begin[i] += n_tokens[i];
    }
  }
}

TEST_P(VulkanDeltaLayer, a_sequence_continues_from_the_state_after_any_row_with_a_slot) {
  constexpr int kBegin = 5;
  const Model alone = make_model(1, 1);
  std::vector<Floats> expected;
  for (int position = 0; position < 12; ++position) expected.push_back(run(*alone.plan, {0}, {1}, {position}));
  for (const int max_tokens : {16, 128}) {  // without and with chunks
    const Model batch = make_model(max_tokens, kSeqs);
    run(*batch.plan, {0}, {kBegin}, {0});
    // After positions 5, 6 and 8; slot 0 is the sequence's own, and another sequence is in the step.
    const Floats rows = run(*batch.plan, {1, 0}, {2, 4}, {0, kBegin}, {.rows = {kNoSlot, 1, 3, 0, kNoSlot, 4}});
    for (int row = 0; row < 4; ++row) {
      const auto of_row = rows.begin() + (2 + row) * kOut;
      EXPECT_EQ(Floats(of_row, of_row + kOut), expected[static_cast<size_t>(kBegin + row)]) << "row " << row;
    }
    for (const auto& [slot, position] : {std::pair{3, 6}, {0, 7}, {4, 9}}) {
      for (int next = position; next < position + 2; ++next) {
        EXPECT_EQ(run(*batch.plan, {0}, {1}, {next}, {.states = {slot}}), expected[static_cast<size_t>(next)])
            << "slot " << slot << ", position " << next << ", steps of up to " << max_tokens << " tokens";
      }
    }
  }
}

std::vector<const BackendInfo*> vulkan_backends() {
  std::vector<const BackendInfo*> all;
  if (const Result<const BackendInfo*> vulkan = find_backend("vulkan"); vulkan.ok()) all.push_back(vulkan.value());
  for (const BackendInfo* device : {cpu_vulkan(), emulated_vulkan()}) {
    if (device) all.push_back(device);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, VulkanDeltaLayer,
                         testing::Combine(testing::ValuesIn(vulkan_backends()),
                                          testing::Range<size_t>(0, kShapes.size())),
                         [](const auto& info) {
                           const LayerShape& s = kShapes[std::get<1>(info.param)];
                           std::string name = fmt::format("{}_{}x{}", std::get<0>(info.param)->name, s.k_dim, s.v_dim);
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc::vulkan
