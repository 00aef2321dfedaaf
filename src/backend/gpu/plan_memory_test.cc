#include "backend/gpu/plan_memory.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/host_device.h"

namespace zinc::gpu {
namespace {

TEST(SharedWorkspaceMemory, workspaces_share_memory_in_the_order_of_their_allocations) {
  HostDevice device;
  SharedWorkspaceMemory shared(device);
  const auto allocate = [&](size_t n_bytes) { return std::move(shared.allocate(n_bytes, "a workspace").value()); };
  shared.begin_workspace();
  const auto table = [&](char c) {
    const std::array<std::byte, 40> contents = {std::byte(c)};
    return std::move(shared.allocate_table(contents, "a table").value());
  };
  const Buffer first = allocate(100), first_none = allocate(0), first_table = table('a');
  shared.begin_workspace();
  const Buffer second = allocate(60), second_other = allocate(8), second_table = table('a'), other_table = table('b');
  EXPECT_EQ(second.address(), first.address());
  EXPECT_EQ(second.size(), 60u);
  EXPECT_NE(second_other.address(), first.address());
  EXPECT_EQ(second_table.address(), first_table.address());
  EXPECT_NE(other_table.address(), first_table.address()) << "its contents differ";
  EXPECT_EQ(*second_table.host_ptr<char>(), 'a');
  EXPECT_EQ(*other_table.host_ptr<char>(), 'b');
  shared.begin_workspace();
  const Buffer larger = allocate(200);
  EXPECT_NE(larger.address(), first.address());
  EXPECT_EQ(first_none.size(), 0u);
  EXPECT_EQ(shared.device_bytes(), 100u + 40 + 8 + 40 + 200);
}

}  // namespace
}  // namespace zinc::gpu
