#include "backend/simt/host/lowering.h"

#include <gtest/gtest.h>

namespace zinc::simt::host {
namespace {

class SimtSharedMemory : public testing::TestWithParam<DeviceLimits> {};

TEST_P(SimtSharedMemory, blocks_of_two_consecutive_launches_fit_on_an_sm_and_not_two_of_a_full_launch) {
  const DeviceLimits& device = GetParam();
  constexpr unsigned kReserved = 1 << 10;  // per block
  const unsigned n_sms = static_cast<unsigned>(device.n_sms);
  const unsigned sm_bytes = static_cast<unsigned>(device.max_shared_bytes) + kReserved;
  const unsigned needed = sm_bytes / 5 * 2;  // more than a third
  std::vector<KernelCall> calls(5);
  for (KernelCall& call : calls) call.launch.grid = {n_sms, 1, 1};
  calls[2].launch.grid = {1, 1, 1};
  calls[4].launch.shared_bytes = needed;
  place_shared_memory(calls, device);
  const auto bytes = [&](size_t i) { return calls[i].launch.shared_bytes + kReserved; };
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_LE(bytes(i - 1) + bytes(i), sm_bytes) << i;
  EXPECT_GT(2 * bytes(0), sm_bytes) << "two blocks of a launch that fills all SMs would share one";
  EXPECT_LE(2 * bytes(1), sm_bytes) << "after such a launch";
  EXPECT_GT(3 * bytes(1), sm_bytes);
  EXPECT_EQ(calls[2].launch.shared_bytes, calls[1].launch.shared_bytes) << "a launch of one block";
  EXPECT_GT(2 * bytes(3), sm_bytes);
  EXPECT_EQ(calls[4].launch.shared_bytes, needed) << "what a kernel needs is not lowered";
}
INSTANTIATE_TEST_SUITE_P(
    , SimtSharedMemory,
    testing::Values(DeviceLimits{.name = "H200", .major = 9, .n_sms = 4, .max_shared_bytes = 232448},
                    DeviceLimits{.name = "RTX5090", .major = 12, .n_sms = 4, .max_shared_bytes = 101376}),
    [](const auto& info) { return info.param.name; });

TEST(SimtKernels, exist_for_every_panel_format) {
  for (const PanelFormat* const* f = gpu::kPanelFormats; *f; ++f) EXPECT_TRUE(has_format((*f)->name)) << (*f)->name;
  EXPECT_FALSE(has_format("q9_9"));
}

TEST(SimtKernels, a_shape_is_written_in_the_order_of_its_fields) {
  const simt::AttentionMmaShape shape{.n_warps = 4, .n_sets = 1, .act = -1, .has_q8 = 1};
  EXPECT_EQ(shape_definition("AttentionMmaShape", shape), "inline constexpr AttentionMmaShape kShape = {4, 1, -1, 1};");
}

}  // namespace
}  // namespace zinc::simt::host
