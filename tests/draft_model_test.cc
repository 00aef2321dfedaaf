// A draft model: its drafts are its own greedy continuation, whatever it drafted before and beside. With the target
// model as its own draft model, they are the target's next tokens. On every available device.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/draft_model.h"
#include "engine/engine_memory.h"
#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kContext = 160;
constexpr size_t kNoLimit = size_t{1} << 40;

struct Subject {
  const BackendInfo* backend;
  std::string_view model;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend->name; }

bool is_slow(const BackendInfo& backend) { return backend.step_kernels != nullptr; }  // on the CPU, emulated or not

std::unique_ptr<DraftModelDrafter> make_drafter(ModelInstance model, const EngineOptions& options) {
  const CacheSizes sizes = plan_engine_memory(model, kNoLimit, options, &model).value().draft_cache;
  return std::move(DraftModelDrafter::create(
                       std::move(model),
                       {.cache = sizes, .step = largest_draft_step(options), .max_chunk_tokens = options.step_tokens})
                       .value());
}

int n_pinned_pages(const DraftModelDrafter& drafter) {
  int n = 0;
  for (const PagePool& pool : drafter.cache().pools().pages) n += pool.n_pinned();
  return n;
}

class DraftModelTest : public testing::TestWithParam<Subject> {
 protected:
  ServedFile file() const { return {.name = GetParam().model, .backend = GetParam().backend->name}; }
  std::unique_ptr<DraftModelDrafter> drafter(int max_sequences = 5, int step_tokens = 160) const {
    return make_drafter(load_model(file()),
                        {.max_sequences = max_sequences, .context = kContext, .step_tokens = step_tokens});
  }
  // Prompts of these sizes with the target's greedy output.
  std::vector<Tokens> answered(const std::vector<size_t>& sizes, int n_output) const {
    const std::unique_ptr<Engine> engine =
        make_engine(file(), {.max_sequences = 8, .context = kContext, .step_tokens = 96});
    std::vector<Tokens> all;
    std::vector<std::shared_ptr<RecordingSink>> outputs;
    for (const size_t n : sizes) {
      all.push_back(random_tokens(engine->tokenizer(), n, static_cast<uint32_t>(n)));
      outputs.push_back(submit(*engine, {.prompt = all.back(), .options = greedy(n_output)}));
    }
    run_all(*engine);
    for (size_t i = 0; i < all.size(); ++i) {
      for (const OutputToken& token : outputs[i]->output_tokens) all[i].push_back(token.id);
    }
    return all;
  }
};

// Of one sequence; `ns`: of the prefix cache.
Tokens draft_of(DraftModelDrafter& drafter, RequestId id, std::span<const TokenId> tokens, int n,
                CacheNamespace ns = kSharedNamespace) {
  SequenceCache cache;
  cache.cache_namespace = ns;
  DraftQuery query{.id = id, .tokens = tokens, .cache = &cache, .max_tokens = n};
  EXPECT_TRUE(drafter.draft({&query, 1}).ok());
  return query.draft;
}

Tokens slice(const Tokens& tokens, size_t begin, int n) {
  return {tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.begin() + static_cast<ptrdiff_t>(begin) + n};
}

// Lengths around the ends of pages, drafts of different lengths, and as many accepted tokens as each time gives.
TEST_P(DraftModelTest, drafts_of_the_target_itself_are_its_next_tokens) {
  const int n_output = is_slow(*GetParam().backend) ? 12 : 44;
  const std::vector<Tokens> sequences = answered({1, 30, 31, 32, 64}, n_output);
  const std::unique_ptr<DraftModelDrafter> drafter = this->drafter();
  const SequenceCache cache;
  std::vector<size_t> lengths;
  for (const Tokens& tokens : sequences) lengths.push_back(tokens.size() - static_cast<size_t>(n_output));
  for (size_t round = 0; round < 40; ++round) {
    std::vector<DraftQuery> queries;
    std::vector<size_t> drafted;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const int n_left = static_cast<int>(sequences[i].size() - lengths[i]);
      if (n_left == 0) continue;
      const int n = std::min(n_left, 1 + static_cast<int>((round + i) % 5));
      drafted.push_back(i);
      queries.push_back(
          {.id = i, .tokens = std::span(sequences[i]).first(lengths[i]), .cache = &cache, .max_tokens = n});
    }
    ASSERT_TRUE(drafter->draft(queries).ok());
    for (size_t q = 0; q < queries.size(); ++q) {
      const size_t i = drafted[q];
      EXPECT_EQ(queries[q].draft, slice(sequences[i], lengths[i], queries[q].max_tokens)) << i << " at " << lengths[i];
      lengths[i] += 1 + (round * 3 + i) % static_cast<size_t>(queries[q].max_tokens);
    }
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(lengths[i], sequences[i].size());
    drafter->remove(i);
  }
  EXPECT_EQ(n_pinned_pages(*drafter), 0);
}

// Every draft is followed by as many of its tokens as are accepted, then by another token.
TEST_P(DraftModelTest, a_draft_depends_on_the_tokens_only) {
  const int n_rounds = is_slow(*GetParam().backend) ? 5 : 24;
  const std::unique_ptr<DraftModelDrafter> drafter = this->drafter(), alone = this->drafter();
  const Tokenizer tokenizer = std::move(Tokenizer::load(load_model(file()).file()).value());
  std::vector<Tokens> sequences;
  for (const size_t n : {2, 31, 40}) sequences.push_back(random_tokens(tokenizer, n, static_cast<uint32_t>(n)));
  std::mt19937 random(7);
  CacheNamespace unused = 100;
  for (int round = 0; round < n_rounds; ++round) {
    std::vector<DraftQuery> queries;
    const SequenceCache cache;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (round > 0 && random() % 4 == 0) continue;
      queries.push_back(
          {.id = i, .tokens = sequences[i], .cache = &cache, .max_tokens = 1 + static_cast<int>(random() % 5)});
    }
    ASSERT_TRUE(drafter->draft(queries).ok());
    std::vector<Tokens> next = sequences;
    for (const DraftQuery& query : queries) {
      EXPECT_EQ(query.draft, draft_of(*alone, 99, query.tokens, query.max_tokens, unused++)) << query.tokens.size();
      alone->remove(99);
      const size_t n_accepted = static_cast<size_t>(round) % (query.draft.size() + 1);
      Tokens& tokens = next[query.id];
      tokens.insert(tokens.end(), query.draft.begin(), query.draft.begin() + static_cast<ptrdiff_t>(n_accepted));
      const bool has_rejected = n_accepted < query.draft.size();
      tokens.push_back(has_rejected ? (query.draft[n_accepted] + 1) % 256 : static_cast<TokenId>(random() % 256));
    }
    sequences = std::move(next);
  }
}

TEST_P(DraftModelTest, a_removed_sequence_that_returns_has_the_same_drafts_from_cached_pages) {
  const std::vector<Tokens> sequences = answered({50}, 12);
  const std::unique_ptr<DraftModelDrafter> drafter = this->drafter();
  for (const size_t n : {50u, 54u}) {
    EXPECT_EQ(draft_of(*drafter, 1, std::span(sequences[0]).first(n), 4), slice(sequences[0], n, 4));
  }
  drafter->remove(1);
  EXPECT_EQ(n_pinned_pages(*drafter), 0);
  EXPECT_GT(drafter->cache().prefix_cache().n_nodes(), 0);
  EXPECT_EQ(draft_of(*drafter, 1, std::span(sequences[0]).first(56), 4), slice(sequences[0], 56, 4));
  // Tokens before its last draft are replaced: a request that was preempted and is another one now.
  EXPECT_EQ(draft_of(*drafter, 1, std::span(sequences[0]).first(51), 4), slice(sequences[0], 51, 4));
}

TEST_P(DraftModelTest, a_long_prompt_is_fed_over_several_calls_while_others_draft) {
  const std::vector<Tokens> sequences = answered({4, 64}, 8);
  const std::unique_ptr<DraftModelDrafter> drafter = this->drafter(2, 24);
  const SequenceCache cache;
  for (const size_t n_fed : {24u, 48u, 64u}) {
    const size_t n_short = 4 + n_fed / 24;
    std::vector<DraftQuery> queries = {
        {.id = 1, .tokens = std::span(sequences[1]).first(64), .cache = &cache, .max_tokens = 3},
        {.id = 0, .tokens = std::span(sequences[0]).first(n_short), .cache = &cache, .max_tokens = 3}};
    ASSERT_TRUE(drafter->draft(queries).ok());
    EXPECT_EQ(queries[1].draft, slice(sequences[0], n_short, 3));
    EXPECT_EQ(queries[0].draft, n_fed == 64 ? slice(sequences[1], 64, 3) : Tokens{}) << n_fed;
  }
}

TEST_P(DraftModelTest, drafts_end_at_the_end_of_the_context) {
  const std::unique_ptr<DraftModelDrafter> drafter = this->drafter(1, 200);
  const Tokenizer tokenizer = std::move(Tokenizer::load(load_model(file()).file()).value());
  const Tokens tokens = random_tokens(tokenizer, kContext, 3);
  EXPECT_EQ(draft_of(*drafter, 1, std::span(tokens).first(kContext - 2), 8).size(), 3u);
  EXPECT_EQ(draft_of(*drafter, 1, tokens, 8).size(), 1u);
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo* backend : available_backends()) {
    for (const std::string_view model : {"qwen3-q8_0", "gemma3-f16", "gpt-oss-mxfp4"}) all.push_back({backend, model});
  }
  return all;
}
std::string test_name(const testing::TestParamInfo<Subject>& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, DraftModelTest, testing::ValuesIn(subjects()), test_name);

// Two sequences fit, three do not: one of them has no draft until another one ends.
TEST(DraftModelPages, a_sequence_without_pages_has_no_draft) {
  const EngineOptions options{.max_sequences = 3, .context = 64, .step_tokens = 64};
  ModelInstance model = load_model({.name = "qwen3-q8_0"});
  CacheSizes sizes = plan_engine_memory(model, kNoLimit, options, &model).value().draft_cache;
  sizes.n_pages = {2 * pages_of(64) + 1};
  const std::unique_ptr<DraftModelDrafter> drafter =
      std::move(DraftModelDrafter::create(
                    std::move(model),
                    {.cache = sizes, .step = largest_draft_step(options), .max_chunk_tokens = options.step_tokens})
                    .value());
  std::vector<Tokens> tokens;
  for (TokenId i = 0; i < 3; ++i) tokens.emplace_back(40, 10 + i);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(draft_of(*drafter, i, tokens[i], 4).size(), i < 2 ? 4u : 0u);
  drafter->remove(0);
  EXPECT_EQ(draft_of(*drafter, 2, tokens[2], 4).size(), 4u);
  drafter->remove(1);
  drafter->remove(2);
  EXPECT_EQ(n_pinned_pages(*drafter), 0);
}

TEST(DraftModelPages, ten_thousand_drafts_leak_no_pages) {
  const std::unique_ptr<DraftModelDrafter> drafter =
      make_drafter(load_model({.name = "tiny gemma3"}), {.max_sequences = 4, .context = 128, .step_tokens = 64});
  std::mt19937 random(3);
  std::array<Tokens, 4> sequences;
  const SequenceCache cache;
  for (int round = 0; round < 10'000; ++round) {
    std::vector<DraftQuery> queries;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Tokens& tokens = sequences[i];
      if (tokens.size() > 100 || random() % 50 == 0) {
        drafter->remove(i);
        tokens.clear();
      }
      do tokens.push_back(static_cast<TokenId>(random() % 90));
      while (random() % 3 != 0);
      queries.push_back({.id = i, .tokens = tokens, .cache = &cache, .max_tokens = static_cast<int>(random() % 4)});
    }
    ASSERT_TRUE(drafter->draft(queries).ok());
    for (const DraftQuery& query : queries) {
      ASSERT_EQ(std::ssize(query.draft), query.max_tokens);
      sequences[query.id].insert(sequences[query.id].end(), query.draft.begin(), query.draft.end());
    }
  }
  for (size_t i = 0; i < sequences.size(); ++i) drafter->remove(i);
  EXPECT_EQ(n_pinned_pages(*drafter), 0);
  EXPECT_EQ(drafter->cache().pools().states.n_pinned(), 0);
  for (const PagePool& pool : drafter->cache().pools().pages)
    EXPECT_EQ(pool.n_free() + pool.n_cached(), pool.n_total());
}

TEST(DraftModelCheck, names_what_differs) {
  const ModelInstance target = load_model({.name = "qwen3-q8_0"});
  EXPECT_TRUE(check_draft_model(load_model({.name = "qwen3-q8_0"}), target).ok());
  const auto message = [&](std::string_view name) {
    const Status status = check_draft_model(load_model({.name = name}), target);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_NE(message("llama-q8_0").find("a draft model must have the vocabulary of the model, but it"),
            std::string::npos)
      << message("llama-q8_0");
  EXPECT_NE(message("qwen35-f16").find("recurrent layers (qwen35)"), std::string::npos) << message("qwen35-f16");
}

TEST(DraftModelMemory, is_planned_with_the_model) {
  const EngineOptions options{.max_sequences = 4, .context = 512, .step_tokens = 64};
  const ModelInstance target = load_model({.name = "qwen3-q8_0"});
  ModelInstance draft = std::move(ModelInstance::open_beside(target, std::filesystem::path(ZINC_SOURCE_DIR) /
                                                                         "tests/data/oracle/models/gemma3-f16.gguf")
                                      .value());
  EXPECT_EQ(&draft.backend(), &target.backend());
  const EngineMemory without = std::move(plan_engine_memory(target, kNoLimit, options).value());
  const EngineMemory with = std::move(plan_engine_memory(target, kNoLimit, options, &draft).value());
  EXPECT_EQ(with.cache.sizes.n_pages, without.cache.sizes.n_pages);
  EXPECT_EQ(with.draft_cache.n_pages.size(), 2u);  // of full and of windowed attention
  EXPECT_EQ(with.draft_cache.n_pages[0], with.cache.sizes.n_pages[0]);

  // Enough for the model alone.
  const Result<EngineMemory> refused = plan_engine_memory(target, least_limit(without), options, &draft);
  ASSERT_FALSE(refused.ok());
  for (const std::string_view part : {"the model and its draft model take", "it fits with:", "--speculate off"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace zinc
