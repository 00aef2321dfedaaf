// 32 lanes that run a kernel together as far as their branches let them. It can be left at any instruction and gone on
// with. What a card would forgive today and not tomorrow ends the process: a barrier or a matrix where some lanes are
// elsewhere, an address that is not as aligned as the kernel says, an index past an array's end.
#pragma once

#include <array>
#include <bit>

#include "tests/emulated_vulkan/program.h"
#include "tests/emulated_vulkan/shared_memory.h"

namespace zinc::emulated_vulkan {

struct Position {
  uint32_t x = 0, y = 0, z = 0;
};

class Subgroup {
 public:
  enum class Stop : uint8_t { slice, barrier, end };

  void begin(const Program& program, uint32_t index, SharedMemory& shared, Position at, Position grid,
             const std::array<uint64_t, 2>& blocks);
  Stop run(int& n_left);  // so many instructions at most

 private:
  using Lanes = uint32_t;  // a bit each
  static constexpr Lanes kAll = ~0u;
  struct Group {  // lanes that go on at a block
    uint32_t block;
    Lanes lanes;
  };
  struct Frame {        // of a call
    uint32_t back, to;  // where the caller goes on; slots of the result
    Lanes lanes;        // of the caller
    std::vector<Group> waiting;
    uint32_t block;  // the caller's
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
    for (Lanes left = lanes_; left != 0; left &= left - 1) f(static_cast<uint32_t>(std::countr_zero(left)));
  }
  template <class T, class R = T, class F>
  void each(const Instruction& i, F f);

  bool is_settled(uint64_t at, uint32_t n_bytes, uint32_t who);
  bool is_one_for_all(const uint32_t* numbers) const;
  void trace_write(uint64_t at, uint32_t n_bytes, uint32_t who, bool is_same);
  void check_alone(uint32_t other, uint64_t at, uint32_t who) const;
  void copy(uint32_t to, uint32_t from, uint32_t n);
  void move(const Instruction& i);
  void check_index(const int32_t* indices, uint32_t limit) const;
  void chain(const Instruction& i);
  void load(const Instruction& i);
  void store(const Instruction& i);
  void convert(const Instruction& i);
  void compute(const Instruction& i);
  void compute_wide(const Instruction& i);
  void compute_glsl(const Instruction& i);
  void shuffle(const Instruction& i);
  void choose_phi(const Instruction& i);
  void multiply_matrices(const Instruction& i);
  void move_matrix(const Instruction& i);

  void enter(uint32_t block);
  void go_to(uint32_t block);
  void branch(const Instruction& i);
  void call(const Instruction& i);
  bool give_back();  // false: the kernel is over
  void next_group();
  [[noreturn]] void fail(const std::string& what) const;

  const Program* program_ = nullptr;
  SharedMemory* shared_ = nullptr;
  std::vector<uint32_t> slots_;
  std::vector<Frame> frames_;
  std::vector<Group> waiting_;  // of this call: they come where blocks are later
  std::array<uint32_t, kLanes> came_from_{};
  Lanes lanes_ = 0;
  uint32_t at_ = 0, block_ = 0, index_ = 0, turn_ = 0, n_exchanges_ = 0;
};

}  // namespace zinc::emulated_vulkan
