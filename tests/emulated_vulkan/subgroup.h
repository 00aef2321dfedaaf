// 32 lanes that execute a kernel together as far as their branches allow. Execution can be suspended after any
// instruction. Aborts on undefined behavior that a GPU may tolerate: a barrier or matrix instruction in divergent
// control flow, a misaligned address, an index out of bounds.
#pragma once

#include <array>
#include <bit>

#include "tests/emulated_vulkan/device_writes.h"
#include "tests/emulated_vulkan/program.h"
#include "tests/emulated_vulkan/shared_memory.h"

namespace zinc::emulated_vulkan {

struct Dim3 {  // a workgroup id or a grid size
  uint32_t x = 0, y = 0, z = 0;
};

struct WorkgroupMemory {
  SharedMemory shared;
  DeviceWrites* device_writes = nullptr;
  uint32_t workgroup = 0;  // id in device_writes
};

class Subgroup {
 public:
  enum class Stop : uint8_t { slice, barrier, end };

  void begin(const Program& program, uint32_t index, WorkgroupMemory& memory, Dim3 workgroup_id, Dim3 grid,
             const std::array<uint64_t, 2>& uniforms);
  Stop run(int& budget);  // budget: remaining instructions

 private:
  using Lanes = uint32_t;  // one bit per lane
  static constexpr Lanes kAll = ~0u;
  struct LaneGroup {  // lanes waiting at a block
    uint32_t block;
    Lanes lanes;
  };
  struct Frame {        // of a call
    uint32_t back, to;  // return address; slots of the result
    Lanes lanes;        // of the caller
    std::vector<LaneGroup> pending_groups;
    uint32_t block;  // of the caller
  };

  uint32_t* slot(uint32_t i) { return slots_.data() + size_t{i} * kLanes; }
  template <class T>
  T* as(uint32_t i) {
    return reinterpret_cast<T*>(slot(i));
  }
  uint64_t wide(uint32_t i, uint32_t lane) { return slot(i)[lane] | uint64_t{slot(i + 1)[lane]} << 32; }
  void set_wide(uint32_t i, uint32_t lane, uint64_t value);
  template <class F>
  void for_lanes(F f) {
    if (lanes_ == kAll) {
      for (uint32_t l = 0; l < kLanes; ++l) f(l);
      return;
    }
    for (Lanes remaining = lanes_; remaining != 0; remaining &= remaining - 1)
      f(static_cast<uint32_t>(std::countr_zero(remaining)));
  }
  template <class T, class R = T, class F>
  void for_each_component(const Instruction& i, F f);

  bool is_race_free(uint64_t address, uint32_t n_bytes, uint32_t thread);
  bool is_stale(uint64_t address, uint32_t n_bytes);
  void report_poison(const std::string& reason);  // once per instruction
  bool is_uniform(const uint32_t* values) const;
  void check_write(uint64_t address, uint32_t n_bytes, uint32_t thread, bool is_same_value);
  void check_race(uint32_t other, uint64_t address, uint32_t thread) const;
  void copy(uint32_t to, uint32_t from, uint32_t n);
  void move(const Instruction& i);
  void check_index(const int32_t* indices, uint32_t limit) const;
  void access_chain(const Instruction& i);
  void load(const Instruction& i);
  void store(const Instruction& i);
  void convert(const Instruction& i);
  void compute(const Instruction& i);
  void compute_wide(const Instruction& i);
  void compute_glsl(const Instruction& i);
  void shuffle(const Instruction& i);
  void evaluate_phi(const Instruction& i);
  void multiply_matrices(const Instruction& i);
  void load_store_matrix(const Instruction& i);

  void enter(uint32_t block);
  void jump(uint32_t block);
  void branch(const Instruction& i);
  void call(const Instruction& i);
  bool return_from_call();  // false: the kernel has ended
  void run_next_group();
  [[noreturn]] void fail(const std::string& what) const;

  const Program* program_ = nullptr;
  SharedMemory* shared_ = nullptr;
  DeviceWrites* device_writes_ = nullptr;
  std::vector<uint32_t> slots_;
  std::vector<Frame> frames_;
  std::vector<LaneGroup> pending_groups_;  // of this call: lanes waiting at later blocks
  std::array<uint32_t, kLanes> previous_block_{};
  Lanes lanes_ = 0;
  uint32_t pc_ = 0, block_ = 0, index_ = 0, workgroup_ = 0, barrier_epoch_ = 0, n_shuffles_ = 0;
};

}  // namespace zinc::emulated_vulkan
