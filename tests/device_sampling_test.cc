// Device sampling returns the same tokens as the host Sampler for the same logits, for all combinations of top-k, top-p
// and min-p.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "graph/graph_builder.h"
#include "sample/sampler.h"
#include "sample/softmax_exp.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

using Logits = std::vector<float>;

std::vector<const BackendInfo*> sampling_backends() {
  std::vector<const BackendInfo*> all = available_backends();
  std::erase_if(all, [](const BackendInfo* backend) { return !backend->can_sample_on_device; });
  return all;
}

// A graph whose logits are its input. Every sequence has rows_per_sequence rows.
class Rows {
 public:
  Rows(const BackendInfo& info, int64_t vocab, int n_rows, int rows_per_sequence = 1)
      : n_rows_(static_cast<size_t>(n_rows)), rows_per_sequence_(rows_per_sequence) {
    GraphBuilder g("rows", [](std::string_view) { return nullptr; });
    g.logits(g.rows(g.hidden_in(vocab)));
    graph_ = std::move(g.finish().value());
    backend_ = std::move(info.open(1).value());
    const Graph* const graph = &graph_;
    weights_ = std::move(backend_->upload({&graph, 1}, [](auto) {}).value());
    cache_ = std::move(backend_->allocate_cache({}, {.n_pages = {}, .n_slots = n_rows, .kv_format = &k_f32}).value());
    const Bucket bucket{.max_tokens = n_rows, .max_seqs = n_rows / rows_per_sequence, .max_outputs = n_rows};
    plan_ = std::move(backend_->compile(graph_, *weights_, *cache_, bucket).value());
  }

  std::vector<TokenId> sampled(const std::vector<Logits>& rows, const std::vector<DeviceSampling>& sampling) {
    std::vector<float> hidden;
    for (const Logits& row : rows) hidden.insert(hidden.end(), row.begin(), row.end());
    const std::vector<TokenId> tokens(rows.size(), 0);
    std::vector<int32_t> positions, row_ids, seq_begin, slots;
    for (int32_t row = 0; row < std::ssize(rows); ++row) {
      row_ids.push_back(row);
      positions.push_back(row % rows_per_sequence_);
      if (row % rows_per_sequence_ > 0) continue;
      slots.push_back(static_cast<int32_t>(slots.size()));
      seq_begin.push_back(row);
    }
    seq_begin.push_back(static_cast<int32_t>(rows.size()));
    plan_->start({.tokens = tokens,
                  .positions = positions,
                  .seq_begin = seq_begin,
                  .slots = slots,
                  .page_tables = {},
                  .output_rows = row_ids,
                  .sampling = sampling,
                  .logit_rows = {},
                  .hidden = hidden});
    const Result<StepOutput> output = plan_->wait();
    EXPECT_TRUE(output.ok()) << output.error().message;
    return {output.value().sampled.begin(), output.value().sampled.end()};
  }

  size_t size() const { return n_rows_; }

 private:
  size_t n_rows_;
  int rows_per_sequence_;
  Graph graph_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
};

// All kinds of rows that a model, or a broken one, may produce.
std::vector<Logits> logits_of_every_kind(size_t vocab, std::mt19937& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::normal_distribution<float> normal(0, 3);
  std::uniform_int_distribution<size_t> any(0, vocab - 1);
  const auto row_of = [&](auto value) {
    Logits row(vocab);
    for (float& x : row) x = value();
    return row;
  };
  std::vector<Logits> rows;
  rows.push_back(row_of([&] { return normal(random); }));
  rows.push_back(row_of([&] { return normal(random) - 40; }));
  rows.back()[any(random)] = -5;                                                        // one far above the rest
  rows.push_back(row_of([&] { return std::round(normal(random)); }));                   // ties, zeros of both signs
  rows.push_back(row_of([&] { return 1.5f; }));                                         // all equal
  rows.push_back(row_of([&] { return normal(random) * 1e-4f; }));                       // flat
  rows.push_back(row_of([&] { return normal(random) * 1e37f; }));                       // steep
  rows.push_back(row_of([&] { return normal(random) > 5 ? normal(random) : -kInf; }));  // few finite logits
  rows.back()[any(random)] = 1;
  rows.push_back(row_of([&] { return normal(random); }));
  for (int i = 0; i < 5; ++i) rows.back()[any(random)] = std::nanf("");
  rows.back()[any(random)] = kInf;
  rows.back()[any(random)] = kInf;
  return rows;
}

std::vector<SamplingParams> all_parameters() {
  std::vector<SamplingParams> all;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 1.9f}) {
    for (const int32_t top_k : {0, 1, 7, 40, 900}) {
      for (const float top_p : {1.0f, 0.95f, 0.4f, 0.0f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          all.push_back({.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p});
        }
      }
    }
  }
  return all;
}

class DeviceSamplingTest : public testing::TestWithParam<const BackendInfo*> {
 protected:
  static void expect_host_tokens(int vocab, const std::vector<SamplingParams>& parameters = all_parameters(),
                                 int rows_per_sequence = 1);
};

void DeviceSamplingTest::expect_host_tokens(int vocab, const std::vector<SamplingParams>& parameters,
                                            int rows_per_sequence) {
  std::mt19937 random(7);
  Sampler sampler;
  Rows rows(*GetParam(), vocab, 32, rows_per_sequence);
  std::vector<Logits> logits;
  std::vector<DeviceSampling> sampling;
  std::vector<TokenId> expected;
  int n_wrong = 0, n_samples = 0;
  const auto compare = [&] {
    const std::vector<TokenId> got = rows.sampled(logits, sampling);
    for (size_t i = 0; i < got.size(); ++i, ++n_samples) {
      if (got[i] == expected[i] || ++n_wrong > 5) continue;
      ADD_FAILURE() << "sample " << n_samples << " (kind " << n_samples % 8 << "): " << got[i] << " instead of "
                    << expected[i] << ", temperature " << sampling[i].temperature << " top_k " << sampling[i].top_k
                    << " top_p " << sampling[i].top_p << " min_p " << sampling[i].min_p << " uniform "
                    << sampling[i].uniform;
    }
    logits.clear(), sampling.clear(), expected.clear();
  };
  uint64_t position = 0;
  for (SamplingParams params : parameters) {
    params.seed = 3;
    for (Logits& row : logits_of_every_kind(static_cast<size_t>(vocab), random)) {
      sampling.push_back(*device_sampling(params, ++position, 0));
      expected.push_back(sampler.sample(row, params, {.position = position}).value());
      logits.push_back(std::move(row));
      if (sampling.size() == rows.size()) compare();
    }
  }
  EXPECT_EQ(n_wrong, 0) << "of " << n_samples;
  EXPECT_EQ(n_samples, 8 * static_cast<int>(parameters.size()));
}

TEST_P(DeviceSamplingTest, equals_the_host_sampler_with_a_vocabulary_smaller_than_a_chunk) { expect_host_tokens(50); }
TEST_P(DeviceSamplingTest, equals_the_host_sampler_with_a_small_vocabulary) { expect_host_tokens(1000); }
TEST_P(DeviceSamplingTest, equals_the_host_sampler_with_a_large_vocabulary) { expect_host_tokens(5003); }
TEST_P(DeviceSamplingTest, equals_the_host_sampler_with_more_chunks_than_threads) {
  expect_host_tokens(70001, {{}, {.top_p = 0.95f}, {.min_p = 0.05f}, {.top_k = 900, .top_p = 0.9f}});
}

TEST_P(DeviceSamplingTest, every_row_of_a_sequence_has_its_own_parameters) {
  expect_host_tokens(500,
                     {{}, {.temperature = 1}, {.temperature = 0.5f, .top_k = 7}, {.temperature = 1, .top_p = 0.4f}},
                     1 + kMaxDraftTokens);
}

TEST_P(DeviceSamplingTest, the_token_is_negative_if_no_logit_can_be_sampled) {
  Rows rows(*GetParam(), 100, 2);
  const std::vector<Logits> logits = {Logits(100, std::nanf("")), Logits(100, 1.0f)};
  EXPECT_EQ(rows.sampled(logits, {{.temperature = 1}, {.temperature = 1}})[0], -1);
  EXPECT_EQ(rows.sampled(logits, {{}, {}}), (std::vector<TokenId>{-1, 0}));
}

TEST_P(DeviceSamplingTest, the_best_token_has_the_lowest_id_of_equal_logits) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kDenormal = 1e-42f;
  Rows rows(*GetParam(), 1000, 4);
  std::vector<Logits> logits(4, Logits(1000, -kInf));
  logits[0][900] = logits[0][70] = 2.5f;
  logits[1][40] = -0.0f, logits[1][990] = 0.0f;
  logits[2][5] = 0.0f, logits[2][800] = kDenormal;
  logits[3][3] = std::nanf(""), logits[3][600] = -3e38f;
  const std::vector<TokenId> best = {70, 40, 800, 600};
  EXPECT_EQ(rows.sampled(logits, {}), best) << "greedy by default";
  EXPECT_EQ(rows.sampled(logits, {{}, {}, {}, {}}), best);
  const DeviceSampling top_1{.temperature = 1, .top_k = 1, .uniform = 0.9};
  EXPECT_EQ(rows.sampled(logits, {top_1, top_1, top_1, top_1}), best);
}

// Whether uniform * mass reaches the next token depends on how the product is rounded: some exact ones are just below.
TEST_P(DeviceSamplingTest, a_uniform_number_between_two_tokens_is_rounded_as_on_the_host) {
  constexpr size_t kTokens = 224, kRows = 32;
  Rows rows(*GetParam(), kTokens, kRows);
  for (size_t first = 0; first < kTokens; first += kRows) {
    std::vector<DeviceSampling> sampling;
    std::vector<TokenId> expected;
    for (size_t i = first; i < first + kRows; ++i) {
      const double uniform = static_cast<double>(i) / kTokens;
      sampling.push_back({.temperature = 1, .uniform = uniform});
      expected.push_back(static_cast<TokenId>(cdf_target(uniform, kTokens)));
    }
    EXPECT_EQ(rows.sampled(std::vector<Logits>(kRows, Logits(kTokens, 1.5f)), sampling), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceSamplingTest, testing::ValuesIn(sampling_backends()), [](const auto& info) {
  std::string name(info.param->name);
  std::ranges::replace(name, ':', '_');
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceSamplingTest);

TEST(DeviceSampling, sampling_that_needs_more_than_the_logits_is_not_done_on_the_device) {
  EXPECT_TRUE(device_sampling({.top_k = 40, .top_p = 0.9f, .min_p = 0.1f}, 5, 0).has_value());
  EXPECT_FALSE(device_sampling({.repeat_penalty = 1.1f}, 5, 0).has_value());
  EXPECT_FALSE(device_sampling({.frequency_penalty = 0.1f}, 5, 0).has_value());
  EXPECT_FALSE(device_sampling({.presence_penalty = 0.1f}, 5, 0).has_value());
  EXPECT_FALSE(device_sampling({.dry_multiplier = 0.8f}, 5, 0).has_value());
  EXPECT_FALSE(device_sampling({.logit_bias = {{1, 1.0f}}}, 5, 0).has_value());
}

}  // namespace
}  // namespace zinc
