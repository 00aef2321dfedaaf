// Counts the host's driver calls per token on a real GPU, by wrapping the driver's functions. Skipped without a GPU;
// plan_test.cc counts the same on a fake driver.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/plan.h"
#include "base/thread_pool.h"
#include "graph/graph_builder.h"
#include "tests/support/test_files.h"
#include "tests/support/weight_set.h"

namespace zinc::cuda {
namespace {

constexpr int kDim = 256, kVocab = 512, kPages = 20;

struct Counts {
  int allocations = 0, replays = 0, stream_waits = 0, event_waits = 0;
};
Counts counts;
const DriverApi* driver = nullptr;

DriverApi counting(const DriverApi& real) {
  driver = &real;
  DriverApi api = real;
  api.allocate = [](DevicePointer* ptr, size_t bytes) { return ++counts.allocations, driver->allocate(ptr, bytes); };
  api.allocate_host = [](void** ptr, size_t bytes) { return ++counts.allocations, driver->allocate_host(ptr, bytes); };
  api.synchronize_stream = [](Stream stream) { return ++counts.stream_waits, driver->synchronize_stream(stream); };
  api.synchronize_event = [](Event event) { return ++counts.event_waits, driver->synchronize_event(event); };
  api.launch_graph = [](GraphExec exec, Stream stream) { return ++counts.replays, driver->launch_graph(exec, stream); };
  return api;
}

// One attention layer; compiled kernels are cached in a temporary folder.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const DriverApi*> real = load_driver();
    if (!real.ok()) GTEST_SKIP() << "no GPU here: " << real.error().message;
    counted_ = counting(*real.value());
    const auto opened = Device::open(counted_, {});
    if (!opened.ok()) GTEST_SKIP() << "no supported GPU: " << opened.error().message;
    weights_set_.add("embd", {kVocab, kDim}).add("norm", {kDim});
    for (const char* name : {"q", "k", "v", "o"}) weights_set_.add(name, {kDim, kDim}, *find_format("q8_0"));
    GraphBuilder g("gpu", weights_set_.source());
    const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    const Value h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
    const auto heads = [&](const char* name) { return g.heads(g.linear(h, g.weight(name, {kDim, kDim})), 4); };
    const Value q = heads("q"), k = heads("k"), v = heads("v");
    const Value a = g.attention({q, k, v}, {.cache_layer = 0, .scale = 1});
    const Value sum = g.add(x, g.linear(a, g.weight("o", {kDim, kDim})));
    g.logits(g.linear(g.rows(sum), g.weight("embd", {kVocab, kDim})));
    graph_ = std::move(g.finish().value());
  }

  // Starts up like a program; returns the number of compiled kernel programs.
  int start_up() {
    plan_.reset();
    cache_.reset();
    weights_.reset();
    device_.reset();
    int major = 0, minor = 0;
    counted_.device_attribute(&major, kMajor, 0);
    counted_.device_attribute(&minor, kMinor, 0);
    const auto kernels = std::make_shared<KernelCache>(architecture_name(major, minor), folder_.path());
    device_ = std::move(
        Device::open(counted_, {}, [kernels](const KernelProgram& p) { return kernels->get_or_compile(p); }).value());
    const Graph* const graph = &graph_;
    weights_ = std::move(upload_weights({&graph, 1}, *device_, threads_, [](auto) {}).value());
    const CacheSizes sizes{.n_pages = {kPages}, .n_slots = 1, .kv_format = find_format("f16")};
    cache_ = std::move(gpu::Cache::allocate(graph_.caches(), sizes, *device_, kernel_formats()).value());
    const Bucket bucket{.max_tokens = 16, .max_seqs = 1, .max_outputs = 1};
    plan_ = std::move(CudaPlan::compile(graph_, *weights_, *cache_, *device_, bucket).value());
    EXPECT_TRUE(plan_->wait_until_prepared().ok());
    return kernels->n_compiled();
  }

  void start(int position) {
    tokens_ = {1};
    positions_ = {position};
    seq_begin_ = {0, 1};
    output_rows_ = {0};
    pages_.resize(kPages);
    std::iota(pages_.begin(), pages_.end(), 0);
    tables_.assign(1, PageTable{pages_, kPages});
    plan_->start({.tokens = tokens_,
                  .positions = positions_,
                  .seq_begin = seq_begin_,
                  .slots = slots_,
                  .page_tables = tables_,
                  .output_rows = output_rows_,
                  .sampling = {},
                  .logit_rows = {},
                  .hidden = {}});
  }

  const TestFolder folder_;
  ThreadPool threads_{1};
  DriverApi counted_;
  WeightSet weights_set_;
  Graph graph_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<gpu::Weights> weights_;
  std::unique_ptr<gpu::Cache> cache_;
  std::unique_ptr<Plan> plan_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_, slots_ = {0}, output_rows_;
  std::vector<PageId> pages_;
  std::vector<PageTable> tables_;
};

TEST_F(GpuTest, a_token_takes_one_replay_and_one_wait_and_a_second_start_compiles_no_kernel) {
  EXPECT_GT(start_up(), 0);
  EXPECT_EQ(start_up(), 0);
  start(0);
  ASSERT_TRUE(plan_->wait().ok());
  const Counts before = counts;
  constexpr int kTokens = 100;
  start(1);
  for (int i = 2; i <= kTokens; ++i) {  // two steps in flight
    start(i);
    ASSERT_TRUE(plan_->wait().ok());
  }
  ASSERT_TRUE(plan_->wait().ok());
  EXPECT_EQ(counts.replays - before.replays, kTokens);
  EXPECT_EQ(counts.event_waits - before.event_waits, kTokens);
  EXPECT_EQ(counts.stream_waits, before.stream_waits);
  EXPECT_EQ(counts.allocations, before.allocations);
}

}  // namespace
}  // namespace zinc::cuda
