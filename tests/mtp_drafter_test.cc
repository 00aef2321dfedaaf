// The MTP block as a drafter: its drafts are those of the block run alone over the whole sequence from an empty cache,
// whatever was drafted before and beside, on every available device. The tokens are random and the target's hidden
// states come from one run over them, so that drafts are rejected at every position.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/engine_memory.h"
#include "engine/mtp_drafter.h"
#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kContext = 160, kSequences = 3;
constexpr size_t kNoLimit = size_t{1} << 40;

struct Subject {
  const BackendInfo* backend;
  std::string_view model;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend->name; }

bool is_slow(const BackendInfo& backend) { return backend.step_kernels != nullptr; }  // on the CPU, emulated or not

class MtpDrafterTest : public testing::TestWithParam<Subject> {
 protected:
  // Tokens with the target's hidden states.
  struct Sequence {
    Tokens tokens;
    std::vector<float> hidden;  // [n, dim]
    std::span<const float> hidden_of(size_t begin, size_t n) const {
      const size_t dim = hidden.size() / tokens.size();
      return std::span(hidden).subspan(begin * dim, n * dim);
    }
  };

  std::unique_ptr<KvCache> make_cache() const {
    const CachePlan plan = plan_engine_memory(model_, kNoLimit, options_).value().cache;
    return std::move(
        KvCache::create(
            model_.backend(), model_.model().caches,
            {.sizes = plan.sizes, .max_chunk_tokens = options_.step_tokens, .n_sequences = options_.max_sequences})
            .value());
  }
  std::unique_ptr<MtpDrafter> make_drafter(KvCache& cache) const {
    return std::move(MtpDrafter::create(model_, cache, largest_draft_step(options_)).value());
  }
  SequenceCache admit(KvCache& cache, std::span<const TokenId> tokens, int max_cached = 0) const {
    return std::move(cache.admit(tokens, max_cached)->sequence);
  }

  Sequence make_sequence(size_t n, uint32_t seed) const {
    Sequence out{.tokens = {}, .hidden = {}};
    std::mt19937 random(seed);
    while (out.tokens.size() < n) out.tokens.push_back(static_cast<TokenId>(random() % 90));
    const std::unique_ptr<KvCache> cache = make_cache();
    SequenceCache sequence = admit(*cache, out.tokens);
    ZINC_CHECK(cache->grow(sequence, static_cast<int>(n)));
    const std::unique_ptr<Plan> plan =
        std::move(model_.backend()
                      .compile(model_.model().graph, model_.weights(), cache->memory(), largest_step(options_))
                      .value());
    StepArrays arrays(cache->windows().size());
    arrays.clear();
    arrays.add(sequence, 0, out.tokens);
    arrays.request_hidden();
    plan->start(arrays.inputs());
    const StepOutput output = plan->wait().value();
    out.hidden.assign(output.hidden.begin(), output.hidden.end());
    cache->release(std::move(sequence));
    return out;
  }

  // The draft after the first n tokens, from an empty cache: all rows in one step, then one at a time. `unknown`: a
  // position whose hidden state the drafter does not have.
  Tokens draft_alone(const Sequence& of, size_t n, int max_tokens, size_t unknown = SIZE_MAX) const {
    const size_t dim = of.hidden.size() / of.tokens.size();
    const std::unique_ptr<KvCache> cache = make_cache();
    const std::unique_ptr<Plan> plan =
        std::move(model_.backend()
                      .compile(*model_.model().draft, model_.weights(), cache->memory(), largest_draft_step(options_))
                      .value());
    SequenceCache sequence = admit(*cache, std::span(of.tokens).first(n));
    ZINC_CHECK(cache->grow(sequence, static_cast<int>(n) + max_tokens));
    Tokens fed(of.tokens.begin(), of.tokens.begin() + static_cast<ptrdiff_t>(n)), draft;
    std::vector<float> hidden(dim, 0.0f);
    hidden.insert(hidden.end(), of.hidden.begin(), of.hidden.begin() + static_cast<ptrdiff_t>((n - 1) * dim));
    if (unknown < n - 1) std::fill_n(hidden.begin() + static_cast<ptrdiff_t>((unknown + 1) * dim), dim, 0.0f);
    for (int begin = 0; static_cast<int>(draft.size()) < max_tokens; begin = static_cast<int>(n + draft.size()) - 1) {
      StepArrays arrays(cache->windows().size());
      arrays.clear();
      arrays.add(sequence, begin, fed);
      arrays.request_greedy_token();
      arrays.request_hidden();
      StepInputs inputs = arrays.inputs();
      inputs.hidden = hidden;
      plan->start(inputs);
      const StepOutput output = plan->wait().value();
      draft.push_back(output.sampled[0]);
      fed = {draft.back()};
      hidden.assign(output.hidden.end() - static_cast<ptrdiff_t>(dim), output.hidden.end());
    }
    cache->release(std::move(sequence));
    return draft;
  }

  static void observe(MtpDrafter& drafter, RequestId id, const SequenceCache& cache, const Sequence& sequence,
                      size_t begin, size_t n) {
    drafter.observe({.id = id,
                     .cache = &cache,
                     .begin = static_cast<int>(begin),
                     .tokens = std::span(sequence.tokens).subspan(begin, n),
                     .hidden = sequence.hidden_of(begin, n)});
  }

  static Tokens draft(MtpDrafter& drafter, RequestId id, const SequenceCache& cache, const Sequence& sequence, size_t n,
                      int max_tokens) {
    DraftQuery query{
        .id = id, .tokens = std::span(sequence.tokens).first(n), .cache = &cache, .max_tokens = max_tokens};
    EXPECT_TRUE(drafter.draft({&query, 1}).ok());
    return query.draft;
  }

  const ModelInstance model_ =
      load_model({.name = GetParam().model, .backend = GetParam().backend->name, .draft = Draft::load});
  const EngineOptions options_ = {.max_sequences = kSequences, .context = kContext, .step_tokens = 128};
};

// Prompts in one or more chunks; then rounds with 0 to k accepted tokens and steps without a draft.
TEST_P(MtpDrafterTest, drafts_are_those_of_the_block_run_alone) {
  const size_t n_output = is_slow(*GetParam().backend) ? 8 : 40;
  const std::unique_ptr<KvCache> cache = make_cache();
  const std::unique_ptr<MtpDrafter> drafter = make_drafter(*cache);
  constexpr std::array<size_t, kSequences> kPrompts = {1, 31, 70};
  std::vector<Sequence> sequences;
  std::vector<SequenceCache> caches(kSequences);
  std::vector<size_t> n_fed;  // to the target
  for (size_t i = 0; i < kSequences; ++i) {
    sequences.push_back(make_sequence(kPrompts[i] + n_output, static_cast<uint32_t>(i)));
    caches[i] = admit(*cache, std::span(sequences[i].tokens).first(kPrompts[i]));
    ASSERT_TRUE(cache->grow(caches[i], static_cast<int>(kPrompts[i])));
    for (size_t begin = 0; begin < kPrompts[i]; begin += 40) {
      observe(*drafter, i, caches[i], sequences[i], begin, std::min<size_t>(40, kPrompts[i] - begin));
    }
    caches[i].n_tokens = static_cast<int>(kPrompts[i]);
    n_fed.push_back(kPrompts[i]);
  }
  for (size_t round = 0;; ++round) {
    std::vector<DraftQuery> queries;
    for (size_t i = 0; i < kSequences; ++i) {
      if ((round + i) % 4 == 3 || n_fed[i] + 1 > sequences[i].tokens.size()) continue;
      const int k = 1 + static_cast<int>((round + i) % 3);
      ASSERT_TRUE(cache->grow(caches[i], static_cast<int>(n_fed[i]) + 1 + k));
      queries.push_back({.id = i,
                         .tokens = std::span(sequences[i].tokens).first(n_fed[i] + 1),
                         .cache = &caches[i],
                         .max_tokens = k});
    }
    ASSERT_TRUE(drafter->draft(queries).ok());
    for (const DraftQuery& query : queries) {
      EXPECT_EQ(query.draft, draft_alone(sequences[query.id], query.tokens.size(), query.max_tokens))
          << query.id << " at " << query.tokens.size();
    }
    bool has_more = false;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t n_rows = std::min(1 + round % 3, sequences[i].tokens.size() - n_fed[i]);
      if (n_rows == 0) continue;
      has_more = true;
      ASSERT_TRUE(cache->grow(caches[i], static_cast<int>(n_fed[i] + n_rows)));
      observe(*drafter, i, caches[i], sequences[i], n_fed[i], n_rows);
      n_fed[i] += n_rows;
      caches[i].n_tokens = static_cast<int>(n_fed[i]);
    }
    if (!has_more) break;
  }
  for (size_t i = 0; i < kSequences; ++i) {
    drafter->remove(i);
    cache->release(std::move(caches[i]));
  }
  for (const PagePool& pool : cache->pools().pages) EXPECT_EQ(pool.n_pinned(), 0);
}

// The rows of a removed sequence are in its pages, also those that were not drafted from. Only the hidden state before
// the first new token is unknown.
TEST_P(MtpDrafterTest, a_prefix_cache_hit_has_the_rows_of_the_block) {
  const std::unique_ptr<KvCache> cache = make_cache();
  const std::unique_ptr<MtpDrafter> drafter = make_drafter(*cache);
  const Sequence sequence = make_sequence(60, 4);
  const std::span<const TokenId> tokens = sequence.tokens;
  SequenceCache first = admit(*cache, tokens.first(45));
  ASSERT_TRUE(cache->grow(first, 45));
  observe(*drafter, 1, first, sequence, 0, 20);
  observe(*drafter, 1, first, sequence, 20, 25);
  drafter->remove(1);
  first.n_tokens = 45;
  cache->finish(std::move(first), tokens.first(45));

  SequenceCache second = admit(*cache, tokens, 59);
  ASSERT_EQ(second.n_tokens, 45);
  ASSERT_TRUE(cache->grow(second, 60));
  EXPECT_EQ(draft(*drafter, 2, second, sequence, 46, 2), Tokens());  // nothing is observed yet
  observe(*drafter, 2, second, sequence, 45, 5);
  EXPECT_EQ(draft(*drafter, 2, second, sequence, 51, 3), draft_alone(sequence, 51, 3, 44));
  EXPECT_EQ(draft(*drafter, 2, second, sequence, 51, 3), Tokens());  // no new row
  observe(*drafter, 2, second, sequence, 50, 4);
  EXPECT_EQ(draft(*drafter, 2, second, sequence, 55, 3), draft_alone(sequence, 55, 3, 44));
  drafter->remove(2);
  cache->release(std::move(second));
}

// A position that is observed again replaces what followed it.
TEST_P(MtpDrafterTest, rows_that_are_observed_again_replace_the_later_ones) {
  const std::unique_ptr<KvCache> cache = make_cache();
  const std::unique_ptr<MtpDrafter> drafter = make_drafter(*cache);
  const Sequence sequence = make_sequence(40, 5), other = make_sequence(40, 6);
  SequenceCache pages = admit(*cache, sequence.tokens);
  ASSERT_TRUE(cache->grow(pages, 40));
  observe(*drafter, 1, pages, sequence, 0, 10);
  observe(*drafter, 1, pages, other, 10, 8);
  observe(*drafter, 1, pages, sequence, 10, 6);  // none of the rows is written yet
  EXPECT_EQ(draft(*drafter, 1, pages, sequence, 17, 2), draft_alone(sequence, 17, 2));
  observe(*drafter, 1, pages, other, 16, 12);
  drafter->flush(1);
  observe(*drafter, 1, pages, sequence, 12, 10);  // these are: the hidden state of position 11 is gone
  EXPECT_EQ(draft(*drafter, 1, pages, sequence, 23, 2), draft_alone(sequence, 23, 2, 11));
  cache->release(std::move(pages));
}

class MtpRoundsTest : public MtpDrafterTest {};

TEST_P(MtpRoundsTest, ten_thousand_rounds_write_the_same_rows) {
  const std::unique_ptr<KvCache> cache = make_cache();
  const std::unique_ptr<MtpDrafter> drafter = make_drafter(*cache);
  const Sequence sequence = make_sequence(100, 8);
  std::map<size_t, Tokens> seen;  // by length
  std::mt19937 random(9);
  SequenceCache pages = admit(*cache, sequence.tokens);
  ASSERT_TRUE(cache->grow(pages, 100));
  size_t n_fed = 0;
  for (int round = 0; round < 10'000; ++round) {
    const size_t n = std::min<size_t>(1 + random() % 4, 96 - n_fed);
    observe(*drafter, 1, pages, sequence, n_fed, n);
    n_fed += n;
    const Tokens drafted = draft(*drafter, 1, pages, sequence, n_fed + 1, 3);
    ASSERT_EQ(drafted, seen.try_emplace(n_fed, drafted).first->second) << n_fed;
    if (n_fed < 96) continue;
    drafter->remove(1);
    n_fed = 0;
  }
  EXPECT_EQ(seen.at(96), draft_alone(sequence, 97, 3));
  drafter->remove(1);
  cache->release(std::move(pages));
  EXPECT_EQ(cache->pools().pages[0].n_pinned(), 0);
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo* backend : available_backends()) {
    all.push_back({backend, "qwen35moe-q8_0"});
    if (!is_slow(*backend)) {
      for (const std::string_view model : {"tiny qwen35", "tiny qwen3next"}) all.push_back({backend, model});
    }
  }
  return all;
}
std::string test_name(const testing::TestParamInfo<Subject>& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, MtpDrafterTest, testing::ValuesIn(subjects()), test_name);
INSTANTIATE_TEST_SUITE_P(All, MtpRoundsTest, testing::Values(Subject{find_backend("cpu").value(), "qwen35moe-q8_0"}),
                         test_name);

}  // namespace
}  // namespace zinc
