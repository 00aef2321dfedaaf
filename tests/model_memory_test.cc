// The memory that a backend counts without taking it (Backend::without_memory) is what it then takes, for every tiny
// model. What is taken is measured: in host memory by counting allocations, on the emulated CUDA GPU by its free
// memory. vulkan_memory_test counts what a Vulkan driver allocates; tools/test_on_gpu.py measures large models on a
// real GPU, whose driver rounds up too much for tiny ones.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "base/aligned_buffer.h"
#include "engine/draft_model.h"
#include "engine/engine_memory.h"
#include "engine/mtp_drafter.h"
#include "engine/mtp_file_drafter.h"
#include "tests/support/measured_model.h"
#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_mtp_file.h"

namespace {

std::atomic<size_t> n_heap_bytes = 0, n_allocations = 0;

void* allocate_counted(size_t n_bytes, size_t alignment) {
  void* memory = std::aligned_alloc(alignment, (std::max<size_t>(n_bytes, 1) + alignment - 1) / alignment * alignment);
  if (!memory) std::abort();
  n_heap_bytes += malloc_usable_size(memory);
  ++n_allocations;
  return memory;
}

void free_counted(void* memory) {
  if (memory) n_heap_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t n_bytes) { return allocate_counted(n_bytes, alignof(std::max_align_t)); }
void* operator new[](size_t n_bytes) { return allocate_counted(n_bytes, alignof(std::max_align_t)); }
void* operator new(size_t n_bytes, std::align_val_t alignment) {
  return allocate_counted(n_bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t n_bytes, std::align_val_t alignment) {
  return allocate_counted(n_bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { free_counted(memory); }
void operator delete[](void* memory) noexcept { free_counted(memory); }
void operator delete(void* memory, size_t) noexcept { free_counted(memory); }
void operator delete[](void* memory, size_t) noexcept { free_counted(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free_counted(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { free_counted(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free_counted(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { free_counted(memory); }

namespace zinc {
namespace {

bool is_host(const BackendInfo& backend) { return backend.name == "cpu" || backend.name == "reference"; }

// The emulated CUDA GPU. REQUIRES: it is available.
bool is_emulated_cuda(const BackendInfo& backend) {
  return backend.name == "cuda" && backend.open(1).value()->info().name == "emulated GPU";
}

// On the backends whose memory is measured here.
std::vector<MemoryCase> cases() {
  std::vector<MemoryCase> all;
  for (const BackendInfo* backend : available_backends()) {
    if (!is_host(*backend) && !is_emulated_cuda(*backend)) continue;
    for (const TinyModel& model : tiny_models()) all.push_back({backend, model.name});
  }
  return all;
}

std::vector<MemoryCase> cpu_cases() {
  std::vector<MemoryCase> all = cases();
  std::erase_if(all, [](const MemoryCase& c) { return c.backend->name != "cpu"; });
  return all;
}

class ModelMemoryTest : public testing::TestWithParam<MemoryCase> {
 protected:
  const BackendInfo& backend() const { return *GetParam().backend; }
  // What the backend has taken, measured.
  size_t taken_bytes() {
    if (is_host(backend())) return n_heap_bytes + AlignedBuffer::allocated_bytes();
    const DeviceInfo device = model_.backend().info();
    return device.memory_bytes - device.free_bytes;
  }

  MeasuredModel model_ = MeasuredModel(backend(), GetParam().model);
};
class CpuStepMemoryTest : public ModelMemoryTest {};

TEST_P(ModelMemoryTest, counted_without_taking_it_is_what_is_taken) {
  const Bucket bucket{.max_tokens = 600, .max_seqs = 4, .max_outputs = 4};
  const std::unique_ptr<Backend> layout = model_.backend().without_memory();
  const size_t before = taken_bytes();
  const MeasuredModel::Parts counted = model_.load(*layout, bucket);
  const size_t between = taken_bytes();
  const MeasuredModel::Parts taken = model_.load(model_.backend(), bucket);
  EXPECT_EQ(counted.weights->device_bytes(), taken.weights->device_bytes());
  EXPECT_EQ(counted.weights->upload_bytes(), taken.weights->upload_bytes());
  EXPECT_EQ(counted.cache->device_bytes(), taken.cache->device_bytes());
  EXPECT_EQ(counted.plan->device_bytes(), taken.plan->device_bytes());
  size_t n_counted = counted.bytes();
  if (backend().name == "reference") n_counted -= counted.weights->device_bytes();  // those stay in the file
  EXPECT_LT(between - before, n_counted) << "counting takes less";
  const size_t n_taken = taken_bytes() - between;
  const double error = std::abs(static_cast<double>(n_counted) / static_cast<double>(n_taken) - 1);
  EXPECT_LE(error, 0.01) << "counted " << n_counted << ", taken " << n_taken;
}

// On GPUs their own tests count the calls of the driver.
TEST_P(CpuStepMemoryTest, a_step_allocates_nothing) {
  const MeasuredModel::Parts parts =
      model_.load(model_.backend(), {.max_tokens = 600, .max_seqs = 4, .max_outputs = 4});
  for (const bool wants_all : {false, true}) {
    const StepInputs inputs = model_.step(4, wants_all);
    const size_t before = n_allocations;
    parts.plan->start(inputs);
    EXPECT_EQ(n_allocations, before);
    EXPECT_TRUE(parts.plan->wait().ok());
  }
}

// What a drafter adds to the planned memory is what it takes, on the backends whose memory is measured here.
class DrafterMemoryTest : public testing::TestWithParam<const BackendInfo*> {
 protected:
  size_t taken_bytes(const ModelInstance& model) const {
    if (is_host(*GetParam())) return n_heap_bytes + AlignedBuffer::allocated_bytes();
    const DeviceInfo device = model.backend().info();
    return device.memory_bytes - device.free_bytes;
  }
  static void expect_near(size_t counted, size_t taken) {
    const double error = std::abs(static_cast<double>(counted) / static_cast<double>(taken) - 1);
    EXPECT_LE(error, 0.01) << "counted " << counted << ", taken " << taken;
  }
  static size_t bytes_of(const ModelMemory& memory) {
    return memory.weight_bytes + memory.cache_bytes + memory.plan_bytes;
  }
  ServedFile file(std::string_view name, Draft draft) const {
    return {.name = name, .backend = GetParam()->name, .draft = draft};
  }
  const EngineOptions options_ = {.max_sequences = 4, .context = 4096, .step_tokens = 512};
};

TEST_P(DrafterMemoryTest, a_draft_model_takes_what_was_planned) {
  const ModelInstance target = load_model(file("gemma3-f16", Draft::skip));
  ModelInstance draft = std::move(
      ModelInstance::open_beside(target, std::string(ZINC_SOURCE_DIR) + "/tests/data/oracle/models/gemma3-f16.gguf")
          .value());
  const size_t limit = size_t{1} << 40;
  const EngineMemory with = std::move(plan_engine_memory(target, limit, options_, &draft).value());
  size_t n_counted = bytes_of(with) - bytes_of(plan_engine_memory(target, limit, options_).value());
  if (GetParam()->name == "reference") n_counted -= draft.layout().weights->device_bytes();  // those stay in the file
  const size_t before = taken_bytes(target);
  const std::unique_ptr<DraftModelDrafter> drafter =
      std::move(DraftModelDrafter::create(std::move(draft), {.cache = with.draft_cache,
                                                             .step = largest_draft_step(options_),
                                                             .max_chunk_tokens = options_.step_tokens})
                    .value());
  expect_near(n_counted, taken_bytes(target) - before);
}

TEST_P(DrafterMemoryTest, an_mtp_block_takes_what_was_planned) {
  const ModelInstance model = load_model(file("qwen35moe-q8_0", Draft::load));
  const EngineMemory memory = std::move(plan_engine_memory(model, size_t{1} << 40, options_).value());
  const size_t n_model_plan = measure_memory(model, memory.cache.sizes, largest_step(options_)).value().plan_bytes;
  const std::unique_ptr<KvCache> cache = std::move(
      KvCache::create(model.backend(), model.model().caches,
                      {.sizes = memory.cache.sizes, .max_chunk_tokens = options_.step_tokens, .n_sequences = 4})
          .value());
  const size_t before = taken_bytes(model);
  const std::unique_ptr<MtpDrafter> drafter =
      std::move(MtpDrafter::create(model, *cache, largest_draft_step(options_)).value());
  expect_near(memory.plan_bytes - n_model_plan, taken_bytes(model) - before);
}

TEST_P(DrafterMemoryTest, an_mtp_file_takes_what_was_planned) {
  const LoadOptions load{.backend = std::string(GetParam()->name)};
  ModelInstance model = std::move(ModelInstance::open(model_path("gemma4-f16"), load).value());
  const size_t n_alone = model.layout().weights->device_bytes();
  ASSERT_TRUE(model.add_mtp_file(mtp_file_path("gemma4-f16")).ok());
  const EngineMemory memory = std::move(plan_engine_memory(model, size_t{1} << 40, options_).value());
  EXPECT_EQ(memory.weight_bytes, model.layout().weights->device_bytes());
  EXPECT_GT(memory.weight_bytes, n_alone);
  const size_t n_model_plan = measure_memory(model, memory.cache.sizes, largest_step(options_)).value().plan_bytes;
  ASSERT_TRUE(model.upload().ok());
  EXPECT_EQ(model.weights().device_bytes(), memory.weight_bytes);
  const std::unique_ptr<KvCache> cache = std::move(
      KvCache::create(model.backend(), model.model().caches,
                      {.sizes = memory.cache.sizes, .max_chunk_tokens = options_.step_tokens, .n_sequences = 4})
          .value());
  const size_t before = taken_bytes(model);
  const std::unique_ptr<MtpFileDrafter> drafter =
      std::move(MtpFileDrafter::create(model, *cache, largest_draft_step(options_)).value());
  expect_near(memory.plan_bytes - n_model_plan, taken_bytes(model) - before);
}

std::vector<const BackendInfo*> measured_backends() {
  std::vector<const BackendInfo*> all = available_backends();
  std::erase_if(all, [](const BackendInfo* b) { return !is_host(*b) && !is_emulated_cuda(*b); });
  return all;
}

// A large model on a real GPU, where free memory is measured: ZINC_TEST_MODEL and ZINC_TEST_BACKEND name them.
// tools/test_on_gpu.py sets them and runs nothing beside this test.
class GpuMemoryTest : public testing::TestWithParam<std::string> {
 protected:
  ModelInstance open() {
    Result<ModelInstance> model = ModelInstance::open(GetParam(), {.backend = std::getenv("ZINC_TEST_BACKEND")});
    if (!model.ok()) ADD_FAILURE() << model.error().message;
    return std::move(model.value());
  }
  std::unique_ptr<Engine> create(ModelInstance model) {
    std::unique_ptr<Engine> engine = std::move(Engine::create(std::move(model), options_).value());
    EXPECT_TRUE(engine->wait_until_prepared().ok());
    return engine;
  }
  const EngineOptions options_ = {.max_sequences = 4, .context = 4096, .step_tokens = 512};
};

TEST_P(GpuMemoryTest, an_engine_takes_the_memory_that_it_planned) {
  create(open()).reset();  // the driver keeps the kernels: they are not counted
  ModelInstance model = open();
  const EngineMemory planned = std::move(plan_engine_memory(model, model.memory_limit(), options_).value());
  const size_t n_planned = planned.weight_bytes + planned.cache_bytes + planned.plan_bytes;
  const size_t before = model.backend().info().free_bytes;
  const std::unique_ptr<Engine> engine = create(std::move(model));
  const size_t n_taken = before - engine->model().backend().info().free_bytes;
  const double error = std::abs(static_cast<double>(n_planned) / static_cast<double>(n_taken) - 1);
  EXPECT_LE(error, 0.01) << "planned " << n_planned << ", taken " << n_taken;
}

std::vector<std::string> gpu_models() {
  const char* model = std::getenv("ZINC_TEST_MODEL");
  return model ? std::vector<std::string>{model} : std::vector<std::string>();
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuMemoryTest);
INSTANTIATE_TEST_SUITE_P(Real, GpuMemoryTest, testing::ValuesIn(gpu_models()));
INSTANTIATE_TEST_SUITE_P(All, DrafterMemoryTest, testing::ValuesIn(measured_backends()),
                         [](const testing::TestParamInfo<const BackendInfo*>& info) {
                           return std::string(info.param->name);
                         });
INSTANTIATE_TEST_SUITE_P(All, ModelMemoryTest, testing::ValuesIn(cases()), memory_case_name);
INSTANTIATE_TEST_SUITE_P(All, CpuStepMemoryTest, testing::ValuesIn(cpu_cases()), memory_case_name);

}  // namespace
}  // namespace zinc
