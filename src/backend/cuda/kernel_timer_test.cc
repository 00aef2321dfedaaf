// Timed kernels of a CUDA plan, on the fake driver: its clock says 1 ms between any two events.
#include <gtest/gtest.h>

#include "tests/support/cuda_plan_fixture.h"

namespace zinc::cuda {
namespace {

using KernelTimerTest = CudaPlanTest;

TEST_F(KernelTimerTest, a_plan_without_timing_has_no_events_and_overlaps_launches) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 4});
  EXPECT_EQ(fake().n_captured_events, 0);
  EXPECT_EQ(fake().graphs.front()[1].attribute(kProgrammaticLaunch), 1u);
}

TEST_F(KernelTimerTest, each_launch_has_a_time_and_its_nodes) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 4, .time_kernels = true});
  start(*plan, 0, 4);
  ASSERT_TRUE(plan->wait().ok());
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  const std::span<const KernelTime> times = plan->kernel_times();
  ASSERT_EQ(times.size(), launches.size());
  bool has_matmuls = false;
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_TRUE(times[i].name.starts_with(launches[i].kernel)) << times[i].name;
    EXPECT_EQ(launches[i].attribute(kProgrammaticLaunch), 0u);  // one kernel at a time
    EXPECT_LE(times[i].begin, times[i].end);
    has_matmuls = has_matmuls || times[i].nodes.size() >= 3;  // q, k and v
  }
  EXPECT_TRUE(has_matmuls);
  EXPECT_EQ(times.back().end - times.front().begin, std::chrono::milliseconds(1));
}

TEST_F(KernelTimerTest, two_steps_in_flight_have_their_own_events) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .time_kernels = true});
  start(*plan, 0, 1);
  const auto* const first = fake().last_replay;
  start(*plan, 1, 1);
  EXPECT_NE(fake().last_replay, first);
  ASSERT_TRUE(plan->wait().ok());
  ASSERT_TRUE(plan->wait().ok());
  EXPECT_EQ(plan->kernel_times().size(), first->size());
  EXPECT_EQ(fake().n_captured_events, static_cast<int>(2 * (first->size() + 1)));
}

}  // namespace
}  // namespace zinc::cuda
