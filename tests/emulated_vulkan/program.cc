#include "tests/emulated_vulkan/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "tests/emulated_vulkan/declarations.h"

namespace zinc::emulated_vulkan {

void fault(const std::string& message) {
  std::fprintf(stderr, "emulated Vulkan device: %s\n", message.c_str());
  std::abort();
}

namespace {

// A scalar of up to 32 bits within a type in memory.
struct Leaf {
  uint32_t byte, slot, width, is_signed;
};

bool has_result(uint32_t op) {
  switch (op) {
    case kStore:
    case kControlBarrier:
    case kMemoryBarrier:
    case kLoopMerge:
    case kSelectionMerge:
    case kLabel:
    case kBranch:
    case kBranchConditional:
    case kReturn:
    case kReturnValue:
    case kMatrixStore:
    case kFunctionEnd:
      return false;
    default:
      return true;
  }
}

class Decoder : Declarations {
 public:
  Decoder(Words words, const std::map<uint32_t, uint32_t>& given_constants)
      : Declarations(words, given_constants),
        block_of_(words[3]),
        function_of_(words[3]),
        used_across_blocks_(words[3]),
        is_coherent_(words[3]) {}

  Program decode() {
    size_t word_idx = 5, functions = words_.size();
    for (; word_idx < words_.size(); word_idx += length(word_idx)) {
      if (op_at(word_idx) == kFunction) {
        functions = word_idx;
        break;
      }
      declare(words_.subspan(word_idx, length(word_idx)));
    }
    find_blocks(functions);
    place_shared_variables();
    for (word_idx = functions; word_idx < words_.size();) word_idx = plan_function(word_idx);
    for (word_idx = functions; word_idx < words_.size(); word_idx += length(word_idx)) {
      if (!elide_load(word_idx))
        translate(static_cast<Op>(op_at(word_idx)), words_.subspan(word_idx, length(word_idx)));
    }
    p_.main_block = function_of_[entry_];
    for (const auto& [slot, bits] : constant_bits_) p_.constants.emplace_back(slot, bits);
    p_.n_slots = n_slots_;
    return std::move(p_);
  }

 private:
  // ---- reachable blocks ----

  struct Block {
    size_t begin = 0, end = 0;  // from after the label to after the last instruction
  };
  void find_blocks(size_t functions) {
    uint32_t label = 0, function = 0;
    for (size_t word_idx = functions; word_idx < words_.size(); word_idx += length(word_idx)) {
      if (op_at(word_idx) == kFunction) function = words_[word_idx + 2];
      if (op_at(word_idx) == kLabel) {
        label = words_[word_idx + 1];
        blocks_[label].begin = word_idx + length(word_idx);
        first_label_.emplace(function, label);
      }
      if (label != 0) blocks_[label].end = word_idx + length(word_idx);
    }
  }

  // Allocates the shared variables that are still reachable with the specialization constants applied, as drivers do.
  void place_shared_variables() {
    std::vector<uint32_t> next = {first_label_.at(entry_)};
    std::set<uint32_t> reached(next.begin(), next.end()), used_shared;
    const auto reach = [&](uint32_t label) {
      if (reached.insert(label).second) next.push_back(label);
    };
    while (!next.empty()) {
      const Block block = blocks_.at(next.back());
      next.pop_back();
      for (size_t word_idx = block.begin; word_idx < block.end; word_idx += length(word_idx)) {
        const Words w = words_.subspan(word_idx, length(word_idx));
        const uint32_t op = op_at(word_idx);
        if (op == kFunctionCall) reach(first_label_.at(w[3]));
        if (op == kBranch) reach(w[1]);
        if (op == kBranchConditional) {
          const bool is_known = values_[w[1]].is_constant;
          if (!is_known || constant_value(w[1]) != 0) reach(w[2]);
          if (!is_known || constant_value(w[1]) == 0) reach(w[3]);
        }
        for (const uint32_t word : w.subspan(1)) {
          if (word < is_shared_.size() && is_shared_[word]) used_shared.insert(word);
        }
      }
    }
    for (const uint32_t id : used_shared) {
      constexpr uint32_t kAlignment = 16;
      p_.shared_bytes = (p_.shared_bytes + kAlignment - 1) / kAlignment * kAlignment;
      p_.shared.emplace_back(slot(id), p_.shared_bytes);
      p_.shared_bytes += element_of(type_of(id)).n_bytes;
    }
  }

  // ---- slot allocation ----

  // Values used only in their own block share slots with those of other blocks.
  size_t plan_function(size_t begin) {
    std::vector<size_t> defined_in(types_.size());
    size_t block = 0, end = begin;
    for (size_t word_idx = begin; op_at(end = word_idx) != kFunctionEnd; word_idx += length(word_idx)) {
      const uint32_t op = op_at(word_idx);
      if (op == kLabel) {
        block = word_idx;
        block_of_[words_[word_idx + 1]] = n_blocks_++;
      }
      for (const uint32_t word : words_.subspan(word_idx + 1, length(word_idx) - 1)) {
        if (word < used_across_blocks_.size() && defined_in[word] != 0 && (defined_in[word] != block || op == kPhi))
          used_across_blocks_[word] = true;
      }
      if (has_result(op) && block != 0) defined_in[words_[word_idx + 2]] = block;
    }
    uint32_t max_block_slots = 0, n_block_slots = 0;
    std::vector<std::pair<uint32_t, uint32_t>> block_local;
    for (size_t word_idx = begin; word_idx < end; word_idx += length(word_idx)) {
      const uint32_t op = op_at(word_idx);
      if (op == kLabel) n_block_slots = 0;
      if (op == kLabel || op == kVariable || op == kFunction || !has_result(op)) continue;
      const uint32_t id = words_[word_idx + 2], type = words_[word_idx + 1], n = types_[type].n_slots;
      values_[id].type = type;
      if (op == kFunctionParameter || used_across_blocks_[id]) {
        values_[id].slot = allocate_slots(n);
        continue;
      }
      block_local.emplace_back(id, n_block_slots);
      n_block_slots += n;
      max_block_slots = std::max(max_block_slots, n_block_slots);
    }
    const uint32_t base = allocate_slots(max_block_slots);
    for (const auto& [id, offset] : block_local) values_[id].slot = base + offset;
    return end + length(end);
  }

  // ---- instructions ----

  void emit(Instruction i) { p_.code.push_back(i); }
  void copy(uint32_t to, uint32_t from, uint32_t n) {
    if (n > 0) emit({.op = kCopy, .n = static_cast<uint16_t>(n), .to = to, .a = from});
  }
  uint32_t append_words(const std::vector<uint32_t>& list) {
    const auto begin = static_cast<uint32_t>(p_.words.size());
    p_.words.insert(p_.words.end(), list.begin(), list.end());
    return begin;
  }

  void flatten(const Type& t, uint32_t byte, uint32_t slot, std::vector<Leaf>& out) const {
    switch (t.op) {
      case kTypeStruct:
        for (size_t i = 0; i < t.members.size(); ++i) {
          flatten(types_[t.members[i]], byte + t.offsets[i], slot + t.slot_offsets[i], out);
        }
        return;
      case kTypeVector:
      case kTypeArray:
        for (uint32_t i = 0; i < t.count; ++i) {
          flatten(element_of(t), byte + i * t.stride, slot + i * element_of(t).n_slots, out);
        }
        return;
      default:
        if (t.n_bytes < 4) {
          out.push_back({byte, slot, t.n_bytes, t.is_signed ? 1u : 0u});
          return;
        }
        for (uint32_t i = 0; i < t.n_bytes / 4; ++i) out.push_back({byte + 4 * i, slot + i, 4, 0});
    }
  }

  // A loaded variable that is not written before the last use of the loaded value needs no copy.
  bool elide_load(size_t load) {
    if (op_at(load) != kLoad) return false;
    const uint32_t id = words_[load + 2];
    const Value from = values_[words_[load + 3]];
    if (!from.is_static || used_across_blocks_[id]) return false;
    const auto may_write = [&](size_t word_idx) {
      if (op_at(word_idx) == kFunctionCall) return true;
      if (op_at(word_idx) != kStore) return false;
      const Value& to = values_[words_[word_idx + 1]];
      const Type& type = types_[to.type];
      if (!is_in_slots(type.storage)) return false;
      const uint32_t n = element_of(type).n_slots, n_loaded = types_[words_[load + 1]].n_slots;
      return !to.is_static || (to.points_to < from.points_to + n_loaded && from.points_to < to.points_to + n);
    };
    bool is_written = false;
    for (size_t word_idx = load + length(load); op_at(word_idx) != kLabel && op_at(word_idx) != kFunctionEnd;
         word_idx += length(word_idx)) {
      const Words operands = words_.subspan(word_idx + 1, length(word_idx) - 1);
      if (is_written && std::ranges::find(operands, id) != operands.end()) return false;
      is_written = is_written || may_write(word_idx);
    }
    values_[id].slot = from.points_to;
    return true;
  }

  // `b`: bytes of a load that may come from a non-coherent cache; `c`: alignment.
  void translate_memory(uint32_t op, Words w) {
    const bool is_load = op == kLoad;
    const uint32_t pointer = is_load ? w[3] : w[1], value = is_load ? w[2] : w[2];
    const Type& pointed = type_of(pointer);
    const Type& t = element_of(pointed);
    const uint32_t other = slot(value);
    if (is_in_slots(pointed.storage)) {
      const Value& from = values_[pointer];
      if (from.is_static)
        return is_load ? copy(other, from.points_to, t.n_slots) : copy(from.points_to, other, t.n_slots);
      return emit({.op = is_load ? kLoadSlots : kStoreSlots,
                   .n = static_cast<uint16_t>(t.n_slots),
                   .to = is_load ? other : from.slot,
                   .a = is_load ? from.slot : other});
    }
    std::vector<Leaf> leaves;
    flatten(t, 0, 0, leaves);
    bool is_plain = true;
    std::vector<uint32_t> list;
    for (uint32_t i = 0; i < leaves.size(); ++i) {
      const Leaf& leaf = leaves[i];
      is_plain = is_plain && leaf.byte == 4 * i && leaf.slot == i && leaf.width == 4;
      list.insert(list.end(), {leaf.byte, leaf.slot, leaf.width, leaf.is_signed});
    }
    const size_t flags = is_load ? 4 : 3;
    constexpr uint32_t kAligned = 2, kMakePointerVisible = 16;  // the latter in Vulkan's memory model
    const bool is_aligned = w.size() > flags + 1 && (w[flags] & kAligned) != 0;
    const bool is_coherent = is_coherent_[pointer] || (w.size() > flags && (w[flags] & kMakePointerVisible) != 0);
    emit({.op = static_cast<uint16_t>(op),
          .n = static_cast<uint16_t>(leaves.size()),
          .is_shared = pointed.storage == kWorkgroup,
          .to = is_load ? other : slot(pointer),
          .a = is_load ? slot(pointer) : other,
          .b = is_load && pointed.storage == kDeviceMemory && !is_coherent ? t.n_bytes : 0,
          .c = is_aligned ? w[flags + 1] : 1,
          .more = is_plain ? 0 : append_words(list)});
  }

  // words: constant offset, then per index its slot, whether it is 64-bit, its stride and its bound.
  void translate_chain(Words w) {
    const Value base = values_[w[3]];
    const bool in_slots = is_in_slots(types_[w[1]].storage);
    const Type* t = &element_of(type_of(w[3]));
    is_coherent_[w[2]] = is_coherent_[w[3]] || t->is_coherent;
    uint32_t constant = 0;
    std::vector<uint32_t> list = {0};
    for (const uint32_t index : w.subspan(4)) {
      if (t->op == kTypeStruct) {
        const uint32_t i = constant_value(index);
        constant += in_slots ? t->slot_offsets[i] : t->offsets[i];
        t = &types_[t->members[i]];
        continue;
      }
      const uint32_t unit = in_slots ? element_of(*t).n_slots : t->stride;
      if (values_[index].is_constant && constant_value(index) < t->count) {
        constant += unit * constant_value(index);
      } else {
        list.insert(list.end(), {slot(index), type_of(index).width == 64 ? 1u : 0u, unit, t->count});
      }
      t = &element_of(*t);
    }
    if (in_slots && base.is_static && list.size() == 1) return make_static(w[2], w[1], base.points_to + constant);
    list[0] = constant;
    emit({.op = in_slots ? kSlotChain : kByteChain,
          .n = static_cast<uint16_t>(list.size() / 4),
          .to = slot(w[2]),
          .a = base.slot,
          .more = append_words(list)});
  }

  // words: block, result slots, then source, destination and number of slots per argument.
  void translate_call(Words w) {
    const Parameters& parameters = parameters_of(w[3]);
    std::vector<uint32_t> list = {function_of_[w[3]]};
    for (size_t i = 0; i < parameters.size(); ++i) {
      list.insert(list.end(), {slot(w[4 + i]), slot(parameters[i]), types_[values_[parameters[i]].type].n_slots});
    }
    emit({.op = kFunctionCall,
          .n = static_cast<uint16_t>(types_[w[1]].n_slots),
          .to = slot(w[2]),
          .b = static_cast<uint32_t>(parameters.size()),
          .more = append_words(list)});
  }

  using Parameters = std::vector<uint32_t>;
  // A function may be called before it is translated.
  const Parameters& parameters_of(uint32_t function) {
    if (parameters_.empty()) {
      uint32_t current = 0;
      for (size_t word_idx = 5; word_idx < words_.size(); word_idx += length(word_idx)) {
        if (op_at(word_idx) == kFunction) {
          current = words_[word_idx + 2];
          parameters_[current];
          function_of_[current] = block_of_[first_label_.at(current)];
        }
        if (op_at(word_idx) == kFunctionParameter) parameters_[current].push_back(words_[word_idx + 2]);
      }
    }
    return parameters_.at(function);
  }

  // words: slot and predecessor block of each.
  void translate_phi(Words w) {
    std::vector<uint32_t> list;
    for (size_t i = 3; i + 1 < w.size(); i += 2) list.insert(list.end(), {slot(w[i]), block_of_[w[i + 1]]});
    emit({.op = kPhi,
          .n = static_cast<uint16_t>(types_[w[1]].n_slots),
          .to = slot(w[2]),
          .b = static_cast<uint32_t>(list.size() / 2),
          .more = append_words(list)});
  }

  void translate_composite(uint32_t op, Words w) {
    const Type& t = types_[w[1]];
    uint32_t to = slot(w[2]);
    if (op == kCompositeConstruct) {
      if (t.op == kTypeMatrix) {
        return emit({.op = kSplat, .n = static_cast<uint16_t>(t.n_slots), .to = to, .a = slot(w[3])});
      }
      for (const uint32_t part : w.subspan(3)) {
        copy(to, slot(part), type_of(part).n_slots);
        to += type_of(part).n_slots;
      }
    } else if (op == kCompositeExtract) {
      const Type* from = &type_of(w[3]);
      uint32_t source = slot(w[3]);
      for (const uint32_t index : w.subspan(4)) {
        source += from->op == kTypeStruct ? from->slot_offsets[index] : index * element_of(*from).n_slots;
        from = &types_[from->op == kTypeStruct ? from->members[index] : from->element];
      }
      copy(to, source, t.n_slots);
    } else {  // kVectorShuffle
      const uint32_t n_first = type_of(w[3]).count;
      for (const uint32_t index : w.subspan(5)) {
        copy(to++, index < n_first ? slot(w[3]) + index : slot(w[4]) + index - n_first, 1);
      }
    }
  }

  // words: rows, columns, element bytes, is signed, is float.
  std::vector<uint32_t> matrix_words(const Type& t) const {
    const Type& e = element_of(t);
    return {t.members[0], t.members[1], e.n_bytes, e.is_signed ? 1u : 0u, e.op == kTypeFloat ? 1u : 0u};
  }
  void translate_matrix(uint32_t op, Words w) {
    if (op == kMatrixMulAdd) {
      std::vector<uint32_t> list = matrix_words(type_of(w[3]));
      if (element_of(types_[w[1]]).width != 32) fault("matrix accumulators must have 32 bits");
      emit({.op = kMatrixMulAdd,
            .to = slot(w[2]),
            .a = slot(w[3]),
            .b = slot(w[4]),
            .c = slot(w[5]),
            .more = append_words(list)});
      return;
    }
    const bool is_load = op == kMatrixLoad;
    const uint32_t pointer = is_load ? w[3] : w[1], matrix = w[2];
    std::vector<uint32_t> list = matrix_words(is_load ? types_[w[1]] : type_of(matrix));
    const Type& pointed = type_of(pointer);
    if (pointed.storage != kWorkgroup) fault("matrices must be in shared memory");
    list.push_back(constant_value(is_load ? w[4] : w[3]));  // 0: row-major
    list.push_back(element_of(pointed).n_bytes);            // unit of the stride
    emit({.op = static_cast<uint16_t>(op),
          .to = slot(matrix),
          .a = slot(pointer),
          .b = slot(is_load ? w[5] : w[4]),
          .more = append_words(list)});
  }

  void translate(Op op, Words w) {
    switch (op) {
      case kFunction:
        parameters_of(w[2]);
        return;
      case kFunctionParameter:
      case kFunctionEnd:
      case kLoopMerge:
      case kSelectionMerge:
        return;
      case kMemoryBarrier:
        return;  // lanes never run ahead of their own writes
      case kLabel:
        p_.block_at.push_back(static_cast<uint32_t>(p_.code.size()));
        return;
      case kVariable:
        make_static(w[2], w[1], allocate_slots(element_of(types_[w[1]]).n_slots));
        if (w.size() > 4) copy(values_[w[2]].points_to, slot(w[4]), element_of(types_[w[1]]).n_slots);
        return;
      case kLoad:
      case kStore:
        return translate_memory(op, w);
      case kAccessChain:
        return translate_chain(w);
      case kFunctionCall:
        return translate_call(w);
      case kPhi:
        return translate_phi(w);
      case kCompositeConstruct:
      case kCompositeExtract:
      case kVectorShuffle:
        return translate_composite(op, w);
      case kMatrixLoad:
      case kMatrixStore:
      case kMatrixMulAdd:
        return translate_matrix(op, w);
      case kMatrixLength:
        return copy(slot(w[2]), length_constant(types_[w[3]].count), 1);
      case kCopyLogical:
      case kConvertUToPtr:
      case kBitcast:
        if (types_[w[1]].n_slots != type_of(w[3]).n_slots)
          fault("unsupported bitcast between vectors of different lengths");
        return copy(slot(w[2]), slot(w[3]), types_[w[1]].n_slots);
      case kBranch:
        return emit({.op = kBranch, .to = block_of_[w[1]]});
      case kBranchConditional:
        return emit({.op = kBranchConditional, .a = slot(w[1]), .b = block_of_[w[2]], .c = block_of_[w[3]]});
      case kReturn:
        return emit({.op = kReturn});
      case kReturnValue:
        return emit({.op = kReturnValue, .n = static_cast<uint16_t>(type_of(w[1]).n_slots), .a = slot(w[1])});
      case kControlBarrier:
        return emit({.op = kControlBarrier, .a = constant_value(w[1])});
      case kAtomicIAdd:
        return emit({.op = kAtomicIAdd, .to = slot(w[2]), .a = slot(w[3]), .b = slot(w[6])});
      case kShuffleXor:
        return emit({.op = kShuffleXor,
                     .n = static_cast<uint16_t>(types_[w[1]].n_slots),
                     .to = slot(w[2]),
                     .a = slot(w[4]),
                     .b = slot(w[5])});
      default:
        return translate_arithmetic(op, w);
    }
  }

  uint32_t length_constant(uint32_t n) {
    const uint32_t constant_slot = allocate_slots(1);
    constant_bits_[constant_slot] = n;
    return constant_slot;
  }

  static uint32_t parts_of(const Type& t) { return t.op == kTypeVector ? t.count : 1; }
  uint32_t width_of(const Type& t) const { return t.op == kTypeVector ? element_of(t).width : t.width; }

  void translate_arithmetic(uint32_t op, Words w) {
    const Type& t = types_[w[1]];
    const size_t first = op == kExtInst ? 5 : 3;
    const Type& a = type_of(w[first]);
    Instruction i{.op = static_cast<uint16_t>(op == kExtInst ? kGlsl + w[4] : op),
                  .n = static_cast<uint16_t>(std::max(parts_of(t), parts_of(a))),
                  .is_wide = width_of(a) == 64,
                  .to = slot(w[2]),
                  .a = slot(w[first]),
                  .b = w.size() > first + 1 ? slot(w[first + 1]) : 0,
                  .c = w.size() > first + 2 ? slot(w[first + 2]) : 0};
    if (op == kSelect) {
      i.is_wide = t.n_slots != a.n_slots;
      i.n = static_cast<uint16_t>(t.n_slots);
    }
    if (op == kSDot) i.c = 0;
    if (op == kUConvert || op == kSConvert || (op >= kConvertFToU && op <= kConvertUToF)) {
      i.b = width_of(a);
      i.c = width_of(t);
    }
    if (op == kConvertSToF && i.c != 32 && i.c != 16) fault("floats must have 32 or 16 bits");
    emit(i);
  }

  std::vector<uint32_t> block_of_, function_of_;  // by label; first block by function
  std::vector<bool> used_across_blocks_;          // by id: used outside of its own block
  std::vector<bool> is_coherent_;                 // by id of a pointer: its loads bypass non-coherent caches
  std::map<uint32_t, Parameters> parameters_;
  std::map<uint32_t, Block> blocks_;          // by label
  std::map<uint32_t, uint32_t> first_label_;  // by function
  uint32_t n_blocks_ = 0;
};

}  // namespace

Program decode(std::span<const uint32_t> words, const std::map<uint32_t, uint32_t>& constants) {
  Program program = Decoder(words, constants).decode();
  program.n_words = words.size();
  program.name = fmt::format("kernel of {} words", words.size());
  for (const auto& [id, value] : constants) program.name += fmt::format(" {}={}", id, static_cast<int32_t>(value));
  return program;
}

}  // namespace zinc::emulated_vulkan
