// Declarations of a SPIR-V module: types and their layout, constants with specialization applied, variables. First half
// of decoding a kernel; the second is program.cc.
#pragma once

#include "tests/emulated_vulkan/program.h"

namespace zinc::emulated_vulkan {

inline constexpr uint32_t kInput = 1, kUniform = 2, kWorkgroup = 4, kPrivate = 6, kFunctionLocal = 7,
                          kDeviceMemory = 5349;  // storage classes
inline bool is_in_slots(uint32_t storage) {
  return storage == kInput || storage == kPrivate || storage == kFunctionLocal;
}

struct Type {
  uint16_t op = 0;
  uint32_t width = 32, count = 1;  // bits of a scalar; number of elements
  uint32_t element = 0;            // type of the elements, or of a pointer's target
  uint32_t storage = 0;            // class of a pointer
  bool is_signed = false;
  uint32_t n_slots = 0, n_bytes = 0, alignment = 1, stride = 0;
  std::vector<uint32_t> members, offsets, slot_offsets;
  bool is_coherent = false;  // struct with a member declared coherent
};

struct Value {
  uint32_t type = 0, slot = 0;
  bool is_constant = false;
  bool is_static = false;  // a pointer known at decode time
  uint32_t points_to = 0;  // slot, if is_static
};

class Declarations {
 protected:
  using Words = std::span<const uint32_t>;

  Declarations(Words words, const std::map<uint32_t, uint32_t>& given_constants)
      : words_(words), given_constants_(given_constants), types_(words[3]), values_(words[3]), is_shared_(words[3]) {}

  uint32_t op_at(size_t word) const { return words_[word] & 0xFFFF; }
  size_t length(size_t word) const { return words_[word] >> 16; }
  const Type& type_of(uint32_t id) const { return types_[values_[id].type]; }
  const Type& element_of(const Type& type) const { return types_[type.element]; }
  uint32_t slot(uint32_t id) const { return values_[id].slot; }
  uint32_t constant_value(uint32_t id) const {  // value of a constant
    if (!values_[id].is_constant) fault("an operand that must be constant is not");
    return constant_bits_.at(values_[id].slot);
  }
  uint32_t allocate_slots(uint32_t n) {
    n_slots_ += n;
    return n_slots_ - n;
  }

  void declare(Words w);
  void declare_type(uint32_t op, Words w);
  void declare_array(uint32_t op, Words w, Type& t);
  void declare_struct(Words w, Type& t);
  void make_constant(uint32_t id, uint32_t type, const std::vector<uint32_t>& bits);
  void declare_constant(uint32_t op, Words w);
  uint32_t evaluate_spec_op(Words w) const;
  void make_static(uint32_t id, uint32_t type, uint32_t points_to);
  void declare_variable(Words w);

  Words words_;
  const std::map<uint32_t, uint32_t>& given_constants_;  // specialization constants by id
  std::vector<Type> types_;                              // by id, like values_
  std::vector<Value> values_;
  std::vector<bool> is_shared_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> decorations_, offsets_;
  std::map<uint32_t, uint32_t> constant_bits_;  // by slot
  uint32_t n_slots_ = 0, entry_ = 0;
  Program p_;
};

}  // namespace zinc::emulated_vulkan
