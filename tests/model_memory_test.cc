// The memory that a backend counts without taking it (Backend::without_memory) is what it then takes, on every backend
// and for every tiny model. What is taken is measured: in host memory by counting allocations, on the emulated CUDA GPU
// by its free memory. Tests of the Vulkan device count what its driver allocates (backend/vulkan/vulkan_test.cc).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <optional>

#include "base/aligned_buffer.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

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

constexpr Bucket kBucket = {.max_tokens = 600, .max_seqs = 4, .max_outputs = 4};

struct Case {
  const BackendInfo* backend;
  std::string model;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const BackendInfo* backend : available_backends()) {
    for (const TinyModel& model : tiny_models()) all.push_back({backend, model.name});
  }
  return all;
}

class ModelMemoryTest : public testing::TestWithParam<Case> {
 protected:
  ModelMemoryTest()
      : bytes_(make_gguf(tiny_model(GetParam().model))),
        file_(std::move(GgufFile::parse(std::as_bytes(std::span(bytes_)), "tiny.gguf").value())),
        model_(std::move(read_model(file_).value())),
        backend_(std::move(GetParam().backend->open(2).value())) {
    sizes_.n_pages.assign(page_groups(model_.caches).size(), 100);
    sizes_.max_length = kTinyContext;
    sizes_.n_slots = 6;
    sizes_.kv_format = find_format("f16");
  }

  struct Parts {
    std::unique_ptr<DeviceWeights> weights;
    std::unique_ptr<CacheMemory> cache;
    std::unique_ptr<Plan> plan;
  };
  Parts load(Backend& backend) {
    const Graph* const graph = &model_.graph;
    Parts parts;
    parts.weights = std::move(backend.upload({&graph, 1}, [](auto) {}).value());
    parts.cache = std::move(backend.allocate_cache(model_.caches, sizes_).value());
    parts.plan = std::move(backend.compile(model_.graph, *parts.weights, *parts.cache, kBucket).value());
    return parts;
  }
  // What the backend has taken, measured; nullopt: not measured.
  std::optional<size_t> taken_bytes() const {
    if (GetParam().backend->name == "cpu" || GetParam().backend->name == "reference") {
      return n_heap_bytes + AlignedBuffer::allocated_bytes();
    }
    const DeviceInfo device = backend_->info();
    if (device.name == "emulated GPU") return device.memory_bytes - device.free_bytes;
    return std::nullopt;
  }

  std::string bytes_;
  GgufFile file_;
  Model model_;
  std::unique_ptr<Backend> backend_;
  CacheSizes sizes_;
};

TEST_P(ModelMemoryTest, counted_without_taking_it_is_what_is_taken) {
  const std::unique_ptr<Backend> layout = backend_->without_memory();
  const std::optional<size_t> before = taken_bytes();
  const Parts counted = load(*layout);
  const std::optional<size_t> between = taken_bytes();
  const Parts taken = load(*backend_);
  EXPECT_EQ(counted.weights->device_bytes(), taken.weights->device_bytes());
  EXPECT_EQ(counted.weights->upload_bytes(), taken.weights->upload_bytes());
  EXPECT_EQ(counted.cache->device_bytes(), taken.cache->device_bytes());
  EXPECT_EQ(counted.plan->device_bytes(), taken.plan->device_bytes());
  if (!before) return;
  size_t n_counted = counted.cache->device_bytes() + counted.plan->device_bytes();
  if (GetParam().backend->name != "reference") n_counted += counted.weights->device_bytes();  // those stay in the file
  EXPECT_LT(*between - *before, n_counted) << "counting takes less";
  const size_t n_taken = *taken_bytes() - *between;
  const double error = std::abs(static_cast<double>(n_counted) / static_cast<double>(n_taken) - 1);
  EXPECT_LE(error, 0.01) << "counted " << n_counted << ", taken " << n_taken;
}

TEST_P(ModelMemoryTest, a_step_allocates_nothing) {
  if (GetParam().backend->name != "cpu") return;  // the GPUs' own tests count the calls of their drivers
  const Parts parts = load(*backend_);
  const std::vector<int32_t> positions = {0, 1, 2, 3}, seq_begin = {0, 4}, slots = {0}, rows = {3}, logit_rows = {0};
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  const std::vector<PageId> pages(100, 0);
  const std::vector<PageTable> tables(sizes_.n_pages.size(), PageTable{pages, 100});
  for (const bool wants_all : {false, true}) {
    const size_t before = n_allocations;
    parts.plan->start({.tokens = tokens,
                       .positions = positions,
                       .seq_begin = seq_begin,
                       .slots = slots,
                       .page_tables = tables,
                       .output_rows = rows,
                       .logit_rows = wants_all ? std::span<const int32_t>(logit_rows) : std::span<const int32_t>(),
                       .hidden = {},
                       .wants_hidden = wants_all});
    EXPECT_EQ(n_allocations, before);
    EXPECT_TRUE(parts.plan->wait().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelMemoryTest, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace zinc
