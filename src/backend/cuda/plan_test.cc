// The host side of a step, on a fake driver.
#include "tests/support/cuda_plan_fixture.h"

namespace zinc::cuda {
namespace {

TEST_F(CudaPlanTest, a_step_is_one_upload_one_replay_and_the_requested_copies) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16});
  start(*plan, 0, 5, {0});
  ASSERT_TRUE(plan->wait().ok());  // warm from now on
  const FakeDriver before = fake();
  for (int i = 0; i < 10; ++i) {
    start(*plan, 5 + i, 1, {0});
    ASSERT_TRUE(plan->wait().ok());
  }
  EXPECT_EQ(fake().n_allocations, before.n_allocations);
  EXPECT_EQ(fake().n_copies_h2d - before.n_copies_h2d, 10);
  EXPECT_EQ(fake().n_replays - before.n_replays, 10);
  EXPECT_EQ(fake().n_copies_d2h - before.n_copies_d2h, 20);  // the sampled token, the logits
  EXPECT_EQ(fake().n_event_waits - before.n_event_waits, 10);
  EXPECT_EQ(fake().n_stream_waits, before.n_stream_waits);
}

TEST_F(CudaPlanTest, device_sampling_copies_only_the_token_to_the_host) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 2});
  start(*plan, 0, 5);
  ASSERT_TRUE(plan->wait().ok());
  const FakeDriver before = fake();
  sampling_ = {{.temperature = 0.5f, .top_k = 40, .top_p = 0.9f, .min_p = 0.25f, .uniform = 0.75}};
  start(*plan, 5, 1);
  for (int i = 1; i < 10; ++i) {  // two steps in flight
    start(*plan, 5 + i, 1);
    ASSERT_TRUE(plan->wait().ok());
  }
  ASSERT_TRUE(plan->wait().ok());
  EXPECT_EQ(fake().n_allocations, before.n_allocations);
  EXPECT_EQ(fake().n_copies_h2d - before.n_copies_h2d, 10);
  EXPECT_EQ(fake().n_replays - before.n_replays, 10);
  EXPECT_EQ(fake().n_copies_d2h - before.n_copies_d2h, 10);
  EXPECT_EQ(fake().n_event_waits - before.n_event_waits, 10);
  EXPECT_EQ(fake().n_stream_waits, before.n_stream_waits);

  const FakeLaunch& last = fake().last_replay->back();
  ASSERT_EQ(last.kernel, "sample_rows");
  const auto params = params_of<simt::SampleParams>(last);
  const auto field_value = [&](simt::SamplingField field) { return std::bit_cast<float>(params.sampling[field]); };
  EXPECT_EQ(params.step.counts[simt::kSampledRows], 1);
  EXPECT_EQ(field_value(simt::kInvTemperature), 2.0f);
  EXPECT_EQ(params.sampling[simt::kTopK], 40);
  EXPECT_EQ(field_value(simt::kTopP), 0.9f);
  EXPECT_EQ(field_value(simt::kLogMinP), std::log(0.25f));
  const uint64_t uniform = uint64_t{static_cast<uint32_t>(params.sampling[simt::kUniformHigh])} << 32 |
                           static_cast<uint32_t>(params.sampling[simt::kUniformLow]);
  EXPECT_EQ(std::bit_cast<double>(uniform), 0.75);
}

TEST_F(CudaPlanTest, the_smallest_class_that_fits_is_replayed) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 100, .max_seqs = 2, .max_outputs = 100});
  std::vector<unsigned> sizes;
  for (const int n_tokens : {1, 2, 4, 5, 8, 9, 33, 100}) {
    start(*plan, 0, n_tokens);
    ASSERT_TRUE(plan->wait().ok());
    for (const FakeLaunch& launch : *fake().last_replay) {
      if (launch.kernel == "embed") sizes.push_back(launch.config.grid_x);  // one block per token
    }
  }
  EXPECT_EQ(sizes, (std::vector<unsigned>{1, 2, 4, 8, 8, 16, 64, 100}));
}

TEST_F(CudaPlanTest, a_bucket_without_small_classes_replays_the_smallest_that_it_has) {
  const std::unique_ptr<Plan> plan =
      compile({.max_tokens = 100, .max_seqs = 2, .max_outputs = 100, .min_class_tokens = 32});
  for (const int n_tokens : {1, 4, 32, 33}) {
    start(*plan, 0, n_tokens);
    ASSERT_TRUE(plan->wait().ok());
    const auto embed = std::ranges::find(*fake().last_replay, "embed", &FakeLaunch::kernel);
    EXPECT_EQ(embed->config.grid_x, n_tokens <= 32 ? 32u : 64u);  // one block per token
  }
}

TEST_F(CudaPlanTest, steps_of_few_rows_are_fused_and_larger_ones_use_tensor_cores) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 256, .max_seqs = 2, .max_outputs = 64});
  start(*plan, 0, 1);
  const std::vector<std::string> layer = {"gemv", "attention_decode", "gemv"};
  std::vector<std::string> expected = {"embed"};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), layer.begin(), layer.end());
  for (const char* kernel : {"gemv", "sample_parts", "sample_rows"}) expected.emplace_back(kernel);
  EXPECT_EQ(kernels_of(*fake().last_replay), expected);
  ASSERT_TRUE(plan->wait().ok());
  start(*plan, 0, 3);
  expected = {"embed"};
  for (int i = 0; i < 2; ++i) {
    for (const char* kernel : {"gemv", "prepare_heads", "attention_units", "gemv"}) expected.emplace_back(kernel);
  }
  for (const char* kernel : {"copy_parts", "gemm_floats_8x1", "sample_parts", "sample_rows"}) {
    expected.emplace_back(kernel);
  }
  EXPECT_EQ(kernels_of(*fake().last_replay), expected);
  ASSERT_TRUE(plan->wait().ok());
  for (const auto& [n_tokens, kernel] : {std::pair{100, "gemm_small"}, {200, "gemm_wgmma"}}) {
    start(*plan, 0, n_tokens);
    const std::vector<std::string> kernels = kernels_of(*fake().last_replay);
    EXPECT_EQ(std::ranges::count(kernels, kernel), 4) << n_tokens;  // q, k, v together and o, of both layers
    EXPECT_EQ(std::ranges::count(kernels, "norm_heads"), 2) << n_tokens;
    ASSERT_TRUE(plan->wait().ok());
  }
}

TEST_F(CudaPlanTest, only_the_pages_a_step_needs_are_uploaded) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16});
  start(*plan, 200, 3);
  const simt::Step step = step_of(*fake().last_replay);
  EXPECT_EQ(step.counts[simt::kTokens], 3);
  EXPECT_EQ(step.counts[simt::kSeqs], 1);
  EXPECT_EQ(step.slots[0], 2);
  // Positions 0 to 202 are in columns 0 to 6; a window of 40 from position 200 begins at 161, in column 5.
  EXPECT_EQ(step.counts[simt::kPageTableStride], 7);
  EXPECT_EQ(step.counts[simt::kPageTableStride + 1], 2);
  EXPECT_EQ(step.first_column[0], 0);
  EXPECT_EQ(step.first_column[step.max_seqs], 5);
  EXPECT_EQ(step.counts[step.counts[simt::kPageTableOffset] + 6], 13);
  EXPECT_EQ(step.counts[step.counts[simt::kPageTableOffset + 1]], 14);
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, every_program_is_compiled_once) {
  std::mutex mutex;
  std::map<std::string, int> n_requests;
  std::unique_ptr<Device> first = std::move(device_);  // weights and cache are its
  device_ = std::move(Device::open(FakeDriver::api(), {}, [&](const KernelProgram& program) {
                        const std::lock_guard lock(mutex);
                        ++n_requests[program.source()];
                        return std::vector<char>(1);
                      }).value());
  compile({.max_tokens = 64, .max_seqs = 2, .max_outputs = 64});
  EXPECT_GT(n_requests.size(), 5u);
  for (const auto& [program, n] : n_requests) EXPECT_EQ(n, 1) << program;
  device_ = std::move(first);
}

// Compiles programs while it is open.
class Gate {
 public:
  Result<std::vector<char>> compile() {
    std::unique_lock lock(mutex_);
    ++n_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
    --n_waiting_;
    return std::vector<char>(1);
  }
  void set_open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  void wait_for_waiting() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  int n_waiting_ = 0;
};

TEST_F(CudaPlanTest, a_step_runs_a_larger_class_until_its_own_is_prepared) {
  Gate gate;
  std::unique_ptr<Device> first = std::move(device_);  // weights and cache are its
  device_ =
      std::move(Device::open(FakeDriver::api(), {}, [&](const KernelProgram&) { return gate.compile(); }).value());
  // Closed when the second class is captured, which is the last one that compile() waits for.
  fake().on_capture = [&] { fake().on_capture = [&] { gate.set_open(false); }; };
  const Bucket bucket{.max_tokens = 64, .max_seqs = 2, .max_outputs = 64};
  std::unique_ptr<Plan> plan = std::move(CudaPlan::compile(graph_, *weights_, *cache_, *device_, bucket).value());
  gate.wait_for_waiting();
  const auto replayed_rows = [&](int n_tokens) {
    start(*plan, 0, n_tokens);
    EXPECT_TRUE(plan->wait().ok());
    return std::ranges::find(*fake().last_replay, "embed", &FakeLaunch::kernel)->config.grid_x;
  };
  EXPECT_EQ(replayed_rows(1), 1u);
  EXPECT_EQ(replayed_rows(4), 64u);
  gate.set_open(true);
  EXPECT_TRUE(plan->wait_until_prepared().ok());
  EXPECT_EQ(replayed_rows(4), 4u);
  plan.reset();
  device_ = std::move(first);
}

TEST_F(CudaPlanTest, steps_of_a_class_that_cannot_be_compiled_run_in_a_larger_one) {
  std::atomic<bool> fails = false;
  std::unique_ptr<Device> first = std::move(device_);  // weights and cache are its
  device_ = std::move(Device::open(FakeDriver::api(), {}, [&](const KernelProgram&) -> Result<std::vector<char>> {
                        if (fails) return fail(ErrorCode::unsupported, "no compiler");
                        return std::vector<char>(1);
                      }).value());
  fake().on_capture = [&] { fake().on_capture = [&] { fails = true; }; };
  const Bucket bucket{.max_tokens = 64, .max_seqs = 2, .max_outputs = 64};
  std::unique_ptr<Plan> plan = std::move(CudaPlan::compile(graph_, *weights_, *cache_, *device_, bucket).value());
  EXPECT_FALSE(plan->wait_until_prepared().ok());
  for (const int n_tokens : {4, 1, 64}) {
    start(*plan, 0, n_tokens);
    EXPECT_TRUE(plan->wait().ok()) << n_tokens;
  }
  plan.reset();
  device_ = std::move(first);
}

TEST_F(CudaPlanTest, a_prepared_plan_allocates_captures_and_loads_nothing) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 100, .max_seqs = 2, .max_outputs = 100});
  const FakeDriver before = fake();
  int n_steps = 0;
  for (int n_tokens = 1; n_tokens <= 100; ++n_tokens) {
    for (const bool wants_logits : {false, true}) {
      start(*plan, 0, n_tokens, wants_logits ? std::vector<int32_t>{0} : std::vector<int32_t>{});
      ASSERT_TRUE(plan->wait().ok());
      ++n_steps;
    }
  }
  EXPECT_EQ(fake().n_replays - before.n_replays, n_steps);
  EXPECT_EQ(fake().n_allocations, before.n_allocations);
  EXPECT_EQ(fake().n_captures, before.n_captures);
  EXPECT_EQ(fake().n_modules, before.n_modules);
  EXPECT_EQ(fake().functions.size(), before.functions.size());
}

TEST_F(CudaPlanTest, a_model_keeps_running_while_another_is_compiled) {
  const Bucket bucket{.max_tokens = 16, .max_seqs = 2, .max_outputs = 16};
  const std::unique_ptr<Plan> running = compile(bucket);
  const size_t n_launches = fake().graphs.front().size();
  const size_t first = fake().graphs.size();
  fake().on_capture = [&] {
    const PreparedLaunch launch{reinterpret_cast<Function>(&fake().functions.front()), Launch()};
    EXPECT_TRUE(device_->run(launch).ok());
    start(*running, 0, 5);
  };
  const std::unique_ptr<Plan> other = compile(bucket);
  const Result<StepOutput> output = running->wait();
  EXPECT_TRUE(output.ok()) << output.error().message;
  EXPECT_EQ(fake().graphs[first].size(), n_launches) << "launches of the other model were captured";
}

TEST_F(CudaPlanTest, every_thread_that_uses_the_gpu_sets_the_context_first) {
  std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16});
  const auto on_new_thread = [](const std::function<void()>& work) { std::thread(work).join(); };
  std::vector<std::byte> page(cache_->page_bytes(0));
  on_new_thread([&] { cache_->copy_page(0, 3, 4); });
  on_new_thread([&] { cache_->copy_state(0, 1); });
  on_new_thread([&] { EXPECT_TRUE(cache_->read_page(0, 4, page).ok()); });
  on_new_thread([&] { EXPECT_TRUE(cache_->write_page(0, 5, page).ok()); });
  on_new_thread([&] {
    start(*plan, 0, 5);
    EXPECT_TRUE(plan->wait().ok());
  });
  on_new_thread([&] {
    const Graph* const graph = &graph_;
    EXPECT_TRUE(upload_weights({&graph, 1}, *device_, threads_, [](auto) {}).ok());
  });
  on_new_thread([&] { compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16}); });
  on_new_thread([&] { plan.reset(); });
  on_new_thread([&] { cache_.reset(); });
  on_new_thread([&] { weights_.reset(); });
  EXPECT_EQ(fake().n_without_context, 0);
}

TEST_F(CudaPlanTest, the_next_step_reports_a_failed_copy) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16});
  fake().copies_fail = true;
  cache_->copy_page(0, 3, 4);
  fake().copies_fail = false;
  start(*plan, 0, 5);
  const Result<StepOutput> output = plan->wait();
  ASSERT_FALSE(output.ok());
  EXPECT_NE(output.error().message.find("copying on the GPU failed"), std::string::npos) << output.error().message;
}

TEST_F(CudaPlanTest, attention_is_compiled_for_the_kv_cache_format) {
  std::unique_ptr<Device> first = std::move(device_);  // weights are its
  for (const char* format : {"f16", "q8_0", "fp8"}) {
    std::mutex mutex;
    int n_programs = 0;
    device_ = std::move(Device::open(FakeDriver::api(), {}, [&](const KernelProgram& program) {
                          const std::lock_guard lock(mutex);
                          if (!program.file.starts_with("att")) return std::vector<char>(1);
                          EXPECT_EQ(program.kv_format, format) << program.file << " " << program.shape;
                          ++n_programs;
                          return std::vector<char>(1);
                        }).value());
    const CacheSizes sizes{.n_pages = {20, 20}, .n_slots = 3, .kv_format = find_format(format)};
    cache_ = std::move(gpu::Cache::allocate(graph_.caches(), sizes, *device_, kernel_formats()).value());
    EXPECT_EQ(cache_->page_bytes(0), page_bytes(page_groups(graph_.caches())[0], graph_.caches(), *sizes.kv_format));
    EXPECT_NE(compile({.max_tokens = 64, .max_seqs = 2, .max_outputs = 64}), nullptr);
    EXPECT_GE(n_programs, 4) << format;  // attention, attention_mma, attention_decode for each window
    cache_.reset();
  }
  device_ = std::move(first);
}

TEST_F(CudaPlanTest, attention_workspace_is_sized_for_one_sequence_and_its_window) {
  const auto chunks_of_layers = [&](int max_length) {
    const CacheSizes sizes{.n_pages = {2000, 2000}, .max_length = max_length, .kv_format = find_format("f16")};
    cache_ = std::move(gpu::Cache::allocate(graph_.caches(), sizes, *device_, kernel_formats()).value());
    const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
    std::vector<int> n_chunks;
    for (const FakeLaunch& launch : fake().graphs.back()) {
      if (launch.kernel == "attention_decode")
        n_chunks.push_back(params_of<simt::AttentionDecodeParams>(launch).attention.n_chunks);
    }
    return n_chunks;
  };
  EXPECT_EQ(chunks_of_layers(1024), (std::vector<int>{4, 2}));
  EXPECT_EQ(chunks_of_layers(1025), (std::vector<int>{5, 2}));
  EXPECT_EQ(chunks_of_layers(0), (std::vector<int>{250, 2}));
}

TEST_F(CudaPlanTest, memory_counted_without_a_gpu_is_what_the_driver_allocates) {
  const Bucket bucket{.max_tokens = 600, .max_seqs = 4, .max_outputs = 4};
  const std::unique_ptr<Backend> layout = gpu::make_layout_backend(*device_, {}, CudaPlan::layout_options(*device_));
  const Graph* const graph = &graph_;
  const CacheSizes sizes{.n_pages = {20, 20}, .n_slots = 3, .kv_format = find_format("f16")};
  const auto weights = std::move(layout->upload({&graph, 1}, [](auto) {}).value());
  const auto cache = std::move(layout->allocate_cache(graph_.caches(), sizes).value());
  const auto plan = std::move(layout->compile(graph_, *weights, *cache, bucket).value());
  const auto allocated_by = [](const std::function<void()>& work) {
    const size_t before = fake().device_bytes;
    work();
    return fake().device_bytes - before;
  };
  EXPECT_EQ(weights->device_bytes() + weights->upload_bytes(), allocated_by([&] {
              weights_ = std::move(upload_weights({&graph, 1}, *device_, threads_, [](auto) {}).value());
            }));
  EXPECT_EQ(weights->device_bytes(), weights_->device_bytes());
  EXPECT_EQ(cache->device_bytes(), allocated_by([&] {
              cache_ = std::move(gpu::Cache::allocate(graph_.caches(), sizes, *device_, kernel_formats()).value());
            }));
  std::unique_ptr<Plan> compiled;
  EXPECT_EQ(plan->device_bytes(), allocated_by([&] { compiled = compile(bucket); }));
  EXPECT_EQ(plan->device_bytes(), compiled->device_bytes());
  EXPECT_GT(plan->device_bytes(), 600u * kDim * sizeof(float));
}

TEST_F(CudaPlanTest, an_unsupported_kv_cache_format_is_an_error_that_lists_the_supported_ones) {
  const CacheSizes sizes{.n_pages = {20, 20}, .n_slots = 3, .kv_format = find_format("q4_k")};
  const auto cache = gpu::Cache::allocate(graph_.caches(), sizes, *device_, kernel_formats());
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(cache.error().message.find("'q4_k'; it supports f32, f16, q8_0"), std::string::npos)
      << cache.error().message;
}

TEST_F(CudaPlanTest, out_of_memory_is_an_error_that_names_the_buffer) {
  fake().free_bytes = 1000;
  const Result<std::unique_ptr<Plan>> plan =
      CudaPlan::compile(graph_, *weights_, *cache_, *device_, {.max_tokens = 64, .max_seqs = 2, .max_outputs = 64});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(plan.error().message.find("activations"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("1000 of"), std::string::npos) << plan.error().message;
}

TEST(CudaDevice, a_gpu_older_than_turing_is_rejected_by_name) {
  fake() = FakeDriver();
  fake().major = 6;
  fake().minor = 1;
  const auto device = Device::open(FakeDriver::api(), {}, [](const KernelProgram&) { return std::vector<char>(1); });
  ASSERT_FALSE(device.ok());
  EXPECT_NE(device.error().message.find("Fake GPU has compute capability 6.1"), std::string::npos)
      << device.error().message;
}

TEST(CudaDriver, a_missing_driver_is_named) {
  const Result<const DriverApi*> api = load_driver();
  if (api.ok()) GTEST_SKIP() << "a driver is installed";
  EXPECT_NE(api.error().message.find("NVIDIA driver"), std::string::npos) << api.error().message;
}

}  // namespace
}  // namespace zinc::cuda
