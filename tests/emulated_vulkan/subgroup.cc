#include "tests/emulated_vulkan/subgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tensor/half.h"

namespace zinc::emulated_vulkan {
namespace {

uint32_t sign_extended(uint32_t bits, uint32_t n_bytes) {
  const uint32_t shift = 32 - 8 * n_bytes;
  return static_cast<uint32_t>(static_cast<int32_t>(bits << shift) >> shift);
}

}  // namespace

void Subgroup::fail(const std::string& what) const {
  fault(fmt::format("{}, instruction {} ({}), lanes {:08x} of subgroup {}: {}", program_->name, pc_ - 1,
                    program_->code[pc_ - 1].op, lanes_, index_, what));
}

void Subgroup::begin(const Program& program, uint32_t index, WorkgroupMemory& memory, Dim3 workgroup_id, Dim3 grid,
                     const std::array<uint64_t, 2>& uniforms) {
  if (program_ != &program) {
    slots_.assign(size_t{program.n_slots} * kLanes, kPoisonWord);
    for (const auto& [to, value] : program.constants) std::fill_n(slot(to), kLanes, value);
  }
  program_ = &program;
  shared_ = &memory.shared;
  device_writes_ = memory.device_writes;
  workgroup_ = memory.workgroup;
  index_ = index;
  ++barrier_epoch_;
  frames_.clear();
  pending_groups_.clear();
  lanes_ = kAll;
  enter(program.main_block);
  const uint32_t first = index * kLanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (const auto& [to, binding] : program.bindings) set_wide(to, lane, uniforms.at(binding));
    for (const auto& [to, begin] : program.shared) set_wide(to, lane, shared_->begin() + begin);
    for (const auto& [to, builtin] : program.builtins) {
      const auto set = [&](Dim3 p) {
        slot(to)[lane] = p.x;
        slot(to + 1)[lane] = p.y;
        slot(to + 2)[lane] = p.z;
      };
      switch (builtin) {
        case kNumWorkgroups:
          set(grid);
          break;
        case kWorkgroupId:
          set(workgroup_id);
          break;
        case kGlobalInvocationId:
          set({workgroup_id.x * program.n_threads + first + lane, workgroup_id.y, workgroup_id.z});
          break;
        case kLocalInvocationIndex:
          slot(to)[lane] = first + lane;
          break;
        case kSubgroupSize:
          slot(to)[lane] = kLanes;
          break;
        case kNumSubgroups:
          slot(to)[lane] = program.n_threads / kLanes;
          break;
        case kSubgroupId:
          slot(to)[lane] = index;
          break;
        case kSubgroupInvocationId:
          slot(to)[lane] = lane;
          break;
        default:
          fault(fmt::format("unsupported builtin {}", builtin));
      }
    }
  }
}

void Subgroup::check_write(uint64_t address, uint32_t n_bytes, uint32_t thread, bool is_same_value) {
  check_race(shared_->write(address, n_bytes, {thread, barrier_epoch_, barrier_epoch_ + n_shuffles_}, is_same_value),
             address, thread);
}

void Subgroup::check_race(uint32_t other, uint64_t address, uint32_t thread) const {
  if (other == SharedMemory::kNoThread) return;
  fail(fmt::format("data race: {} and {} access byte {} of shared memory without a barrier between",
                   SharedMemory::accessor_name(thread), SharedMemory::accessor_name(other),
                   address - shared_->begin()));
}

void Subgroup::set_wide(uint32_t i, uint32_t lane, uint64_t value) {
  slot(i)[lane] = static_cast<uint32_t>(value);
  slot(i + 1)[lane] = static_cast<uint32_t>(value >> 32);
}

void Subgroup::copy(uint32_t to, uint32_t from, uint32_t n) {
  if (lanes_ == kAll && n == 1) {
    const uint32_t* values = slot(from);
    uint32_t* addresses = slot(to);
    for (uint32_t l = 0; l < kLanes; ++l) addresses[l] = values[l];
    return;
  }
  if (lanes_ == kAll) {
    std::memmove(slot(to), slot(from), size_t{n} * kLanes * sizeof(uint32_t));
    return;
  }
  for (uint32_t k = 0; k < n; ++k) {
    for_lanes([&](uint32_t l) { slot(to + k)[l] = slot(from + k)[l]; });
  }
}

bool Subgroup::is_uniform(const uint32_t* values) const {
  const uint32_t first = values[std::countr_zero(lanes_)];
  uint32_t differs = 0;
  for (uint32_t l = 0; l < kLanes; ++l) differs |= (lanes_ >> l & 1) != 0 ? values[l] ^ first : 0;
  return differs == 0;
}

// Private variables at slots that may differ between lanes.
void Subgroup::move(const Instruction& i) {
  const bool is_load = i.op == kLoadSlots;
  const uint32_t* addresses = slot(is_load ? i.a : i.to);
  const uint32_t first = addresses[std::countr_zero(lanes_)];
  if (is_uniform(addresses)) return is_load ? copy(i.to, first, i.n) : copy(first, i.a, i.n);
  for (uint32_t k = 0; k < i.n; ++k) {
    for_lanes([&](uint32_t l) {
      (is_load ? slot(i.to + k) : slot(addresses[l] + k))[l] = (is_load ? slot(addresses[l] + k) : slot(i.a + k))[l];
    });
  }
}

void Subgroup::check_index(const int32_t* indices, uint32_t limit) const {
  uint32_t n_past = 0;
  for (uint32_t l = 0; l < kLanes; ++l) n_past += (lanes_ >> l & 1) != 0 && static_cast<uint32_t>(indices[l]) >= limit;
  if (n_past == 0) return;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((lanes_ >> l & 1) != 0 && static_cast<uint32_t>(indices[l]) >= limit) {
      fail(fmt::format("index {} is out of bounds of an array of {}", indices[l], limit));
    }
  }
}

void Subgroup::access_chain(const Instruction& i) {
  const uint32_t* words = &program_->words[i.more];
  if (i.op == kSlotChain) {
    std::array<uint32_t, kLanes> sums;
    for (uint32_t l = 0; l < kLanes; ++l) sums[l] = slot(i.a)[l] + words[0];
    for (const uint32_t* part = words + 1; part < words + 1 + 4 * i.n; part += 4) {
      check_index(as<int32_t>(part[0]), part[3]);
      for (uint32_t l = 0; l < kLanes; ++l) sums[l] += slot(part[0])[l] * part[2];
    }
    return for_lanes([&](uint32_t l) { slot(i.to)[l] = sums[l]; });
  }
  std::array<int64_t, kLanes> sums;
  sums.fill(words[0]);
  for (const uint32_t* part = words + 1; part < words + 1 + 4 * i.n; part += 4) {
    const int64_t unit = part[2];
    if (part[1] != 0) {
      for (uint32_t l = 0; l < kLanes; ++l) sums[l] += static_cast<int64_t>(wide(part[0], l)) * unit;
      continue;
    }
    const int32_t* indices = as<int32_t>(part[0]);
    constexpr uint32_t kNoLimit = ~0u;
    if (part[3] != kNoLimit) check_index(indices, part[3]);
    for (uint32_t l = 0; l < kLanes; ++l) sums[l] += indices[l] * unit;
  }
  for_lanes([&](uint32_t l) { set_wide(i.to, l, wide(i.a, l) + static_cast<uint64_t>(sums[l])); });
}

// A racing read returns the poison value; harmless if the value is not used.
bool Subgroup::is_race_free(uint64_t address, uint32_t n_bytes, uint32_t thread) {
  const uint32_t other = shared_->read(address, n_bytes, {thread, barrier_epoch_, barrier_epoch_ + n_shuffles_});
  if (other == SharedMemory::kNoThread) return true;
  report_poison(fmt::format("data race: {} reads what {} is writing", SharedMemory::accessor_name(thread),
                            SharedMemory::accessor_name(other)));
  return false;
}

// A stale read does too.
bool Subgroup::is_stale(uint64_t address, uint32_t n_bytes) {
  if (!device_writes_->is_stale(address, n_bytes, workgroup_)) return false;
  report_poison("a load that is not coherent reads what another workgroup has written since the last barrier");
  return true;
}

void Subgroup::report_poison(const std::string& reason) {
  static std::set<std::pair<size_t, uint32_t>> reported;
  if (!reported.emplace(program_->n_words, pc_).second) return;
  fmt::print(stderr, "emulated Vulkan device: {}, instruction {}: {}, and gets the poison value\n", program_->name,
             pc_ - 1, reason);
}

void Subgroup::load(const Instruction& i) {
  bool is_poison = false;
  const auto read = [&](uint64_t address, uint32_t to, uint32_t lane, uint32_t n_bytes, bool is_signed) {
    uint32_t bits = 0;
    if (!is_poison && (i.is_shared == 0 || is_race_free(address, n_bytes, index_ * kLanes + lane))) {
      std::memcpy(&bits, reinterpret_cast<const std::byte*>(address), n_bytes);
    } else {
      bits = kPoisonWord >> (32 - 8 * n_bytes);
    }
    slot(to)[lane] = is_signed ? sign_extended(bits, n_bytes) : bits;
  };
  // A uniform read is executed by two lanes, which stand for all.
  const bool is_uniform_address = lanes_ == kAll && is_uniform(slot(i.a)) && is_uniform(slot(i.a + 1));
  const Lanes before = lanes_;
  if (is_uniform_address) lanes_ = 3;
  for_lanes([&](uint32_t l) {
    const uint64_t address = wide(i.a, l);
    if (address % i.c != 0) fail(fmt::format("address {:#x} is not a multiple of {}", address, i.c));
    is_poison = i.b != 0 && is_stale(address, i.b);
    const uint32_t* leaf = &program_->words[i.more];
    for (uint32_t k = 0; k < i.n; ++k, leaf += 4) {
      if (i.more == 0) {
        read(address + 4 * k, i.to + k, l, 4, false);
      } else {
        read(address + leaf[0], i.to + leaf[1], l, leaf[2], leaf[3] != 0);
      }
    }
  });
  if (!is_uniform_address) return;
  lanes_ = before;
  for (uint32_t k = 0; k < i.n; ++k) {
    const uint32_t* both = slot(i.to + k);
    std::fill_n(slot(i.to + k), kLanes, both[0] == both[1] ? both[0] : kPoisonWord);
  }
}

void Subgroup::store(const Instruction& i) {
  const auto write = [&](uint64_t address, uint32_t from, uint32_t lane, uint32_t n_bytes) {
    const uint32_t* bits = slot(from) + lane;
    auto* to = reinterpret_cast<std::byte*>(address);
    if (i.is_shared != 0) {
      check_write(address, n_bytes, index_ * kLanes + lane,
                  shared_->has(address, n_bytes) && std::memcmp(to, bits, n_bytes) == 0);
    } else {
      device_writes_->write(address, n_bytes, workgroup_, std::memcmp(to, bits, n_bytes) == 0);
    }
    std::memcpy(to, bits, n_bytes);
  };
  for_lanes([&](uint32_t l) {
    const uint64_t address = wide(i.to, l);
    if (address % i.c != 0) fail(fmt::format("address {:#x} is not a multiple of {}", address, i.c));
    const uint32_t* leaf = &program_->words[i.more];
    for (uint32_t k = 0; k < i.n; ++k, leaf += 4) {
      if (i.more == 0) {
        write(address + 4 * k, i.a + k, l, 4);
      } else {
        write(address + leaf[0], i.a + leaf[1], l, leaf[2]);
      }
    }
  });
}

void Subgroup::shuffle(const Instruction& i) {
  std::array<uint32_t, kLanes> others;
  for (uint32_t k = 0; k < i.n; ++k) {
    for_lanes([&](uint32_t l) {
      const uint32_t other = l ^ slot(i.b)[l];
      if (other >= kLanes || (lanes_ >> other & 1) == 0) fail(fmt::format("shuffle from inactive lane {}", other));
      others[l] = slot(i.a + k)[other];
    });
    for_lanes([&](uint32_t l) { slot(i.to + k)[l] = others[l]; });
  }
  ++n_shuffles_;
}

void Subgroup::evaluate_phi(const Instruction& i) {
  const uint32_t* words = &program_->words[i.more];
  for_lanes([&](uint32_t l) {
    for (uint32_t k = 0; k < i.b; ++k) {
      if (words[2 * k + 1] != previous_block_[l]) continue;
      for (uint32_t part = 0; part < i.n; ++part) slot(i.to + part)[l] = slot(words[2 * k] + part)[l];
      return;
    }
    fail("phi has no operand for a lane's previous block");
  });
}

// ---- matrices: row-major, element i in slot i / 32 of lane i % 32 ----

void Subgroup::multiply_matrices(const Instruction& i) {
  if (lanes_ != kAll) fail("matrix product in divergent control flow");
  const uint32_t* words = &program_->words[i.more];
  const uint32_t n_rows = words[0], depth = words[1], n_columns = 16;
  if (words[4] == 0) {
    const int32_t *a = as<int32_t>(i.a), *b = as<int32_t>(i.b), *c = as<int32_t>(i.c);
    int32_t* to = as<int32_t>(i.to);
    for (uint32_t r = 0; r < n_rows; ++r) {
      std::array<int32_t, n_columns> sums;
      std::copy_n(c + r * n_columns, n_columns, sums.begin());
      for (uint32_t k = 0; k < depth; ++k) {
        const int32_t x = a[r * depth + k];
        for (uint32_t column = 0; column < n_columns; ++column) sums[column] += x * b[k * n_columns + column];
      }
      std::ranges::copy(sums, to + r * n_columns);
    }
    return;
  }
  std::array<float, 16 * 16> b;
  for (uint32_t k = 0; k < b.size(); ++k) b[k] = half_to_float(static_cast<uint16_t>(slot(i.b)[k]));
  for (uint32_t r = 0; r < n_rows; ++r) {
    std::array<float, n_columns> sums;
    std::copy_n(as<float>(i.c) + r * n_columns, n_columns, sums.begin());
    for (uint32_t k = 0; k < depth; ++k) {
      const float x = half_to_float(static_cast<uint16_t>(slot(i.a)[r * depth + k]));
      for (uint32_t column = 0; column < n_columns; ++column) sums[column] += x * b[k * n_columns + column];
    }
    std::ranges::copy(sums, as<float>(i.to) + r * n_columns);
  }
}

void Subgroup::load_store_matrix(const Instruction& i) {
  if (lanes_ != kAll) fail("matrix load or store in divergent control flow");
  const uint32_t* words = &program_->words[i.more];
  const uint32_t n_rows = words[0], n_columns = words[1], n_bytes = words[2];
  const bool is_row_major = words[5] == 0;
  const uint64_t base = wide(i.a, 0), stride = uint64_t{slot(i.b)[0]} * words[6];
  for (uint32_t l = 1; l < kLanes; ++l) {
    if (wide(i.a, l) != base || slot(i.b)[l] != slot(i.b)[0]) fail("lanes have different matrix addresses");
  }
  const uint32_t n_lines = is_row_major ? n_rows : n_columns, n_in_line = is_row_major ? n_columns : n_rows;
  const uint32_t thread = SharedMemory::kWholeSubgroup | index_;
  for (uint32_t line = 0; line < n_lines; ++line) {
    const uint64_t address = base + line * stride;
    if (i.op == kMatrixLoad) {
      check_race(shared_->read(address, n_in_line * n_bytes, {thread, barrier_epoch_, barrier_epoch_ + n_shuffles_}),
                 address, thread);
    } else {
      check_write(address, n_in_line * n_bytes, thread, false);
    }
    for (uint32_t k = 0; k < n_in_line; ++k) {
      uint32_t& element = slot(i.to)[is_row_major ? line * n_columns + k : k * n_columns + line];
      auto* memory = reinterpret_cast<std::byte*>(address + uint64_t{k} * n_bytes);
      if (i.op == kMatrixStore) {
        std::memcpy(memory, &element, n_bytes);
        continue;
      }
      uint32_t bits = 0;
      std::memcpy(&bits, memory, n_bytes);
      element = words[3] != 0 ? sign_extended(bits, n_bytes) : bits;
    }
  }
}

// ---- control flow ----

void Subgroup::enter(uint32_t block) {
  block_ = block;
  pc_ = program_->block_at[block];
}

// Lanes at the earliest block run first, so that they reconverge with the others.
void Subgroup::run_next_group() {
  const auto first = std::ranges::min_element(pending_groups_, {}, &LaneGroup::block);
  lanes_ = first->lanes;
  const uint32_t block = first->block;
  pending_groups_.erase(first);
  std::erase_if(pending_groups_, [&](const LaneGroup& other) {
    if (other.block != block) return false;
    lanes_ |= other.lanes;
    return true;
  });
  enter(block);
}

void Subgroup::jump(uint32_t block) {
  for_lanes([&](uint32_t l) { previous_block_[l] = block_; });
  if (pending_groups_.empty()) return enter(block);
  pending_groups_.push_back({block, lanes_});
  run_next_group();
}

void Subgroup::branch(const Instruction& i) {
  Lanes yes = 0;
  for_lanes([&](uint32_t l) { yes |= slot(i.a)[l] != 0 ? Lanes{1} << l : 0; });
  if (yes == lanes_) return jump(i.b);
  if (yes == 0) return jump(i.c);
  for_lanes([&](uint32_t l) { previous_block_[l] = block_; });
  pending_groups_.push_back({i.b, yes});
  pending_groups_.push_back({i.c, lanes_ & ~yes});
  run_next_group();
}

void Subgroup::call(const Instruction& i) {
  const uint32_t* words = &program_->words[i.more];
  for (uint32_t k = 0; k < i.b; ++k) copy(words[3 * k + 2], words[3 * k + 1], words[3 * k + 3]);
  frames_.push_back({pc_, i.to, lanes_, std::move(pending_groups_), block_});
  pending_groups_.clear();
  enter(words[0]);
}

bool Subgroup::return_from_call() {
  if (!pending_groups_.empty()) {
    run_next_group();
    return true;
  }
  if (frames_.empty()) return false;
  Frame& frame = frames_.back();
  pc_ = frame.back;
  block_ = frame.block;
  lanes_ = frame.lanes;
  pending_groups_ = std::move(frame.pending_groups);
  frames_.pop_back();
  return true;
}

Subgroup::Stop Subgroup::run(int& budget) {
  constexpr uint32_t kWorkgroupScope = 2;
  while (budget-- > 0) {
    const Instruction& i = program_->code[pc_++];
    switch (i.op) {
      case kCopy:
        copy(i.to, i.a, i.n);
        break;
      case kSplat:
        for (uint32_t k = 0; k < i.n; ++k) copy(i.to + k, i.a, 1);
        break;
      case kLoadSlots:
      case kStoreSlots:
        move(i);
        break;
      case kLoad:
        load(i);
        break;
      case kStore:
        store(i);
        break;
      case kSlotChain:
      case kByteChain:
        access_chain(i);
        break;
      case kConvertFToU:
      case kConvertFToS:
      case kConvertSToF:
      case kConvertUToF:
      case kUConvert:
      case kSConvert:
        convert(i);
        break;
      case kAtomicIAdd:
        for_lanes([&](uint32_t l) {
          auto* counter = reinterpret_cast<uint32_t*>(wide(i.a, l));
          slot(i.to)[l] = *counter;
          *counter += slot(i.b)[l];
        });
        break;
      case kShuffleXor:
        shuffle(i);
        break;
      case kPhi:
        evaluate_phi(i);
        break;
      case kMatrixMulAdd:
        multiply_matrices(i);
        break;
      case kMatrixLoad:
      case kMatrixStore:
        load_store_matrix(i);
        break;
      case kBranch:
        jump(i.to);
        break;
      case kBranchConditional:
        branch(i);
        break;
      case kFunctionCall:
        call(i);
        break;
      case kReturnValue:
        copy(frames_.back().to, i.a, i.n);
        [[fallthrough]];
      case kReturn:
        if (!return_from_call()) return Stop::end;
        break;
      case kControlBarrier:
        if (lanes_ != kAll) fail("barrier in divergent control flow");
        ++barrier_epoch_;
        if (i.a == kWorkgroupScope) return Stop::barrier;
        break;
      default:
        compute(i);
    }
  }
  return Stop::slice;
}

}  // namespace zinc::emulated_vulkan
