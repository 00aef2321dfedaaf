// KvCache without a model: a fake device whose pages hold, for each position, a hash of all tokens up to it. Pages from
// the prefix cache must hold the hashes of exactly these tokens.
#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include <algorithm>
#include <cstring>
#include <random>

#include "cache/cache_plan.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

using Hash = uint64_t;
using Tokens = std::vector<TokenId>;
constexpr Hash kGarbage = 0xDEAD;

std::vector<Hash> hashes_of(std::span<const TokenId> tokens) {
  std::vector<Hash> hashes;
  Hash hash = 14695981039346656037u;
  for (const TokenId token : tokens) hashes.push_back(hash = (hash ^ static_cast<Hash>(token)) * 1099511628211u);
  return hashes;
}

class HashMemory final : public CacheMemory {
 public:
  explicit HashMemory(const CacheSizes& sizes, bool has_states) : has_states_(has_states) {
    for (const int n : sizes.n_pages) pages.emplace_back(static_cast<size_t>(n) * kPageTokens, kGarbage);
    states.assign(static_cast<size_t>(sizes.n_slots), kGarbage);
    n_prefaulted.assign(pages.size(), 0);
  }
  void prefault_pages(int group, PageId first, int n_pages) override {
    int& n = n_prefaulted[static_cast<size_t>(group)];
    EXPECT_GE(first, n) << "prefaulted twice";
    n = first + n_pages;
  }
  Hash* page(size_t group, PageId page) { return pages[group].data() + page * kPageTokens; }
  void copy_page(int group, PageId from, PageId to) override {
    std::copy_n(page(static_cast<size_t>(group), from), kPageTokens, page(static_cast<size_t>(group), to));
  }
  void copy_state(int from, int to) override { states[static_cast<size_t>(to)] = states[static_cast<size_t>(from)]; }
  size_t device_bytes() const override { return 0; }
  size_t page_bytes(int) const override { return sizeof(Hash) * kPageTokens; }
  size_t state_bytes() const override { return has_states_ ? sizeof(Hash) : 0; }
  Status read_page(int group, PageId from, std::span<std::byte> out) override {
    std::memcpy(out.data(), page(static_cast<size_t>(group), from), out.size());
    return ok_status();
  }
  Status write_page(int group, PageId to, std::span<const std::byte> in) override {
    std::memcpy(page(static_cast<size_t>(group), to), in.data(), in.size());
    return ok_status();
  }
  Status read_state(int slot, std::span<std::byte> out) override {
    std::memcpy(out.data(), &states[static_cast<size_t>(slot)], out.size());
    return ok_status();
  }
  Status write_state(int slot, std::span<const std::byte> in) override {
    std::memcpy(&states[static_cast<size_t>(slot)], in.data(), in.size());
    return ok_status();
  }

  std::vector<std::vector<Hash>> pages;  // per group
  std::vector<Hash> states;
  std::vector<int> n_prefaulted;  // per group

 private:
  bool has_states_;
};

class HashBackend final : public Backend {
 public:
  DeviceInfo info() const override { return {}; }
  DevicePeaks measure_peaks() override { return {}; }
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const>, const ReleaseFilePages&) override {
    return unsupported();
  }
  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    return std::unique_ptr<CacheMemory>(std::make_unique<HashMemory>(sizes, zinc::state_bytes(layers) > 0));
  }
  Result<std::unique_ptr<Plan>> compile(const Graph&, DeviceWeights&, CacheMemory&, const Bucket&) override {
    return unsupported();
  }
  std::unique_ptr<Backend> without_memory() override { return std::make_unique<HashBackend>(); }

 private:
  static Error unsupported() { return fail(ErrorCode::unsupported, "not implemented"); }
};

struct Kind {
  std::string name;
  std::vector<int> windows;
  bool has_states;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

constexpr int kMaxChunk = 20, kMaxLength = 200, kMaxSequences = 4;

class KvCacheTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    cache = make_cache();
    memory = static_cast<HashMemory*>(&cache->memory());
  }

  std::unique_ptr<KvCache> make_cache() {
    std::vector<LayerCache> layers;
    KvCacheOptions options{
        .sizes = {.n_pages = {}, .max_length = kMaxLength, .n_slots = kMaxSequences, .kv_format = &k_f32},
        .max_chunk_tokens = kMaxChunk,
        .n_sequences = kMaxSequences,
        .n_draft_slots = 3};
    for (const int window : GetParam().windows) {
      layers.push_back({{.kv_heads = 1, .k_dim = 1, .v_dim = 1, .window = window}, {}});
      options.sizes.n_pages.push_back(window == 0 ? 15 : 2 * window_pages(window, kMaxChunk, kMaxLength) + 3);
    }
    if (GetParam().has_states) {
      layers.push_back({{}, {.heads = 1, .k_dim = 1, .v_dim = 1}});
      options.sizes.n_slots += 3;
    }
    return std::move(KvCache::create(backend, layers, options).value());
  }

  // Feeds all tokens and inserts them into the prefix cache.
  void insert(const Tokens& tokens, CacheNamespace cache_namespace = kSharedNamespace, double cache_share = 1) {
    const int n = static_cast<int>(tokens.size());
    Admission admission = std::move(cache->admit(tokens, n - 1, cache_namespace).value());
    admission.sequence.cache_share = cache_share;
    while (admission.sequence.n_tokens < n) {
      feed(admission.sequence, tokens, std::min(n, admission.sequence.n_tokens + kMaxChunk));
    }
    cache->finish(std::move(admission.sequence), tokens);
  }
  int n_found(const Tokens& tokens, CacheNamespace cache_namespace = kSharedNamespace) {
    const int n_most = static_cast<int>(tokens.size()) - 1;
    Admission admission = std::move(cache->admit(tokens, n_most, cache_namespace).value());
    check(admission.sequence, tokens);
    const int n = admission.sequence.n_tokens;
    cache->release(std::move(admission.sequence));
    return n;
  }
  void restart() {
    cache = make_cache();
    memory = static_cast<HashMemory*>(&cache->memory());
  }

  // Checks everything that a step at position n_tokens would read.
  void check(const SequenceCache& sequence, const Tokens& tokens) {
    const std::vector<Hash> hashes = hashes_of(tokens);
    for (size_t g = 0; g < cache->windows().size(); ++g) {
      const int window = cache->windows()[g];
      for (int p = window == 0 ? 0 : std::max(0, sequence.n_tokens - window + 1); p < sequence.n_tokens; ++p) {
        const PageId page = sequence.pages[g][static_cast<size_t>(p / kPageTokens)];
        ASSERT_NE(page, kNoPage) << "group " << g << ", position " << p;
        ASSERT_EQ(memory->page(g, page)[p % kPageTokens], hashes[static_cast<size_t>(p)])
            << "group " << g << ", position " << p << " of " << sequence.n_tokens;
      }
    }
    if (cache->has_states() && sequence.n_tokens > 0) {
      ASSERT_EQ(memory->states[static_cast<size_t>(sequence.slot)], hashes[static_cast<size_t>(sequence.n_tokens) - 1]);
    }
  }

  // Simulates the device.
  void feed(SequenceCache& sequence, const Tokens& tokens, int end) {
    ASSERT_TRUE(cache->grow(sequence, sequence.n_tokens, end));
    write(sequence, tokens, end);
  }
  void write(SequenceCache& sequence, const Tokens& tokens, int end) {
    check(sequence, tokens);
    const std::vector<Hash> hashes = hashes_of(tokens);
    for (size_t g = 0; g < cache->windows().size(); ++g) {
      for (int p = sequence.n_tokens; p < end; ++p) {
        memory->page(g, sequence.pages[g][static_cast<size_t>(p / kPageTokens)])[p % kPageTokens] =
            hashes[static_cast<size_t>(p)];
      }
    }
    memory->states[static_cast<size_t>(sequence.slot)] = hashes[static_cast<size_t>(end) - 1];
    sequence.n_tokens = end;
  }

  void write_rows(SequenceCache& sequence, const Tokens& tokens, int end);

  HashBackend backend;
  std::unique_ptr<KvCache> cache;
  HashMemory* memory = nullptr;
  const TestFolder folder;
  const std::filesystem::path path = folder / "prefixes";
};

std::span<const TokenId> fed(const SequenceCache& sequence, const Tokens& tokens) {
  return std::span(tokens).first(static_cast<size_t>(sequence.n_tokens));
}

struct Running {
  SequenceCache cache;
  Tokens tokens;  // all tokens it will be fed
};

// The first use of memory causes page faults: no step may use more pages than were prefaulted before.
TEST_P(KvCacheTest, pages_are_prefaulted_before_they_are_allocated) {
  std::mt19937 random(3);
  Tokens tokens(kMaxLength);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 1000);
  SequenceCache sequence = std::move(cache->admit(tokens, 0)->sequence);
  for (int end = 1; end <= kMaxLength; ++end) {
    ASSERT_TRUE(cache->grow(sequence, sequence.n_tokens, end));
    for (size_t g = 0; g < sequence.pages.size(); ++g) EXPECT_LT(sequence.pages[g].back(), memory->n_prefaulted[g]);
    sequence.n_tokens = end;
    cache->prefault_pages(1);
  }
  for (size_t g = 0; g < sequence.pages.size(); ++g)
    EXPECT_LE(memory->n_prefaulted[g], cache->pools().pages[g].n_total());
  cache->release(std::move(sequence));
}

TEST_P(KvCacheTest, a_sequence_reads_its_own_tokens_after_sharing_copies_evictions_and_cancellations) {
  std::mt19937 random(5);
  std::vector<Tokens> texts = {{1, 2, 3}};
  std::vector<Running> running;
  int n_hits = 0, n_rejected = 0, n_preempted = 0, n_ends = 0;
  for (int round = 0; round < 6000; ++round) {
    if (running.size() < kMaxSequences && random() % 4 == 0) {
      Tokens tokens = texts[random() % texts.size()];
      tokens.resize(std::min<size_t>(random() % (tokens.size() + 1), 60));
      for (size_t n = 1 + random() % 140; n > 0; --n) tokens.push_back(static_cast<TokenId>(random() % 3));
      const size_t n_prompt = 1 + random() % tokens.size();  // the rest is output, for which nothing is reserved
      std::optional<Admission> admission =
          cache->admit(std::span(tokens).first(n_prompt), static_cast<int>(n_prompt) - 1);
      if (!admission) {
        ASSERT_FALSE(running.empty()) << "an empty cache must admit any request";
        ++n_rejected;
        continue;
      }
      n_hits += admission->sequence.n_tokens > 0 ? 1 : 0;
      ASSERT_NO_FATAL_FAILURE(check(admission->sequence, tokens));
      running.push_back({std::move(admission->sequence), std::move(tokens)});
    }
    if (running.empty()) continue;
    const size_t which = random() % running.size();
    Running& one = running[which];
    const int left = static_cast<int>(one.tokens.size()) - one.cache.n_tokens;
    const uint32_t choice = static_cast<uint32_t>(random() % 16);
    if (left > 0 && choice > 0) {
      const int end = one.cache.n_tokens + std::min(left, 1 + static_cast<int>(random() % kMaxChunk));
      if (!cache->grow(one.cache, one.cache.n_tokens, end)) {
        ASSERT_GT(running.size(), 1u) << "a sequence that runs alone can always grow";
        Running& youngest = running.back();
        const std::span<const TokenId> so_far = fed(youngest.cache, youngest.tokens);
        cache->finish(std::move(youngest.cache), so_far);
        running.pop_back();
        ++n_preempted;
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(write(one.cache, one.tokens, end));
      if (choice < 4) cache->insert_prefix(one.cache, fed(one.cache, one.tokens));
      continue;
    }
    const std::span<const TokenId> all = fed(one.cache, one.tokens);
    if (choice == 1) {
      cache->release(std::move(one.cache));
    } else {
      cache->finish(std::move(one.cache), all);
    }
    ++n_ends;
    texts.push_back(std::move(one.tokens));
    if (texts.size() > 12) texts.erase(texts.begin());
    running.erase(running.begin() + static_cast<ptrdiff_t>(which));
  }
  for (Running& one : running) cache->release(std::move(one.cache));
  EXPECT_GT(n_hits, 50);
  const bool has_pages = !GetParam().windows.empty();
  EXPECT_TRUE(n_rejected > 10 || !has_pages) << n_rejected;
  EXPECT_TRUE(n_preempted > 10 || !has_pages) << n_preempted;
  EXPECT_TRUE(cache->prefix_cache().n_evicted_pages() > 100 || !has_pages);
  EXPECT_GT(n_ends, 300);
  for (const PagePool& pool : cache->pools().pages) EXPECT_EQ(pool.n_pinned(), 0);
  EXPECT_EQ(cache->pools().states.n_pinned(), 0);

  // No page leaked: one sequence after the other uses all of them again.
  for (int i = 0; i < 40; ++i) {
    const Tokens tokens(kMaxLength, 100 + i);
    std::optional<Admission> admission = cache->admit(tokens, 0);
    ASSERT_TRUE(admission.has_value());
    while (admission->sequence.n_tokens < kMaxLength) {
      feed(admission->sequence, tokens, std::min(kMaxLength, admission->sequence.n_tokens + kMaxChunk));
    }
    cache->release(std::move(admission->sequence));
  }
}

// Simulates a verification step on the device: the rows from n_tokens up to `end`, whose tokens may all be wrong
// drafts.
void KvCacheTest::write_rows(SequenceCache& sequence, const Tokens& tokens, int end) {
  check(sequence, tokens);
  const std::vector<Hash> hashes = hashes_of(tokens);
  for (int p = sequence.n_tokens; p < end; ++p) {
    for (size_t g = 0; g < cache->windows().size(); ++g) {
      memory->page(g, sequence.pages[g][static_cast<size_t>(p / kPageTokens)])[p % kPageTokens] =
          hashes[static_cast<size_t>(p)];
    }
    if (!cache->has_states()) continue;
    const int row = p - sequence.n_tokens;
    const int slot = row == 0 ? sequence.slot : sequence.draft_slots.at(static_cast<size_t>(row) - 1);
    memory->states[static_cast<size_t>(slot)] = hashes[static_cast<size_t>(p)];
  }
}

TEST_P(KvCacheTest, rounds_of_drafts_and_rejections_leak_neither_pages_nor_slots) {
  std::mt19937 random(7);
  std::vector<Running> running;
  const auto random_tokens = [&](size_t n) {
    Tokens tokens(n);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 3);
    return tokens;
  };
  int n_rounds = 0, n_without_slots = 0, n_partly_kept = 0, n_ends = 0;
  while (n_rounds < 10'000) {
    if (running.size() < kMaxSequences && random() % 8 == 0) {
      Tokens tokens = random_tokens(1 + random() % 120);
      if (std::optional<Admission> admission = cache->admit(tokens, static_cast<int>(tokens.size()) - 1)) {
        running.push_back({std::move(admission->sequence), std::move(tokens)});
      }
    }
    if (running.empty()) continue;
    const size_t which = random() % running.size();
    Running& one = running[which];
    const int n_prompt = static_cast<int>(one.tokens.size());
    if (one.cache.n_tokens < n_prompt) {  // its prompt
      const int end = std::min(n_prompt, one.cache.n_tokens + kMaxChunk);
      ASSERT_NO_FATAL_FAILURE(feed(one.cache, one.tokens, end));
      continue;
    }
    const int n_drafts = static_cast<int>(random() % 8), end = one.cache.n_tokens + 1 + n_drafts;
    const bool ends = end > kMaxLength || random() % 32 == 0;
    if (ends || !cache->grow(one.cache, end)) {
      if (random() % 2 == 0) {
        cache->finish(std::move(one.cache), one.tokens);
      } else {
        cache->release(std::move(one.cache));
      }
      running.erase(running.begin() + static_cast<ptrdiff_t>(which));
      ++n_ends;
      continue;
    }
    ++n_rounds;
    const bool has_slots = cache->allocate_draft_slots(one.cache, n_drafts);
    n_without_slots += has_slots ? 0 : 1;
    const int n_rows = has_slots ? 1 + n_drafts : 1;
    Tokens drafted = one.tokens;
    for (const TokenId token : random_tokens(static_cast<size_t>(n_rows))) drafted.push_back(token);
    ASSERT_NO_FATAL_FAILURE(write_rows(one.cache, drafted, one.cache.n_tokens + n_rows));
    const int n_kept = 1 + static_cast<int>(random() % static_cast<uint32_t>(n_rows));
    n_partly_kept += n_kept < n_rows ? 1 : 0;
    drafted.resize(one.tokens.size() + static_cast<size_t>(n_kept));
    one.tokens = std::move(drafted);
    cache->accept_rows(one.cache, n_kept);
    ASSERT_EQ(one.cache.n_tokens, static_cast<int>(one.tokens.size()));
    ASSERT_NO_FATAL_FAILURE(check(one.cache, one.tokens));  // also the window of the next position
    for (size_t g = 0; g < one.cache.pages.size(); ++g) {
      ASSERT_EQ(std::ssize(one.cache.pages[g]), pages_of(one.cache.n_tokens));
    }
    if (random() % 8 == 0) cache->insert_prefix(one.cache, one.tokens);
    if (random() % 8 == 0) cache->release_draft_slots(one.cache);
  }
  for (Running& one : running) cache->release(std::move(one.cache));
  EXPECT_GT(n_partly_kept, 1000);
  EXPECT_GT(n_ends, 200);
  EXPECT_EQ(n_without_slots > 100, GetParam().has_states) << n_without_slots;
  for (const PagePool& pool : cache->pools().pages) EXPECT_EQ(pool.n_pinned(), 0);
  EXPECT_EQ(cache->pools().states.n_pinned(), 0);
}

TEST_P(KvCacheTest, a_prompt_is_not_admitted_without_a_slot) {
  std::vector<SequenceCache> sequences;
  while (true) {
    std::optional<Admission> admission = cache->admit(Tokens(3, 1), 2);
    if (!admission) break;
    sequences.push_back(std::move(admission->sequence));
  }
  EXPECT_EQ(std::ssize(sequences), cache->pools().states.n_total());
  const uint64_t version = cache->version();
  cache->finish(std::move(sequences.back()), {});
  sequences.pop_back();
  EXPECT_GT(cache->version(), version);
  std::optional<Admission> admission = cache->admit(Tokens(3, 1), 2);
  ASSERT_TRUE(admission.has_value());
  sequences.push_back(std::move(admission->sequence));
  for (SequenceCache& sequence : sequences) cache->release(std::move(sequence));
}

TEST_P(KvCacheTest, draft_slots_are_shared_and_leave_a_slot_for_each_sequence_that_may_be_admitted) {
  if (!GetParam().has_states) return;
  std::vector<SequenceCache> sequences;
  for (TokenId token = 0; token < kMaxSequences; ++token) {
    std::optional<Admission> admission = cache->admit(Tokens(3, token), 0);
    ASSERT_TRUE(admission.has_value());
    sequences.push_back(std::move(admission->sequence));
    EXPECT_EQ(cache->allocate_draft_slots(sequences.back(), 2), token == 0);  // three slots are spare
    EXPECT_EQ(sequences.back().draft_slots.size(), token == 0 ? 2u : 0u);
  }
  EXPECT_TRUE(cache->allocate_draft_slots(sequences[1], 1));
  const uint64_t version = cache->version();
  EXPECT_FALSE(cache->allocate_draft_slots(sequences[0], 3));
  EXPECT_EQ(sequences[0].draft_slots.size(), 2u);
  EXPECT_TRUE(cache->allocate_draft_slots(sequences[0], 1));  // one is freed
  EXPECT_GT(cache->version(), version);
  EXPECT_TRUE(cache->allocate_draft_slots(sequences[2], 1));
  for (SequenceCache& sequence : sequences) cache->release(std::move(sequence));
  EXPECT_EQ(cache->pools().states.n_pinned(), 0);
}

TEST_P(KvCacheTest, the_pages_of_an_admitted_prompt_are_available_when_needed) {
  std::vector<Running> running;
  for (TokenId first = 0;; ++first) {  // as many as are admitted, before any of them allocates a page
    if (running.size() == kMaxSequences) break;
    const Tokens tokens(kMaxLength, first);
    std::optional<Admission> admission = cache->admit(tokens, kMaxLength - 1);
    if (!admission) break;
    running.push_back({std::move(admission->sequence), tokens});
  }
  ASSERT_GE(running.size(), 2u);
  for (int end = kMaxChunk; end <= kMaxLength; end += kMaxChunk) {
    for (Running& one : running) ASSERT_NO_FATAL_FAILURE(feed(one.cache, one.tokens, end));
  }
  for (Running& one : running) ASSERT_NO_FATAL_FAILURE(check(one.cache, one.tokens));
}

// Evicting a state for the new checkpoint may prune the nodes after it, and with them the node that was inserted.
TEST_P(KvCacheTest, a_prefix_is_inserted_even_if_its_state_evicts_the_continuation) {
  if (!GetParam().has_states) return;
  insert({10, 11, 12, 13});
  for (TokenId token = 1; cache->pools().states.n_free() > 1; ++token) insert(Tokens(4, token));
  const Tokens two = {10, 11};
  Admission admission = std::move(cache->admit(two, 0).value());
  feed(admission.sequence, two, 2);
  cache->insert_prefix(admission.sequence, two);
  cache->release(std::move(admission.sequence));
  EXPECT_EQ(n_found({10, 11, 7}), 2);
}

constexpr Sha256::Digest kKey = {1, 2, 3}, kOtherKey = {1, 2, 4};

TEST_P(KvCacheTest, a_saved_cache_is_readable_by_its_owner_only) {
  insert(Tokens(90, 1));
  ASSERT_TRUE(cache->save(path, kKey).ok());
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
}

TEST_P(KvCacheTest, a_saved_cache_is_found_after_a_restart) {
  Tokens a(90, 1), b(90, 1);
  for (size_t i = 50; i < 90; ++i) b[i] = 2;
  insert(a);
  insert(b);
  ASSERT_TRUE(cache->save(path, kKey).ok());
  restart();
  ASSERT_TRUE(cache->load(path, kKey).ok());
  for (Tokens tokens : {a, b}) {
    tokens.push_back(7);
    EXPECT_EQ(n_found(tokens), 90);
  }
  EXPECT_EQ(cache->pools().states.n_pinned(), 0);
  for (const PagePool& pool : cache->pools().pages) EXPECT_EQ(pool.n_pinned(), 0);
  for (TokenId token = 10; token < 30; ++token) insert(Tokens(kMaxLength, token));  // and evicts when needed
}

TEST_P(KvCacheTest, namespaces_are_isolated_also_after_a_restart) {
  const Tokens same(91, 1);
  insert(Tokens(90, 1), 7);
  const auto check_isolation = [&] {
    EXPECT_EQ(n_found(same, 8), 0);
    EXPECT_EQ(n_found(same), 0);
    EXPECT_EQ(cache->admit(same, 90, 8)->n_common, 0);
    EXPECT_EQ(n_found(same, 7), 90);
  };
  check_isolation();
  ASSERT_TRUE(cache->save(path, kKey).ok());
  restart();
  ASSERT_TRUE(cache->load(path, kKey).ok());
  check_isolation();
  insert(Tokens(60, 1), 8);
  EXPECT_EQ(n_found(same, 8), 60);
  EXPECT_EQ(n_found(same, 7), 90);
}

TEST_P(KvCacheTest, a_namespace_keeps_at_most_its_share_of_the_pools) {
  constexpr CacheNamespace kLimited = 7;
  const auto tokens = [](TokenId first) {
    Tokens out(40);
    std::iota(out.begin(), out.end(), first);
    return out;
  };
  insert(tokens(1000));  // of another namespace, the least recently used of all
  for (TokenId first = 0; first < 5; ++first) insert(tokens(100 * first), kLimited, 0.25);
  const auto n_kept = [&](const PagePool& pool, int n_others) { return pool.n_cached() - n_others; };
  for (const PagePool& pool : cache->pools().pages) EXPECT_LE(n_kept(pool, 2), pool.n_total() / 4);
  if (cache->has_states()) {
    EXPECT_LE(n_kept(cache->pools().states, 1), cache->pools().states.n_total() / 4);
  }
  const auto longer = [&](TokenId first) {
    Tokens out = tokens(first);
    out.push_back(1);
    return out;
  };
  EXPECT_EQ(n_found(longer(1000)), 40) << "other namespaces keep theirs";
  EXPECT_EQ(n_found(longer(0), kLimited), 0);
  insert(tokens(0), kLimited, 0);
  for (const PagePool& pool : cache->pools().pages) EXPECT_LE(n_kept(pool, 2), 0);
}

TEST_P(KvCacheTest, a_file_larger_than_the_cache_restores_the_most_recently_used_prefixes) {
  for (TokenId token = 0; token < 3; ++token) insert(Tokens(140, token));
  ASSERT_TRUE(cache->save(path, kKey).ok());
  restart();
  const Tokens other(180, 50);  // holds pages during the load
  Admission running = std::move(cache->admit(other, 0).value());
  while (running.sequence.n_tokens < 180)
    feed(running.sequence, other, std::min(180, running.sequence.n_tokens + kMaxChunk));
  ASSERT_TRUE(cache->load(path, kKey).ok());
  check(running.sequence, other);
  cache->release(std::move(running.sequence));
  EXPECT_EQ(n_found(Tokens(141, 2)), 140);
}

TEST_P(KvCacheTest, a_file_of_another_model_or_a_corrupt_one_is_rejected) {
  insert(Tokens(90, 1));
  ASSERT_TRUE(cache->save(path, kKey).ok());
  restart();
  EXPECT_EQ(cache->load(path, kOtherKey).error().code, ErrorCode::unsupported);
  std::string bytes = contents(path);
  bytes[bytes.size() / 2] ^= 1;
  put(path, bytes);
  EXPECT_EQ(cache->load(path, kKey).error().code, ErrorCode::invalid_input);
  put(path, bytes.substr(0, 30));
  EXPECT_EQ(cache->load(path, kKey).error().code, ErrorCode::invalid_input);
  EXPECT_EQ(n_found(Tokens(91, 1)), 0);
}

// With a valid checksum over corrupt content.
TEST_P(KvCacheTest, no_corrupt_file_makes_an_inconsistent_cache) {
  insert(Tokens(90, 1));
  insert(Tokens(50, 2));
  ASSERT_TRUE(cache->save(path, kKey).ok());
  const std::string good = contents(path);
  std::mt19937 random(3);
  int n_loaded = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good.substr(0, good.size() - sizeof kKey);
    for (int i = static_cast<int>(random() % 3); i >= 0; --i) {
      const size_t at = 40 + random() % 300;  // counts and records
      bytes[at] = random() % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(bytes[at] ^ 1);
    }
    if (random() % 8 == 0) bytes.resize(40 + random() % (bytes.size() - 40));
    Sha256 hash;
    hash.update(std::as_bytes(std::span(bytes)));
    const Sha256::Digest digest = hash.finish();
    bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
    put(path, bytes);
    restart();
    if (!cache->load(path, kKey).ok()) continue;
    ++n_loaded;
    for (TokenId token = 10; token < 14; ++token) insert(Tokens(kMaxLength, token));
  }
  EXPECT_GT(n_loaded, 0);
  EXPECT_LT(n_loaded, 400);
}

class FullLayersTest : public KvCacheTest {};

// 15 pages: one is for copies.
TEST_P(FullLayersTest, an_output_grows_until_the_pages_that_no_prompt_has_reserved_run_out) {
  Running a{std::move(cache->admit(Tokens{1}, 0)->sequence), Tokens(kMaxLength, 1)};
  Running b{std::move(cache->admit(Tokens(200, 2), 0)->sequence), Tokens(kMaxLength, 2)};  // 7 pages
  const auto grow_by_pages = [&](Running& one, int n_pages) {
    for (int i = 0; i < n_pages; ++i) {
      const int page_end = (one.cache.n_tokens / kPageTokens + 1) * kPageTokens;
      for (const int end : {page_end - kPageTokens / 2, page_end}) {
        if (!cache->grow(one.cache, one.cache.n_tokens, end)) return false;
        one.cache.n_tokens = end;
      }
    }
    return true;
  };
  EXPECT_TRUE(grow_by_pages(a, 6));
  Running c{std::move(cache->admit(Tokens{3}, 0)->sequence), {}};
  const std::vector<PageId> held = a.cache.pages[0];
  EXPECT_FALSE(grow_by_pages(a, 1));
  EXPECT_EQ(a.cache.pages[0], held);
  EXPECT_FALSE(cache->admit(Tokens{4}, 0).has_value());
  EXPECT_TRUE(cache->grow(c.cache, c.cache.n_tokens, 1)) << "the page of its prompt is reserved";
  EXPECT_TRUE(grow_by_pages(b, 6)) << "the pages of its prompt are reserved";
  const uint64_t version = cache->version();
  cache->release(std::move(c.cache));
  EXPECT_NE(cache->version(), version);
  EXPECT_TRUE(grow_by_pages(a, 1));
}

TEST_P(FullLayersTest, a_growing_sequence_evicts_prefixes_before_it_fails) {
  insert(Tokens(200, 5));
  EXPECT_EQ(cache->pools().pages[0].n_cached(), 7);
  SequenceCache a = std::move(cache->admit(Tokens(200, 6), 0)->sequence);
  SequenceCache b = std::move(cache->admit(Tokens{7}, 0)->sequence);
  const Tokens tokens(240, 7);
  for (int end = 20; end <= 220; end += 20) ASSERT_NO_FATAL_FAILURE(feed(b, tokens, end));
  EXPECT_EQ(cache->pools().pages[0].n_pinned(), 7);
  EXPECT_FALSE(cache->grow(b, b.n_tokens, 7 * kPageTokens + 1));
}

TEST_P(FullLayersTest, an_admission_leaves_the_watermark_to_running_sequences) {
  const SequenceCache running = std::move(cache->admit(Tokens(200, 1), 0)->sequence);  // 7 of 14 pages
  EXPECT_FALSE(cache->admit(Tokens(6 * kPageTokens, 2), 0, kSharedNamespace, 2).has_value());
  EXPECT_TRUE(cache->admit(Tokens(6 * kPageTokens, 2), 0, kSharedNamespace, 1).has_value());
}

TEST_P(FullLayersTest, a_partially_matched_page_is_attached_only_if_its_copy_fits) {
  const auto run = [&](const Tokens& tokens) {
    Admission admission = std::move(cache->admit(tokens, 0).value());
    while (admission.sequence.n_tokens < static_cast<int>(tokens.size())) {
      const int end = std::min(static_cast<int>(tokens.size()), admission.sequence.n_tokens + kMaxChunk);
      feed(admission.sequence, tokens, end);
    }
    return std::move(admission.sequence);
  };
  const Tokens text(40, 1), longer(64, 1);  // two pages, the second one partial
  cache->finish(run(text), text);
  SequenceCache a = run(Tokens(200, 2)), b = run(Tokens(192, 3));  // all the other 13 pages
  EXPECT_FALSE(cache->admit(longer, 63).has_value());
  cache->release(std::move(b));
  std::optional<Admission> admission = cache->admit(longer, 63);
  ASSERT_TRUE(admission.has_value());
  EXPECT_EQ(admission->sequence.n_tokens, 40);
  ASSERT_NO_FATAL_FAILURE(feed(admission->sequence, longer, 60));
  EXPECT_EQ(cache->admit(Tokens(41, 1), 40)->sequence.n_tokens, 40) << "the cached page is unchanged";
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, FullLayersTest, testing::Values(Kind{"dense", {0}, false}, Kind{"hybrid", {0}, true}),
                         kind_name);
INSTANTIATE_TEST_SUITE_P(Kinds, KvCacheTest,
                         testing::Values(Kind{"dense", {0}, false}, Kind{"sliding", {0, 40}, false},
                                         Kind{"only_sliding", {40}, false}, Kind{"hybrid", {0}, true},
                                         Kind{"hybrid_sliding", {0, 40, 70}, true}, Kind{"recurrent", {}, true}),
                         kind_name);

}  // namespace
}  // namespace zinc
