// The decode loop: no allocation, no memory beyond the model's, and results that do not depend on how earlier tokens
// were chunked, at any depth of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/memory_info.h"
#include "engine/model_runner.h"
#include "sample/sampler.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_model.h"

// Counts allocations by interposing the C library's functions; sanitizers interpose them too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZINC_COUNTS_ALLOCATIONS 0
#else
#define ZINC_COUNTS_ALLOCATIONS 1
namespace {
std::atomic<size_t> n_allocations = 0;
}
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) {
  ++n_allocations;
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  ++n_allocations;
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  ++n_allocations;
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  ++n_allocations;
  return __libc_memalign(alignment, n);
}
}
#endif

namespace zinc {
namespace {

namespace fs = std::filesystem;

std::vector<TokenId> random_tokens(size_t n) {
  std::minstd_rand random;
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % kTinyVocabulary);
  return tokens;
}

std::vector<std::string> backends() {
  std::vector<std::string> names;
  for (const BackendInfo* const* info = kBackends; *info; ++info) {
    if ((*info)->is_available()) names.emplace_back((*info)->name);
  }
  return names;
}

class EveryTinyModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryTinyModel, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const TinyModel& model : tiny_models()) names.push_back(model.name);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST_P(EveryTinyModel, decoding_a_token_on_the_cpu_allocates_nothing) {
#if !ZINC_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "sanitizers interpose malloc themselves";
#else
  const TestFolder folder;
  const fs::path file = put(folder / "model.gguf", make_gguf(tiny_model(GetParam())));
  const ModelInstance model = std::move(ModelInstance::load(file, {.backend = "cpu", .n_threads = 2}).value());
  ModelRunner runner = std::move(ModelRunner::create(model, {.context = 200, .step_tokens = 64}).value());
  const std::vector<TokenId> prompt = random_tokens(70);
  ASSERT_TRUE(runner.feed(prompt).ok());
  Sampler sampler;
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 20;
  std::vector<float> logits(static_cast<size_t>(kTinyVocabulary));
  TokenId token = 1;
  const auto make_tokens = [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      const Result<std::span<float> > row = runner.feed({&token, 1});
      std::ranges::copy(row.value(), logits.begin());
      token = sampler.sample(logits, params, {.position = i}).value();
    }
  };
  make_tokens(1);  // the sampler's buffers grow on their first use
  const size_t before = n_allocations;
  ASSERT_GT(before, 0u) << "malloc is not interposed";
  make_tokens(100);
  EXPECT_EQ(n_allocations - before, 0u);
#endif
}

TEST_P(EveryTinyModel, deep_in_the_cache_chunk_size_and_threads_do_not_change_a_bit) {
  const TestFolder folder;
  const fs::path file = put(folder / "model.gguf", make_gguf(tiny_model(GetParam())));
  const std::vector<TokenId> tokens = random_tokens(1100);  // more than two KV chunks of attention
  const auto logits_of = [&](const std::string& backend, int n_threads, int chunk_tokens, size_t n_single) {
    const ModelInstance model =
        std::move(ModelInstance::load(file, {.backend = backend, .n_threads = n_threads}).value());
    ModelRunner runner = std::move(ModelRunner::create(model, {.context = 1200, .step_tokens = chunk_tokens}).value());
    const std::span<const TokenId> all = tokens;
    std::span<const float> row = runner.feed(all.first(all.size() - n_single)).value();
    for (const TokenId& token : all.last(n_single)) row = runner.feed({&token, 1}).value();
    return std::vector<float>(row.begin(), row.end());
  };
  const TinyModel tiny = tiny_model(GetParam());
  const bool is_hybrid =
      std::ranges::any_of(tiny.metadata, [](const TinyKey& key) { return key.name.starts_with("ssm."); });
  for (const std::string& backend : backends()) {
    if (backend == "reference") continue;  // the same loop for every batch, and slow
    const std::vector<float> whole = logits_of(backend, 2, 1100, 0);
    EXPECT_EQ(logits_of(backend, 1, 512, 0), whole) << backend;
    if (is_hybrid && backend != "cpu") {  // GPUs scan the gated delta rule in chunks of 64 tokens
      EXPECT_EQ(logits_of(backend, 3, 128, 0), whole) << backend;
    } else {
      EXPECT_EQ(logits_of(backend, 3, 67, 3), whole) << backend;
    }
  }
}

// A tiny model would be negligible compared with the process's own memory; this one has 80 MB of weights.
TEST(Memory, a_loaded_model_uses_little_more_memory_than_file_cache_and_activations) {
#if !ZINC_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "a sanitizer adds its own memory";
#else
  TinyModel large = tiny_model("qwen3");
  for (TinyKey& key : large.metadata) {
    if (key.name == "feed_forward_length") key.value = uint32_t{131072};
  }
  const TestFolder folder;
  const fs::path file = put(folder / "model.gguf", make_gguf(large));
  const size_t before = resident_memory_bytes();
  const ModelInstance model = std::move(ModelInstance::load(file, {.backend = "cpu", .n_threads = 2}).value());
  ModelRunner runner = std::move(ModelRunner::create(model, {.context = 200, .step_tokens = 8}).value());
  ASSERT_TRUE(runner.feed(random_tokens(100)).ok());
  const size_t file_bytes = fs::file_size(file);
  ASSERT_GT(file_bytes, 60'000'000u);
  const size_t needed = file_bytes + runner.cache_bytes() + runner.activation_bytes();
  const size_t taken = resident_memory_bytes() - before;
  std::printf("file %zu, cache %zu, activations %zu bytes; resident %zu, %.3f x\n", file_bytes, runner.cache_bytes(),
              runner.activation_bytes(), taken, static_cast<double>(taken) / static_cast<double>(needed));
  EXPECT_LE(static_cast<double>(taken), 1.05 * static_cast<double>(needed));
#endif
}

}  // namespace
}  // namespace zinc
