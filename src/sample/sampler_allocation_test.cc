// Counts every allocation of this test program, to show that a warm Sampler makes none.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "sample/sampler.h"

namespace {
std::atomic<long> n_allocations = 0;
}

void* operator new(size_t n_bytes) {
  ++n_allocations;
  if (void* memory = std::malloc(n_bytes)) return memory;
  std::abort();
}
void* operator new(size_t n_bytes, const std::nothrow_t&) noexcept {
  ++n_allocations;
  return std::malloc(n_bytes);
}
// Not inlined: GCC would match malloc, which it sees, with its own operator new, which it does not see.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace zinc {
namespace {

TEST(Sampler, allocates_nothing_once_warm) {
  std::vector<float> logits(10'000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 10'007) * 0.001f;
  std::vector<TokenId> history(2000);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<TokenId>(i % 300);
  SamplingParams everything{.top_p = 0.95f, .min_p = 0.01f, .repeat_penalty = 1.1f, .dry_multiplier = 0.8f};
  everything.repeat_last_n = kWholeHistory;
  everything.logit_bias = {{1, 2.0f}};
  SamplingParams with_top_k = everything;
  with_top_k.top_k = 40;
  const SamplingParams settings[] = {{.temperature = 0.0f}, {}, everything, with_top_k};

  Sampler sampler;
  Logprobs logprobs;
  const auto run = [&](uint64_t position) {
    for (const SamplingParams& params : settings) {
      const auto token = sampler.sample(logits, params, {.history = history, .position = position});
      ASSERT_TRUE(token.ok());
      sampler.logprobs(logits, token.value(), 20, logprobs);
    }
  };
  run(0);
  const long before = n_allocations;
  ASSERT_GT(before, 0);
  for (uint64_t position = 1; position < 20; ++position) run(position);
  EXPECT_EQ(n_allocations - before, 0);
}

}  // namespace
}  // namespace zinc
