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
  fault(fmt::format("{}, instruction {} ({}), lanes {:08x} of subgroup {}: {}", program_->name, at_ - 1,
                    program_->code[at_ - 1].op, lanes_, index_, what));
}

void Subgroup::begin(const Program& program, uint32_t index, SharedMemory& shared, Position at, Position grid,
                     const std::array<uint64_t, 2>& blocks) {
  if (program_ != &program) {
    slots_.assign(size_t{program.n_slots} * kLanes, kNobodysWord);
    for (const auto& [to, value] : program.constants) std::fill_n(slot(to), kLanes, value);
  }
  program_ = &program;
  shared_ = &shared;
  index_ = index;
  ++turn_;
  frames_.clear();
  waiting_.clear();
  lanes_ = kAll;
  enter(program.main_block);
  const uint32_t first = index * kLanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (const auto& [to, binding] : program.bindings) set_wide(to, lane, blocks.at(binding));
    for (const auto& [to, begin] : program.shared) set_wide(to, lane, shared.begin() + begin);
    for (const auto& [to, which] : program.builtins) {
      const auto set = [&](Position p) {
        slot(to)[lane] = p.x;
        slot(to + 1)[lane] = p.y;
        slot(to + 2)[lane] = p.z;
      };
      switch (which) {
        case 24:
          set(grid);
          break;
        case 26:
          set(at);
          break;
        case 28:
          set({at.x * program.n_threads + first + lane, at.y, at.z});
          break;
        case 29:
          slot(to)[lane] = first + lane;
          break;
        case 36:
          slot(to)[lane] = kLanes;
          break;
        case 38:
          slot(to)[lane] = program.n_threads / kLanes;
          break;
        case 40:
          slot(to)[lane] = index;
          break;
        case 41:
          slot(to)[lane] = lane;
          break;
        default:
          fault(fmt::format("builtin {} is unknown", which));
      }
    }
  }
}

void Subgroup::trace_write(uint64_t at, uint32_t n_bytes, uint32_t who, bool is_same) {
  check_alone(shared_->write(at, n_bytes, {who, turn_, turn_ + n_exchanges_}, is_same), at, who);
}

void Subgroup::check_alone(uint32_t other, uint64_t at, uint32_t who) const {
  if (other == SharedMemory::kNobody) return;
  fail(fmt::format("{} and {} are at byte {} of the workgroup's memory, no barrier between", SharedMemory::name_of(who),
                   SharedMemory::name_of(other), at - shared_->begin()));
}

void Subgroup::set_wide(uint32_t i, uint32_t lane, uint64_t value) {
  slot(i)[lane] = static_cast<uint32_t>(value);
  slot(i + 1)[lane] = static_cast<uint32_t>(value >> 32);
}

void Subgroup::copy(uint32_t to, uint32_t from, uint32_t n) {
  if (lanes_ == kAll && n == 1) {
    const uint32_t* numbers = slot(from);
    uint32_t* places = slot(to);
    for (uint32_t l = 0; l < kLanes; ++l) places[l] = numbers[l];
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

bool Subgroup::is_one_for_all(const uint32_t* numbers) const {
  const uint32_t first = numbers[std::countr_zero(lanes_)];
  uint32_t differs = 0;
  for (uint32_t l = 0; l < kLanes; ++l) differs |= (lanes_ >> l & 1) != 0 ? numbers[l] ^ first : 0;
  return differs == 0;
}

// Variables of threads, at slots that the lanes may not have in common.
void Subgroup::move(const Instruction& i) {
  const bool is_load = i.op == kLoadSlots;
  const uint32_t* places = slot(is_load ? i.a : i.to);
  const uint32_t first = places[std::countr_zero(lanes_)];
  if (is_one_for_all(places)) return is_load ? copy(i.to, first, i.n) : copy(first, i.a, i.n);
  for (uint32_t k = 0; k < i.n; ++k) {
    for_lanes([&](uint32_t l) {
      (is_load ? slot(i.to + k) : slot(places[l] + k))[l] = (is_load ? slot(places[l] + k) : slot(i.a + k))[l];
    });
  }
}

void Subgroup::check_index(const int32_t* indices, uint32_t limit) const {
  uint32_t n_past = 0;
  for (uint32_t l = 0; l < kLanes; ++l) n_past += (lanes_ >> l & 1) != 0 && static_cast<uint32_t>(indices[l]) >= limit;
  if (n_past == 0) return;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((lanes_ >> l & 1) != 0 && static_cast<uint32_t>(indices[l]) >= limit) {
      fail(fmt::format("index {} of an array of {}", indices[l], limit));
    }
  }
}

void Subgroup::chain(const Instruction& i) {
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

// What another thread is writing, with no barrier between, has no meaning: harmless where nobody uses it.
bool Subgroup::is_settled(uint64_t at, uint32_t n_bytes, uint32_t who) {
  const uint32_t other = shared_->read(at, n_bytes, {who, turn_, turn_ + n_exchanges_});
  if (other == SharedMemory::kNobody) return true;
  static std::set<std::pair<size_t, uint32_t>> said;
  if (said.emplace(program_->n_words, at_).second) {
    fmt::print(stderr, "emulated Vulkan device: {}, instruction {}: {} reads what {} is writing, and gets nonsense\n",
               program_->name, at_ - 1, SharedMemory::name_of(who), SharedMemory::name_of(other));
  }
  return false;
}

void Subgroup::load(const Instruction& i) {
  const auto read = [&](uint64_t address, uint32_t to, uint32_t lane, uint32_t n_bytes, bool is_signed) {
    uint32_t bits = 0;
    if (i.is_shared == 0 || is_settled(address, n_bytes, index_ * kLanes + lane)) {
      std::memcpy(&bits, reinterpret_cast<const std::byte*>(address), n_bytes);
    } else {
      bits = kNobodysWord >> (32 - 8 * n_bytes);
    }
    slot(to)[lane] = is_signed ? sign_extended(bits, n_bytes) : bits;
  };
  // What all lanes read is read by two: they stand for several.
  const bool is_one = lanes_ == kAll && is_one_for_all(slot(i.a)) && is_one_for_all(slot(i.a + 1));
  const Lanes before = lanes_;
  if (is_one) lanes_ = 3;
  for_lanes([&](uint32_t l) {
    const uint64_t address = wide(i.a, l);
    if (address % i.c != 0) fail(fmt::format("address {:#x} is not a multiple of {}", address, i.c));
    const uint32_t* leaf = &program_->words[i.more];
    for (uint32_t k = 0; k < i.n; ++k, leaf += 4) {
      if (i.more == 0) {
        read(address + 4 * k, i.to + k, l, 4, false);
      } else {
        read(address + leaf[0], i.to + leaf[1], l, leaf[2], leaf[3] != 0);
      }
    }
  });
  if (!is_one) return;
  lanes_ = before;
  for (uint32_t k = 0; k < i.n; ++k) {
    const uint32_t* both = slot(i.to + k);
    std::fill_n(slot(i.to + k), kLanes, both[0] == both[1] ? both[0] : kNobodysWord);
  }
}

void Subgroup::store(const Instruction& i) {
  const auto write = [&](uint64_t address, uint32_t from, uint32_t lane, uint32_t n_bytes) {
    const uint32_t* bits = slot(from) + lane;
    auto* to = reinterpret_cast<std::byte*>(address);
    if (i.is_shared != 0) {
      trace_write(address, n_bytes, index_ * kLanes + lane,
                  shared_->has(address, n_bytes) && std::memcmp(to, bits, n_bytes) == 0);
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
      if (other >= kLanes || (lanes_ >> other & 1) == 0) fail(fmt::format("lane {} is asked and not there", other));
      others[l] = slot(i.a + k)[other];
    });
    for_lanes([&](uint32_t l) { slot(i.to + k)[l] = others[l]; });
  }
  ++n_exchanges_;
}

void Subgroup::choose_phi(const Instruction& i) {
  const uint32_t* words = &program_->words[i.more];
  for_lanes([&](uint32_t l) {
    for (uint32_t k = 0; k < i.b; ++k) {
      if (words[2 * k + 1] != came_from_[l]) continue;
      for (uint32_t part = 0; part < i.n; ++part) slot(i.to + part)[l] = slot(words[2 * k] + part)[l];
      return;
    }
    fail("a lane came from a block that is not expected here");
  });
}

// ---- matrices: their numbers row by row, the first 32 the lanes' first, and so on ----

void Subgroup::multiply_matrices(const Instruction& i) {
  if (lanes_ != kAll) fail("a matrix product where lanes are missing");
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

void Subgroup::move_matrix(const Instruction& i) {
  if (lanes_ != kAll) fail("a matrix is moved where lanes are missing");
  const uint32_t* words = &program_->words[i.more];
  const uint32_t n_rows = words[0], n_columns = words[1], n_bytes = words[2];
  const bool is_by_row = words[5] == 0;
  const uint64_t base = wide(i.a, 0), stride = uint64_t{slot(i.b)[0]} * words[6];
  for (uint32_t l = 1; l < kLanes; ++l) {
    if (wide(i.a, l) != base || slot(i.b)[l] != slot(i.b)[0]) fail("lanes do not agree where a matrix is");
  }
  const uint32_t n_lines = is_by_row ? n_rows : n_columns, n_in_line = is_by_row ? n_columns : n_rows;
  const uint32_t who = SharedMemory::kAllLanes | index_;
  for (uint32_t line = 0; line < n_lines; ++line) {
    const uint64_t at = base + line * stride;
    if (i.op == kMatrixLoad) {
      check_alone(shared_->read(at, n_in_line * n_bytes, {who, turn_, turn_ + n_exchanges_}), at, who);
    } else {
      trace_write(at, n_in_line * n_bytes, who, false);
    }
    for (uint32_t k = 0; k < n_in_line; ++k) {
      uint32_t& number = slot(i.to)[is_by_row ? line * n_columns + k : k * n_columns + line];
      auto* place = reinterpret_cast<std::byte*>(at + uint64_t{k} * n_bytes);
      if (i.op == kMatrixStore) {
        std::memcpy(place, &number, n_bytes);
        continue;
      }
      uint32_t bits = 0;
      std::memcpy(&bits, place, n_bytes);
      number = words[3] != 0 ? sign_extended(bits, n_bytes) : bits;
    }
  }
}

// ---- where to go on ----

void Subgroup::enter(uint32_t block) {
  block_ = block;
  at_ = program_->block_at[block];
}

// Lanes whose block comes first go first: they meet the others where branches end.
void Subgroup::next_group() {
  const auto first = std::ranges::min_element(waiting_, {}, &Group::block);
  lanes_ = first->lanes;
  const uint32_t block = first->block;
  waiting_.erase(first);
  std::erase_if(waiting_, [&](const Group& other) {
    if (other.block != block) return false;
    lanes_ |= other.lanes;
    return true;
  });
  enter(block);
}

void Subgroup::go_to(uint32_t block) {
  for_lanes([&](uint32_t l) { came_from_[l] = block_; });
  if (waiting_.empty()) return enter(block);
  waiting_.push_back({block, lanes_});
  next_group();
}

void Subgroup::branch(const Instruction& i) {
  Lanes yes = 0;
  for_lanes([&](uint32_t l) { yes |= slot(i.a)[l] != 0 ? Lanes{1} << l : 0; });
  if (yes == lanes_) return go_to(i.b);
  if (yes == 0) return go_to(i.c);
  for_lanes([&](uint32_t l) { came_from_[l] = block_; });
  waiting_.push_back({i.b, yes});
  waiting_.push_back({i.c, lanes_ & ~yes});
  next_group();
}

void Subgroup::call(const Instruction& i) {
  const uint32_t* words = &program_->words[i.more];
  for (uint32_t k = 0; k < i.b; ++k) copy(words[3 * k + 2], words[3 * k + 1], words[3 * k + 3]);
  frames_.push_back({at_, i.to, lanes_, std::move(waiting_), block_});
  waiting_.clear();
  enter(words[0]);
}

bool Subgroup::give_back() {
  if (!waiting_.empty()) {
    next_group();
    return true;
  }
  if (frames_.empty()) return false;
  Frame& frame = frames_.back();
  at_ = frame.back;
  block_ = frame.block;
  lanes_ = frame.lanes;
  waiting_ = std::move(frame.waiting);
  frames_.pop_back();
  return true;
}

Subgroup::Stop Subgroup::run(int& n_left) {
  constexpr uint32_t kWorkgroupScope = 2;
  while (n_left-- > 0) {
    const Instruction& i = program_->code[at_++];
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
        chain(i);
        break;
      case kConvertFToS:
      case kConvertSToF:
      case kConvertUToF:
      case kUConvert:
      case kSConvert:
        convert(i);
        break;
      case kAtomicIAdd:
        for_lanes([&](uint32_t l) {
          auto* at = reinterpret_cast<uint32_t*>(wide(i.a, l));
          slot(i.to)[l] = *at;
          *at += slot(i.b)[l];
        });
        break;
      case kShuffleXor:
        shuffle(i);
        break;
      case kPhi:
        choose_phi(i);
        break;
      case kMatrixMulAdd:
        multiply_matrices(i);
        break;
      case kMatrixLoad:
      case kMatrixStore:
        move_matrix(i);
        break;
      case kBranch:
        go_to(i.to);
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
        if (!give_back()) return Stop::end;
        break;
      case kControlBarrier:
        if (lanes_ != kAll) fail("a barrier where lanes are missing");
        ++turn_;
        if (i.a == kWorkgroupScope) return Stop::barrier;
        break;
      default:
        compute(i);
    }
  }
  return Stop::slice;
}

}  // namespace zinc::emulated_vulkan
