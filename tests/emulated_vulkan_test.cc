// What the emulated Vulkan device (tests/emulated_vulkan) sees, on kernels written by hand.
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>

#include "tests/emulated_vulkan/workgroup.h"

namespace zinc::emulated_vulkan {
namespace {

constexpr uint32_t kThreads = 64;

// A kernel of two subgroups with an array in shared memory, and one for results that its block has the address of.
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
    kHalf,  // 32
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
    kNumbers,
    kNumbersBlock,
    kNumbersPointer,
    kNumber,
    kThread,  // its number, loaded
    kFirstFree
  };

  Kernel() {
    add(kEntryPoint, {5, kMain, 0x6e69616d, 0});
    add(kExecutionMode, {kMain, 17, kThreads, 1, 1});
    add(kDecorate, {kIndex, 11, 29});
    add(kMemberDecorate, {kBlock, 0, 35, 0});
    add(kDecorate, {kBlockVariable, 33, 0});
    add(kDecorate, {kNumbers, 6, 4});
    add(kMemberDecorate, {kNumbersBlock, 0, 35, 0});
    add(kTypeVoid, {kVoid});
    add(kTypeFunction, {kMainType, kVoid});
    add(kTypeInt, {kUint, 32, 0});
    add(kTypeInt, {kWide, 64, 0});
    add(kTypeBool, {kBool});
    add(kConstant, {kUint, kZero, 0});
    add(kConstant, {kUint, kOne, 1});
    add(kConstant, {kUint, kTwo, 2});
    add(kConstant, {kUint, kFive, 5});
    add(kConstant, {kUint, kHalf, kLanes});
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
    add(kTypeRuntimeArray, {kNumbers, kUint});
    add(kTypeStruct, {kNumbersBlock, kNumbers});
    add(kTypePointer, {kNumbersPointer, kStorageBuffer, kNumbersBlock});
    add(kTypePointer, {kNumber, kStorageBuffer, kUint});
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
  void give(uint32_t value) {  // the thread's result
    const uint32_t place = make(kAccessChain, {kBlockVariable, kZero}, kBlockWide);
    const uint32_t numbers = make(kConvertUToPtr, {make(kLoad, {place}, kWide)}, kNumbersPointer);
    add(kStore, {make(kAccessChain, {numbers, kZero, kThread}, kNumber), value, 2, 4});
  }

  std::array<uint32_t, kThreads> run() {
    add(kReturn, {});
    add(kFunctionEnd, {});
    std::vector<uint32_t> module = {0x07230203, 0x00010600, 0, next_, 0};
    module.insert(module.end(), words_.begin(), words_.end());
    const Program program = decode(module, {});
    std::array<uint32_t, kThreads> results{};
    const uint64_t block = reinterpret_cast<uint64_t>(results.data());
    Workgroup workgroup;
    workgroup.begin(program, {}, {1, 1, 1}, {reinterpret_cast<uint64_t>(&block), 0});
    while (workgroup.run(3)) {  // left and gone on with after every few instructions
    }
    return results;
  }

 private:
  static constexpr uint32_t kStorageBuffer = 5349;
  std::vector<uint32_t> words_;
  uint32_t next_ = kFirstFree;
};

// Every thread writes its number and reads that of the thread 32 from it.
std::array<uint32_t, kThreads> exchanged(bool has_barrier) {
  Kernel k;
  k.add(kStore, {k.shared_at(Kernel::kThread), Kernel::kThread});
  if (has_barrier) k.barrier();
  const uint32_t other = k.make(kBitwiseXor, {Kernel::kThread, Kernel::kHalf});
  k.give(k.make(kLoad, {k.shared_at(other)}));
  return k.run();
}

TEST(EmulatedVulkan, what_another_subgroup_wrote_is_there_behind_a_barrier) {
  const auto results = exchanged(true);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(results[i], i ^ kLanes);
}

TEST(EmulatedVulkan, without_a_barrier_another_threads_number_is_nonsense) {
  const auto results = exchanged(false);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(results[i], kNobodysWord) << i;
}

TEST(EmulatedVulkanDeathTest, two_threads_that_write_one_place_end_the_process) {
  Kernel k;
  k.add(kStore, {k.shared_at(Kernel::kOne), Kernel::kThread});
  EXPECT_DEATH(k.run(), "thread 1 and thread 0 are at byte 4 of the workgroup's memory, no barrier between");
}

TEST(EmulatedVulkan, threads_may_write_the_same_number_to_one_place) {
  Kernel k;
  k.add(kStore, {k.shared_at(Kernel::kOne), Kernel::kFive});
  k.barrier();
  k.give(k.make(kLoad, {k.shared_at(Kernel::kOne)}));
  for (const uint32_t result : k.run()) EXPECT_EQ(result, 5u);
}

TEST(EmulatedVulkanDeathTest, a_place_that_others_still_read_may_not_be_written) {
  Kernel k;
  const uint32_t other = k.make(kBitwiseXor, {Kernel::kThread, Kernel::kOne});
  const uint32_t read = k.make(kLoad, {k.shared_at(other)});
  k.add(kStore, {k.shared_at(Kernel::kThread), read});
  k.add(kStore, {k.shared_at(Kernel::kThread), Kernel::kThread});
  EXPECT_DEATH(k.run(), "no barrier between");
}

TEST(EmulatedVulkanDeathTest, an_index_past_the_end_ends_the_process) {
  Kernel k;
  const uint32_t past = k.make(kIAdd, {Kernel::kThread, Kernel::kOne});
  k.give(k.make(kLoad, {k.shared_at(past)}));
  EXPECT_DEATH(k.run(), "index 64 of an array of 64");
}

// Lanes below five go one way, the others another; they meet behind it.
Kernel branched(bool has_barrier) {
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
  k.barrier();  // all lanes are here again
  k.give(result);
  return k;
}

TEST(EmulatedVulkan, lanes_part_at_a_branch_and_meet_behind_it) {
  const auto results = branched(false).run();
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(results[i], i < 5 ? 2 * i : i + 5) << i;
}

TEST(EmulatedVulkanDeathTest, a_barrier_that_some_lanes_pass_by_ends_the_process) {
  Kernel k = branched(true);
  EXPECT_DEATH(k.run(), "a barrier where lanes are missing");
}

TEST(EmulatedVulkanDeathTest, an_instruction_it_does_not_know_is_named) {
  Kernel k;
  k.give(k.make(205, {Kernel::kThread}));  // OpBitCount
  EXPECT_DEATH(k.run(), "\\(205\\).*this instruction is unknown");
}

}  // namespace
}  // namespace zinc::emulated_vulkan
