#include "backend/gpu/plan_memory.h"

#include <gtest/gtest.h>

#include "tests/support/host_device.h"

namespace zinc::gpu {
namespace {

TEST(SharedWorkspaceMemory, workspaces_share_memory_in_the_order_of_their_allocations) {
  HostDevice device;
  SharedWorkspaceMemory shared(device);
  const auto allocate = [&](size_t n_bytes) { return std::move(shared.allocate(n_bytes, "a workspace").value()); };
  shared.begin_workspace();
  const Buffer first = allocate(100), first_none = allocate(0), first_table = allocate(40);
  EXPECT_TRUE(shared.needs_write(first_table));
  shared.begin_workspace();
  const Buffer second = allocate(60), second_other = allocate(8), second_table = allocate(40);
  EXPECT_EQ(second.address(), first.address());
  EXPECT_EQ(second.size(), 60u);
  EXPECT_NE(second_other.address(), first.address());
  EXPECT_EQ(second_table.address(), first_table.address());
  EXPECT_FALSE(shared.needs_write(second_table)) << "the first workspace has written it";
  shared.begin_workspace();
  const Buffer larger = allocate(200);
  EXPECT_NE(larger.address(), first.address());
  EXPECT_EQ(first_none.size(), 0u);
  EXPECT_EQ(shared.device_bytes(), 100u + 40 + 8 + 200);
}

}  // namespace
}  // namespace zinc::gpu
