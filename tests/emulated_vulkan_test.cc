// Checks of the emulated Vulkan device (tests/emulated_vulkan) on hand-written kernels.
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>

#include "tests/emulated_vulkan/workgroup.h"

namespace zinc::emulated_vulkan {
namespace {

constexpr uint32_t kThreads = 64;

// A kernel of two subgroups with an array in shared memory and an output array whose address is in its uniform block.
class Kernel {
 public:
  // Ids that a body may use.
  enum Id : uint32_t {
    kMain = 1,
    kVoid,
    kMainType,
    kUint,
    kWide,
    kBool,
    kZero,
    kOne,
    kTwo,
    kFive,
    kSubgroupSize,  // 32
    kCount,
    kArray,
    kSharedArray,
    kSharedUint,
    kShared,
    kInputUint,
    kIndex,
    kBlock,
    kBlockPointer,
    kBlockWide,
    kBlockVariable,
    kValues,
    kValuesBlock,
    kValuesPointer,
    kValuePointer,
    kThread,  // the loaded thread index
    kFirstFree
  };

  explicit Kernel(bool has_coherent_values = false) {
    add(kEntryPoint, {5, kMain, 0x6e69616d, 0});
    add(kExecutionMode, {kMain, 17, kThreads, 1, 1});
    add(kDecorate, {kIndex, 11, 29});
    add(kMemberDecorate, {kBlock, 0, 35, 0});
    add(kDecorate, {kBlockVariable, 33, 0});
    add(kDecorate, {kValues, 6, 4});
    add(kMemberDecorate, {kValuesBlock, 0, 35, 0});
    if (has_coherent_values) add(kMemberDecorate, {kValuesBlock, 0, 23});
    add(kTypeVoid, {kVoid});
    add(kTypeFunction, {kMainType, kVoid});
    add(kTypeInt, {kUint, 32, 0});
    add(kTypeInt, {kWide, 64, 0});
    add(kTypeBool, {kBool});
    add(kConstant, {kUint, kZero, 0});
    add(kConstant, {kUint, kOne, 1});
    add(kConstant, {kUint, kTwo, 2});
    add(kConstant, {kUint, kFive, 5});
    add(kConstant, {kUint, kSubgroupSize, kLanes});
    add(kConstant, {kUint, kCount, kThreads});
    add(kTypeArray, {kArray, kUint, kCount});
    add(kTypePointer, {kSharedArray, 4, kArray});
    add(kTypePointer, {kSharedUint, 4, kUint});
    add(kVariable, {kSharedArray, kShared, 4});
    add(kTypePointer, {kInputUint, 1, kUint});
    add(kVariable, {kInputUint, kIndex, 1});
    add(kTypeStruct, {kBlock, kWide});
    add(kTypePointer, {kBlockPointer, 2, kBlock});
    add(kTypePointer, {kBlockWide, 2, kWide});
    add(kVariable, {kBlockPointer, kBlockVariable, 2});
    add(kTypeRuntimeArray, {kValues, kUint});
    add(kTypeStruct, {kValuesBlock, kValues});
    add(kTypePointer, {kValuesPointer, kStorageBuffer, kValuesBlock});
    add(kTypePointer, {kValuePointer, kStorageBuffer, kUint});
    add(kFunction, {kVoid, kMain, 0, kMainType});
    add(kLabel, {fresh()});
    add(kLoad, {kUint, kThread, kIndex});
  }

  uint32_t fresh() { return next_++; }
  void add(uint32_t op, std::initializer_list<uint32_t> operands) {
    words_.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
    words_.insert(words_.end(), operands);
  }
  uint32_t make(uint32_t op, std::initializer_list<uint32_t> operands, uint32_t type = kUint) {
    const uint32_t id = fresh();
    words_.push_back(static_cast<uint32_t>(operands.size() + 3) << 16 | op);
    words_.insert(words_.end(), {type, id});
    words_.insert(words_.end(), operands);
    return id;
  }
  uint32_t shared_at(uint32_t index) { return make(kAccessChain, {kShared, index}, kSharedUint); }
  void barrier() { add(kControlBarrier, {kTwo, kTwo, kZero}); }
  uint32_t result_at(uint32_t index) {
    const uint32_t address = make(kAccessChain, {kBlockVariable, kZero}, kBlockWide);
    const uint32_t values = make(kConvertUToPtr, {make(kLoad, {address}, kWide)}, kValuesPointer);
    return make(kAccessChain, {values, kZero, index}, kValuePointer);
  }
  void store_result(uint32_t value) { add(kStore, {result_at(kThread), value, 2, 4}); }

  std::array<uint32_t, kThreads> run() {
    const Program program = finish();
    std::array<uint32_t, kThreads> results{};
    DeviceWrites writes;
    run(program, results, writes);
    return results;
  }

  Program finish() {
    add(kReturn, {});
    add(kFunctionEnd, {});
    std::vector<uint32_t> module = {0x07230203, 0x00010600, 0, next_, 0};
    module.insert(module.end(), words_.begin(), words_.end());
    return decode(module, {});
  }

  static void run(const Program& program, std::array<uint32_t, kThreads>& values, DeviceWrites& writes) {
    const uint64_t block = reinterpret_cast<uint64_t>(values.data());
    Workgroup workgroup(writes);
    workgroup.begin(program, {}, {1, 1, 1}, {reinterpret_cast<uint64_t>(&block), 0});
    while (workgroup.run(3)) {  // suspended every few instructions
    }
  }

 private:
  static constexpr uint32_t kStorageBuffer = 5349;
  std::vector<uint32_t> words_;
  uint32_t next_ = kFirstFree;
};

// Every thread writes its index and reads that of the thread 32 away.
std::array<uint32_t, kThreads> exchange_between_subgroups(bool has_barrier) {
  Kernel k;
  k.add(kStore, {k.shared_at(Kernel::kThread), Kernel::kThread});
  if (has_barrier) k.barrier();
  const uint32_t other = k.make(kBitwiseXor, {Kernel::kThread, Kernel::kSubgroupSize});
  k.store_result(k.make(kLoad, {k.shared_at(other)}));
  return k.run();
}

TEST(EmulatedVulkan, writes_of_another_subgroup_are_visible_after_a_barrier) {
  const auto results = exchange_between_subgroups(true);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(results[i], i ^ kLanes);
}

TEST(EmulatedVulkan, racing_read_returns_the_poison_value) {
  const auto results = exchange_between_subgroups(false);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(results[i], kPoisonWord) << i;
}

TEST(EmulatedVulkanDeathTest, write_write_race_aborts) {
  Kernel k;
  k.add(kStore, {k.shared_at(Kernel::kOne), Kernel::kThread});
  EXPECT_DEATH(k.run(), "thread 1 and thread 0 access byte 4 of shared memory without a barrier between");
}

TEST(EmulatedVulkan, threads_may_write_the_same_value_to_one_address) {
  Kernel k;
  k.add(kStore, {k.shared_at(Kernel::kOne), Kernel::kFive});
  k.barrier();
  k.store_result(k.make(kLoad, {k.shared_at(Kernel::kOne)}));
  for (const uint32_t result : k.run()) EXPECT_EQ(result, 5u);
}

TEST(EmulatedVulkanDeathTest, write_after_read_race_aborts) {
  Kernel k;
  const uint32_t other = k.make(kBitwiseXor, {Kernel::kThread, Kernel::kOne});
  const uint32_t read = k.make(kLoad, {k.shared_at(other)});
  k.add(kStore, {k.shared_at(Kernel::kThread), read});
  k.add(kStore, {k.shared_at(Kernel::kThread), Kernel::kThread});
  EXPECT_DEATH(k.run(), "without a barrier between");
}

TEST(EmulatedVulkanDeathTest, index_out_of_bounds_aborts) {
  Kernel k;
  const uint32_t past = k.make(kIAdd, {Kernel::kThread, Kernel::kOne});
  k.store_result(k.make(kLoad, {k.shared_at(past)}));
  EXPECT_DEATH(k.run(), "index 64 is out of bounds of an array of 64");
}

// Lanes below five take one branch, the others the other; they reconverge behind it.
Kernel branching_kernel(bool has_barrier) {
  Kernel k;
  const uint32_t yes = k.fresh(), no = k.fresh(), both = k.fresh();
  const uint32_t is_few = k.make(kULessThan, {Kernel::kThread, Kernel::kFive}, Kernel::kBool);
  k.add(kSelectionMerge, {both, 0});
  k.add(kBranchConditional, {is_few, yes, no});
  k.add(kLabel, {yes});
  const uint32_t doubled = k.make(kIMul, {Kernel::kThread, Kernel::kTwo});
  if (has_barrier) k.barrier();
  k.add(kBranch, {both});
  k.add(kLabel, {no});
  const uint32_t more = k.make(kIAdd, {Kernel::kThread, Kernel::kFive});
  k.add(kBranch, {both});
  k.add(kLabel, {both});
  const uint32_t result = k.make(kPhi, {doubled, yes, more, no});
  k.barrier();  // reconverged
  k.store_result(result);
  return k;
}

TEST(EmulatedVulkan, lanes_diverge_at_a_branch_and_reconverge_after_it) {
  const auto results = branching_kernel(false).run();
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(results[i], i < 5 ? 2 * i : i + 5) << i;
}

TEST(EmulatedVulkanDeathTest, barrier_in_divergent_control_flow_aborts) {
  Kernel k = branching_kernel(true);
  EXPECT_DEATH(k.run(), "barrier in divergent control flow");
}

enum class Reader : uint8_t { same_workgroup, coherent, after_barrier, after_same_write, non_coherent };

// A workgroup writes 2 * index; it or another one increments the values.
std::array<uint32_t, kThreads> increment_written_values(Reader reader) {
  Kernel writer, k(reader == Reader::coherent);
  writer.store_result(writer.make(kIMul, {Kernel::kThread, Kernel::kTwo}));
  if (reader == Reader::after_same_write) k.store_result(k.make(kIMul, {Kernel::kThread, Kernel::kTwo}));
  Kernel& incrementing = reader == Reader::same_workgroup ? writer : k;
  const uint32_t value = incrementing.make(kLoad, {incrementing.result_at(Kernel::kThread), 2, 4});
  incrementing.store_result(incrementing.make(kIAdd, {value, Kernel::kOne}));
  std::array<uint32_t, kThreads> values{};
  DeviceWrites writes;
  Kernel::run(writer.finish(), values, writes);
  if (reader == Reader::after_barrier) writes.pass_barrier();
  if (reader != Reader::same_workgroup) Kernel::run(k.finish(), values, writes);
  return values;
}

TEST(EmulatedVulkan, writes_of_another_workgroup_are_visible_to_coherent_loads_and_after_a_barrier_or_an_equal_write) {
  for (const Reader reader :
       {Reader::same_workgroup, Reader::coherent, Reader::after_barrier, Reader::after_same_write}) {
    const auto values = increment_written_values(reader);
    for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(values[i], 2 * i + 1) << static_cast<int>(reader);
  }
}

TEST(EmulatedVulkan, non_coherent_load_of_data_from_another_workgroup_returns_the_poison_value) {
  const auto values = increment_written_values(Reader::non_coherent);
  EXPECT_EQ(values[0], 1u) << "the write did not change the value";
  for (uint32_t i = 1; i < kThreads; ++i) EXPECT_EQ(values[i], kPoisonWord + 1) << i;
}

TEST(EmulatedVulkanDeathTest, unsupported_instruction_is_named) {
  Kernel k;
  k.store_result(k.make(205, {Kernel::kThread}));  // OpBitCount
  EXPECT_DEATH(k.run(), "\\(205\\).*unsupported instruction");
}

}  // namespace
}  // namespace zinc::emulated_vulkan
