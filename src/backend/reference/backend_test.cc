// The plan and the cache of the reference backend: inputs and outputs of steps.
#include "backend/backend.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/support/contains_all.h"
#include "tests/support/weight_set.h"

namespace zinc {
namespace {

// A model that adds one: token t's largest logit is (t + 1) % kVocabulary. One layer has attention and a recurrent
// state.
constexpr int kVocabulary = 5;

Graph counting_graph(WeightSet& weights) {
  std::vector<float> identity(kVocabulary * kVocabulary), next(kVocabulary * kVocabulary);
  for (size_t i = 0; i < kVocabulary; ++i) {
    identity[i * kVocabulary + i] = 1;
    next[(i + 1) % kVocabulary * kVocabulary + i] = 1;
  }
  weights.add("table", {kVocabulary, kVocabulary}, identity).add("next", {kVocabulary, kVocabulary}, next);
  weights.add("conv", {kVocabulary, 2}, std::vector<float>(kVocabulary * 2, 0.5f));
  GraphBuilder g("counting", weights.source());
  const Value x = g.embed(g.weight("table", {kVocabulary, kVocabulary}));
  g.layer(0);
  const Value heads = g.view(x, {1, kVocabulary});
  Value y = g.attention({heads, heads, heads}, {.cache_layer = 0});
  y = g.short_conv(y, g.weight("conv", {kVocabulary, 2}), {.cache_layer = 0});
  g.label(y, "memory");
  g.end_layers();
  g.hidden(g.add(x, g.scale(y, 0.01f)));  // the cached state affects the hidden state but not the tokens
  g.logits(g.linear(g.rows(x), g.weight("next", {kVocabulary, kVocabulary})));
  return std::move(g.finish().value());
}

struct Step {
  std::vector<TokenId> tokens;
  int32_t first_position = 0;
  int slot = 0;
  std::vector<int32_t> output_rows = {};
};

class ReferenceBackendTest : public testing::Test {
 protected:
  static constexpr int kSlots = 3, kPages = 4;

  void SetUp() override {
    backend_ = std::move(find_backend("reference").value()->open(2).value());
    const Graph* const graph = &graph_;
    weights_on_device_ = std::move(backend_->upload({&graph, 1}, [](auto) {}).value());
    cache_ = std::move(
        backend_->allocate_cache(graph_.caches(), {.n_pages = {kPages}, .n_slots = kSlots, .kv_format = &k_f32})
            .value());
    plan_ = compile({.max_tokens = 8, .max_seqs = 2, .max_outputs = 8, .keep_values = true});
  }

  std::unique_ptr<Plan> compile(const Bucket& bucket) {
    return std::move(backend_->compile(graph_, *weights_on_device_, *cache_, bucket).value());
  }

  // Slot s uses page s.
  void start(const Step& step) {
    const int32_t n = static_cast<int32_t>(step.tokens.size());
    std::vector<int32_t> positions(step.tokens.size()), logit_rows(step.output_rows.size());
    std::iota(positions.begin(), positions.end(), step.first_position);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const std::array<int32_t, 2> seq_begin = {0, n};
    const std::array<int32_t, 1> slots = {step.slot};
    const std::array<PageId, 1> pages = {step.slot};
    const std::array<PageTable, 1> tables = {PageTable{pages, 1}};
    plan_->start({.tokens = step.tokens,
                  .positions = positions,
                  .seq_begin = seq_begin,
                  .slots = slots,
                  .page_tables = tables,
                  .output_rows = step.output_rows,
                  .logit_rows = logit_rows,
                  .hidden = {},
                  .wants_hidden = true});
  }
  StepOutput run(const Step& step) {
    start(step);
    return plan_->wait().value();
  }
  std::vector<float> hidden_after(const Step& step) {
    const StepOutput output = run(step);
    return {output.hidden.begin(), output.hidden.end()};
  }

  WeightSet weights_;
  Graph graph_ = counting_graph(weights_);
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceWeights> weights_on_device_;
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
};

TEST_F(ReferenceBackendTest, samples_the_largest_logit_of_each_output_row) {
  const StepOutput output = run({.tokens = {3, 4, 0}, .output_rows = {0, 2}});
  ASSERT_EQ(output.sampled.size(), 2u);
  EXPECT_EQ(output.sampled[0], 4);
  EXPECT_EQ(output.sampled[1], 1);
  ASSERT_EQ(output.logits.size(), size_t{2 * kVocabulary});
  EXPECT_EQ(output.logits[4], 1);
  EXPECT_EQ(output.hidden.size(), size_t{3 * kVocabulary});
}

TEST_F(ReferenceBackendTest, a_step_may_have_no_output_rows) {
  const StepOutput output = run({.tokens = {3, 4}});
  EXPECT_TRUE(output.sampled.empty());
  EXPECT_TRUE(output.logits.empty());
  EXPECT_EQ(output.hidden.size(), size_t{2 * kVocabulary});
}

TEST_F(ReferenceBackendTest, a_token_from_the_device_is_the_one_its_slot_sampled_last) {
  run({.tokens = {2}, .slot = 1, .output_rows = {0}});
  run({.tokens = {0}, .slot = 2, .output_rows = {0}});
  const StepOutput output = run({.tokens = {kFromDevice}, .first_position = 1, .slot = 1, .output_rows = {0}});
  EXPECT_EQ(output.sampled[0], 4);  // 2 -> 3 -> 4
}

TEST_F(ReferenceBackendTest, the_output_of_a_step_stays_valid_while_the_next_one_runs) {
  start({.tokens = {0}, .output_rows = {0}});
  start({.tokens = {2}, .first_position = 1, .output_rows = {0}});
  const StepOutput first = plan_->wait().value();
  const StepOutput second = plan_->wait().value();
  EXPECT_EQ(first.sampled[0], 1);
  EXPECT_EQ(first.logits[1], 1);
  EXPECT_EQ(second.sampled[0], 3);
}

TEST_F(ReferenceBackendTest, every_value_is_readable_with_keep_values) {
  run({.tokens = {1, 2}});
  const std::span<const float> memory = plan_->value(graph_.find("memory"));
  EXPECT_EQ(memory.size(), size_t{2 * kVocabulary});
  EXPECT_NE(memory[1], 0);
}

TEST_F(ReferenceBackendTest, a_sequence_gives_the_same_bits_in_one_step_or_token_by_token) {
  const std::vector<TokenId> tokens = {3, 1, 4, 1, 2};
  const std::vector<float> at_once = hidden_after({.tokens = tokens});
  std::vector<float> one_by_one;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> row =
        hidden_after({.tokens = {tokens[i]}, .first_position = static_cast<int32_t>(i), .slot = 1});
    one_by_one.insert(one_by_one.end(), row.begin(), row.end());
  }
  EXPECT_EQ(at_once, one_by_one);
}

TEST_F(ReferenceBackendTest, a_sequence_gives_the_same_bits_alone_or_beside_another) {
  const std::vector<float> alone = hidden_after({.tokens = {3, 1}, .slot = 2});
  const std::array<TokenId, 5> tokens = {4, 4, 4, 3, 1};
  const std::array<int32_t, 5> positions = {0, 1, 2, 0, 1};
  const std::array<int32_t, 3> seq_begin = {0, 3, 5};
  const std::array<int32_t, 2> slots = {1, 0};
  const std::array<PageId, 2> pages = {3, 1};
  const std::array<PageTable, 1> tables = {PageTable{pages, 1}};
  plan_->start({.tokens = tokens,
                .positions = positions,
                .seq_begin = seq_begin,
                .slots = slots,
                .page_tables = tables,
                .output_rows = {},
                .logit_rows = {},
                .hidden = {},
                .wants_hidden = true});
  const StepOutput output = plan_->wait().value();
  const std::span<const float> second = output.hidden.subspan(3 * kVocabulary);
  EXPECT_EQ(alone, std::vector<float>(second.begin(), second.end()));
}

TEST_F(ReferenceBackendTest, a_copied_page_and_state_continue_like_the_original) {
  run({.tokens = {3, 1, 4}, .slot = 0});
  cache_->copy_page(0, 0, 1);
  cache_->copy_state(0, 1);
  const Step more{.tokens = {2}, .first_position = 3, .slot = 0};
  const std::vector<float> original = hidden_after(more);
  run({.tokens = {0, 0}, .slot = 0});  // the original continues differently
  Step copy = more;
  copy.slot = 1;
  EXPECT_EQ(hidden_after(copy), original);
}

TEST_F(ReferenceBackendTest, pages_and_states_can_be_read_and_restored) {
  run({.tokens = {3, 1, 4}, .slot = 0});
  std::vector<std::byte> page(cache_->page_bytes(0)), state(cache_->state_bytes());
  ASSERT_TRUE(cache_->read_page(0, 0, page).ok());
  ASSERT_TRUE(cache_->read_state(0, state).ok());
  const std::vector<float> original = hidden_after({.tokens = {2}, .first_position = 3, .slot = 0});
  ASSERT_TRUE(cache_->write_page(0, 2, page).ok());
  ASSERT_TRUE(cache_->write_state(2, state).ok());
  EXPECT_EQ(hidden_after({.tokens = {2}, .first_position = 3, .slot = 2}), original);
}

TEST_F(ReferenceBackendTest, cache_sizes_match_the_cache_spec) {
  EXPECT_EQ(cache_->page_bytes(0), page_bytes(page_groups(graph_.caches())[0], graph_.caches(), k_f32));
  EXPECT_EQ(cache_->state_bytes(), state_bytes(graph_.caches()));
}

TEST_F(ReferenceBackendTest, a_sequence_at_position_zero_resets_the_state_of_its_slot) {
  const std::vector<float> fresh = hidden_after({.tokens = {2, 2}, .slot = 0});
  run({.tokens = {4, 3}, .slot = 1});
  EXPECT_EQ(hidden_after({.tokens = {2, 2}, .slot = 1}), fresh);
}

TEST_F(ReferenceBackendTest, an_unsupported_kv_cache_format_is_rejected_by_name) {
  const auto cache =
      backend_->allocate_cache(graph_.caches(), {.n_pages = {1}, .n_slots = 1, .kv_format = find_format("q4_k")});
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.error().code, ErrorCode::unsupported);
  EXPECT_TRUE(contains_all(cache.error().message, {"q4_k"}));
}

TEST_F(ReferenceBackendTest, a_kv_cache_format_whose_blocks_do_not_divide_a_head_is_rejected) {
  const auto cache =
      backend_->allocate_cache(graph_.caches(), {.n_pages = {1}, .n_slots = 1, .kv_format = find_format("q8_0")});
  ASSERT_FALSE(cache.ok());
  EXPECT_TRUE(contains_all(cache.error().message, {"q8_0", "32", "5"}));
}

TEST(FindBackend, an_unknown_name_is_an_error_that_lists_all_backends) {
  const auto info = find_backend("abacus");
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code, ErrorCode::not_found);
  EXPECT_TRUE(contains_all(info.error().message, {"abacus", "reference"}));
}

TEST(BackendRecord, lists_kv_formats_with_a_quantize_function_and_the_default_among_them) {
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    EXPECT_TRUE(has_kv_format(**b, (*b)->default_kv_format)) << (*b)->name;
    for (const std::string_view name : (*b)->kv_formats) {
      const Format* format = find_format(name);
      EXPECT_TRUE(format != nullptr && format->quantize != nullptr) << (*b)->name << " " << name;
    }
  }
  const BackendInfo& cpu = *find_backend("cpu").value();
  EXPECT_FALSE(has_kv_format(cpu, "fp8"));
  EXPECT_EQ(kv_format_names(cpu), "f32, f16, q8_0 or q4_0");
  EXPECT_EQ(all_kv_formats(), (std::vector<std::string_view>{"f32", "f16", "q8_0", "q4_0", "fp8"}));
}

}  // namespace
}  // namespace zinc
