#include "base/cgroup_memory.h"

#include <gtest/gtest.h>

#include "base/memory_info.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

TEST(CgroupMemory, takes_the_tightest_limit_up_to_the_root) {
  const TestFolder root;
  put(root / "cgroup", "0::/pod/unit\n");
  put(root / "fs/pod/memory.max", "1000000\n");
  put(root / "fs/pod/memory.current", "700000\n");
  put(root / "fs/pod/memory.stat", "anon 100000\ninactive_file 200000\nactive_file 50000\n");
  put(root / "fs/pod/unit/memory.max", "max\n");
  CgroupMemory memory = read_cgroup_memory(root / "cgroup", root / "fs");
  EXPECT_EQ(memory.limit, 1000000u);
  EXPECT_EQ(memory.available, 550000u) << "page cache counts as free";
  put(root / "fs/pod/unit/memory.max", "600000\n");
  put(root / "fs/pod/unit/memory.current", "650000\n");
  memory = read_cgroup_memory(root / "cgroup", root / "fs");
  EXPECT_EQ(memory.limit, 600000u);
  EXPECT_EQ(memory.available, 0u);
}

TEST(CgroupMemory, container_limit_is_read_from_the_mount_root) {
  const TestFolder root;
  put(root / "fs/memory.max", "5000\n");
  for (const char* path : {"0::/\n", "0::/docker/abc\n", "0::/../../other\n"}) {
    put(root / "cgroup", path);
    EXPECT_EQ(read_cgroup_memory(root / "cgroup", root / "fs").limit, 5000u) << path;
    EXPECT_EQ(read_cgroup_memory(root / "cgroup", root / "fs").available, 5000u) << path;
  }
}

TEST(CgroupMemory, cgroup_v1_is_supported) {
  const TestFolder root;
  put(root / "cgroup", "12:cpu,cpuacct:/docker/abc\n4:hugetlb,memory:/docker/abc\n0::/\n");
  put(root / "fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put(root / "fs/memory/docker/abc/memory.limit_in_bytes", "4000\n");
  put(root / "fs/memory/docker/abc/memory.usage_in_bytes", "3000\n");
  put(root / "fs/memory/docker/abc/memory.stat", "inactive_file 1\ntotal_inactive_file 600\ntotal_active_file 400\n");
  const CgroupMemory memory = read_cgroup_memory(root / "cgroup", root / "fs");
  EXPECT_EQ(memory.limit, 4000u);
  EXPECT_EQ(memory.available, 2000u);
}

TEST(CgroupMemory, missing_or_malformed_files_impose_no_limit) {
  const TestFolder root;
  EXPECT_EQ(read_cgroup_memory(root / "absent", root / "fs").limit, SIZE_MAX);
  put(root / "cgroup", "nonsense\n\n0::\n7:memory:\n");
  put(root / "fs/memory.max", "none of your business\n");
  EXPECT_EQ(read_cgroup_memory(root / "cgroup", root / "fs").limit, SIZE_MAX);
  EXPECT_EQ(read_cgroup_memory(root / "cgroup", root / "fs").available, SIZE_MAX);
}

TEST(MemoryInfo, respects_the_cgroup_limits_of_this_process) {
  const CgroupMemory memory = read_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
  EXPECT_GT(physical_memory_bytes(), 0u);
  EXPECT_LE(physical_memory_bytes(), memory.limit);
  EXPECT_LE(available_memory_bytes(), physical_memory_bytes());
}

}  // namespace
}  // namespace zinc
