#include "tests/emulated_vulkan/declarations.h"

#include <fmt/format.h>

#include <algorithm>

namespace zinc::emulated_vulkan {
namespace {

// Decorations.
constexpr uint32_t kSpecId = 1, kArrayStride = 6, kBuiltIn = 11, kCoherent = 23, kBinding = 33, kOffset = 35;

}  // namespace

void Declarations::declare(Words w) {
  const uint32_t op = w[0] & 0xFFFF;
  switch (op) {
    case kEntryPoint:
      entry_ = w[2];
      return;
    case kExecutionMode:
      p_.n_threads = w[3] * w[4] * w[5];
      return;
    case kDecorate:
      if (w.size() > 3) decorations_[{w[1], w[2]}] = w[3];
      return;
    case kMemberDecorate:
      if (w[3] == kOffset) offsets_[{w[1], w[2]}] = w[4];
      if (w[3] == kCoherent) types_[w[1]].is_coherent = true;
      return;
    case kVariable:
      return declare_variable(w);
    default:
      if (op >= kTypeVoid && op <= kTypeForwardPointer) return declare_type(op, w);
      if (op == kTypeMatrix) return declare_type(op, w);
      if (op >= kConstantTrue && op <= kSpecConstantOp) return declare_constant(op, w);
  }
}

void Declarations::declare_type(uint32_t op, Words w) {
  Type& t = types_[w[1]];
  t.op = static_cast<uint16_t>(op);
  switch (op) {
    case kTypeBool:
      t.n_slots = 1;
      return;
    case kTypeInt:
    case kTypeFloat:
      t.width = w[2];
      t.is_signed = op == kTypeInt && w[3] != 0;
      t.n_slots = t.width == 64 ? 2 : 1;
      t.n_bytes = t.alignment = t.width / 8;
      return;
    case kTypeVector:
    case kTypeArray:
    case kTypeRuntimeArray:
      return declare_array(op, w, t);
    case kTypeStruct:
      return declare_struct(w, t);
    case kTypePointer:
    case kTypeForwardPointer:
      t.storage = w[2];
      if (op == kTypePointer) t.element = w[3];
      t.op = kTypePointer;
      t.n_slots = is_in_slots(t.storage) ? 1 : 2;
      t.n_bytes = t.alignment = 8;
      return;
    case kTypeMatrix:
      t.element = w[2];
      t.members = {constant_value(w[4]), constant_value(w[5])};  // rows and columns
      t.count = t.n_slots = t.members[0] * t.members[1] / kLanes;
      return;
    default:
      return;
  }
}

void Declarations::declare_array(uint32_t op, Words w, Type& t) {
  const Type& e = types_[w[2]];
  t.element = w[2];
  t.count = op == kTypeRuntimeArray ? ~0u : op == kTypeVector ? w[3] : constant_value(w[3]);
  const auto stride = decorations_.find({w[1], kArrayStride});
  t.stride = stride != decorations_.end() ? stride->second : e.n_bytes;
  t.alignment = e.alignment;
  if (op == kTypeRuntimeArray) return;
  t.n_slots = t.count * e.n_slots;
  t.n_bytes = t.count * t.stride;
}

void Declarations::declare_struct(Words w, Type& t) {
  for (uint32_t i = 0; i + 2 < w.size(); ++i) {
    const Type& member = types_[w[i + 2]];
    const auto explicit_offset = offsets_.find({w[1], i});
    const uint32_t natural = (t.n_bytes + member.alignment - 1) / member.alignment * member.alignment;
    t.members.push_back(w[i + 2]);
    t.offsets.push_back(explicit_offset != offsets_.end() ? explicit_offset->second : natural);
    t.slot_offsets.push_back(t.n_slots);
    t.n_slots += member.n_slots;
    t.n_bytes = t.offsets.back() + member.n_bytes;
    t.alignment = std::max(t.alignment, member.alignment);
  }
}

void Declarations::make_constant(uint32_t id, uint32_t type, const std::vector<uint32_t>& bits) {
  values_[id] = {.type = type, .slot = allocate_slots(static_cast<uint32_t>(bits.size())), .is_constant = true};
  for (uint32_t i = 0; i < bits.size(); ++i) constant_bits_[values_[id].slot + i] = bits[i];
}

void Declarations::declare_constant(uint32_t op, Words w) {
  const Type& t = types_[w[1]];
  switch (op) {
    case kConstantTrue:
    case kConstantFalse:
      return make_constant(w[2], w[1], {op == kConstantTrue ? 1u : 0u});
    case kConstant:
      return make_constant(w[2], w[1], {w.begin() + 3, w.end()});
    case kSpecConstant: {
      const auto id = decorations_.find({w[2], kSpecId});
      const auto given_constants =
          id == decorations_.end() ? given_constants_.end() : given_constants_.find(id->second);
      return make_constant(w[2], w[1], {given_constants == given_constants_.end() ? w[3] : given_constants->second});
    }
    case kSpecConstantOp:
      return make_constant(w[2], w[1], {evaluate_spec_op(w)});
    case kConstantComposite: {
      std::vector<uint32_t> bits;
      for (const uint32_t part : w.subspan(3)) {
        for (uint32_t i = 0; i < type_of(part).n_slots; ++i) bits.push_back(constant_bits_.at(slot(part) + i));
      }
      if (t.op == kTypeMatrix) bits.assign(t.n_slots, bits.at(0));
      return make_constant(w[2], w[1], bits);
    }
    default:
      fault(fmt::format("unsupported constant instruction {}", op));
  }
}

uint32_t Declarations::evaluate_spec_op(Words w) const {
  const uint32_t a = constant_value(w[4]), b = w.size() > 5 ? constant_value(w[5]) : 0;
  const auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  switch (w[3]) {
    case kIAdd:
      return a + b;
    case kISub:
      return a - b;
    case kIMul:
      return a * b;
    case kSDiv:
      return static_cast<uint32_t>(sa / sb);
    case kSMod:
      return static_cast<uint32_t>((sa % sb + sb) % sb);
    case kIEqual:
      return a == b ? 1 : 0;
    case kINotEqual:
      return a != b ? 1 : 0;
    case kSGreaterThan:
      return sa > sb ? 1 : 0;
    case kSLessThan:
      return sa < sb ? 1 : 0;
    case kSLessThanEqual:
      return sa <= sb ? 1 : 0;
    case kLogicalAnd:
      return a & b;
    case kLogicalOr:
      return a | b;
    case kLogicalNot:
      return 1 - a;
    case kSelect:
      return a != 0 ? b : constant_value(w[6]);
    default:
      fault(fmt::format("unsupported specialization constant operation {}", w[3]));
  }
}

// A pointer with its own slot, so that it can be passed on.
void Declarations::make_static(uint32_t id, uint32_t type, uint32_t points_to) {
  values_[id] = {.type = type, .slot = allocate_slots(1), .is_static = true, .points_to = points_to};
  constant_bits_[values_[id].slot] = points_to;
}

void Declarations::declare_variable(Words w) {
  const uint32_t id = w[2];
  const Type& pointee = element_of(types_[w[1]]);
  if (is_in_slots(w[3])) {
    make_static(id, w[1], allocate_slots(pointee.n_slots));
    if (w.size() > 4) {
      for (uint32_t i = 0; i < pointee.n_slots; ++i) {
        constant_bits_[values_[id].points_to + i] = constant_bits_.at(slot(w[4]) + i);
      }
    }
    if (const auto builtin = decorations_.find({id, kBuiltIn}); builtin != decorations_.end()) {
      p_.builtins.emplace_back(values_[id].points_to, builtin->second);
    }
    return;
  }
  values_[id] = {.type = w[1], .slot = allocate_slots(2)};
  if (w[3] == kUniform) {
    p_.bindings.emplace_back(slot(id), decorations_.at({id, kBinding}));
  } else if (w[3] == kWorkgroup) {
    is_shared_[id] = true;
  } else {
    fault(fmt::format("unsupported storage class {}", w[3]));
  }
}

}  // namespace zinc::emulated_vulkan
