// Memory and preparation on Vulkan devices, measured at the driver's functions: what Backend::without_memory counts is
// what the driver allocates, and Plan::start prepares nothing. On llvmpipe and on the emulated GPU, whose memory is all
// device memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/measured_model.h"
#include "tests/support/tested_backends.h"
#include "tests/support/vulkan_calls.h"

namespace zinc {
namespace {

std::vector<MemoryCase> cases() {
  std::vector<MemoryCase> all;
  for (const BackendInfo* backend : {cpu_vulkan(), emulated_vulkan()}) {
    if (!backend->is_available()) continue;
    for (const TinyModel& model : tiny_models()) all.push_back({backend, model.name});
  }
  return all;
}

// llvmpipe compiles each kernel for seconds.
std::vector<MemoryCase> step_cases() {
  std::vector<MemoryCase> all = cases();
  std::erase_if(all, [](const MemoryCase& c) { return c.model != "qwen3" && c.model != "qwen35moe"; });
  return all;
}

class VulkanMemoryTest : public testing::TestWithParam<MemoryCase> {
 protected:
  MeasuredModel model_ = MeasuredModel(*GetParam().backend, GetParam().model);
  const VulkanCalls& calls_ = VulkanCalls::install();
};
class VulkanStepTest : public VulkanMemoryTest {};

TEST_P(VulkanMemoryTest, counted_without_taking_it_is_what_the_driver_allocates) {
  const Bucket bucket{.max_tokens = 600, .max_seqs = 4, .max_outputs = 4};
  const size_t before = calls_.allocated_bytes();
  const std::unique_ptr<Backend> layout = model_.backend().without_memory();
  const MeasuredModel::Parts counted = model_.load(*layout, bucket);
  EXPECT_EQ(calls_.allocated_bytes(), before) << "counting takes nothing";
  const MeasuredModel::Parts taken = model_.load(model_.backend(), bucket);
  EXPECT_EQ(counted.weights->device_bytes(), taken.weights->device_bytes());
  EXPECT_EQ(counted.weights->upload_bytes(), taken.weights->upload_bytes());
  EXPECT_EQ(counted.cache->device_bytes(), taken.cache->device_bytes());
  EXPECT_EQ(counted.plan->device_bytes(), taken.plan->device_bytes());
  const size_t n_taken = calls_.allocated_bytes() - before;
  const double error = std::abs(static_cast<double>(counted.bytes()) / static_cast<double>(n_taken) - 1);
  EXPECT_LE(error, 0.01) << "counted " << counted.bytes() << ", allocated " << n_taken;
}

TEST_P(VulkanStepTest, start_allocates_compiles_and_records_nothing) {
  const size_t before_load = calls_.n_preparations();
  const MeasuredModel::Parts parts = model_.load(model_.backend(), {.max_tokens = 32, .max_seqs = 4, .max_outputs = 4});
  ASSERT_GT(calls_.n_preparations(), before_load) << "the calls are counted";
  const bool prepares_on_demand = GetParam().backend == cpu_vulkan();  // the exception in plan.h
  for (const int n_tokens : {1, 2, 5, 20}) {
    for (const bool wants_all : {false, true}) {
      const StepInputs inputs = model_.step(n_tokens, wants_all);
      size_t before = calls_.n_preparations();
      if (prepares_on_demand && !wants_all) {
        parts.plan->start(inputs);
        ASSERT_TRUE(parts.plan->wait().ok());
        EXPECT_GT(calls_.n_preparations(), before);
        before = calls_.n_preparations();
      }
      parts.plan->start(inputs);
      EXPECT_EQ(calls_.n_preparations(), before) << n_tokens << " tokens";
      ASSERT_TRUE(parts.plan->wait().ok());
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VulkanMemoryTest);  // the sanitizers do without Mesa
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VulkanStepTest);
INSTANTIATE_TEST_SUITE_P(All, VulkanMemoryTest, testing::ValuesIn(cases()), memory_case_name);
INSTANTIATE_TEST_SUITE_P(All, VulkanStepTest, testing::ValuesIn(step_cases()), memory_case_name);

}  // namespace
}  // namespace zinc
