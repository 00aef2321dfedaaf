// Arithmetic instructions of a subgroup, lane by lane.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensor/half.h"
#include "tests/emulated_vulkan/subgroup.h"

namespace zinc::emulated_vulkan {

template <class T, class R, class F>
void Subgroup::for_each_component(const Instruction& i, F f) {
  R* __restrict to = as<R>(i.to);
  const T *a = as<T>(i.a), *b = as<T>(i.b), *c = as<T>(i.c);
  if (lanes_ == kAll) {
    for (uint32_t k = 0; k < i.n * kLanes; ++k) to[k] = static_cast<R>(f(a[k], b[k], c[k]));
    return;
  }
  for (uint32_t part = 0; part < i.n * kLanes; part += kLanes) {
    for_lanes([&](uint32_t l) { to[part + l] = static_cast<R>(f(a[part + l], b[part + l], c[part + l])); });
  }
}

// b: bit width of the operand, c: of the result.
void Subgroup::convert(const Instruction& i) {
  for (uint32_t k = 0; k < i.n; ++k) {
    const uint32_t from = i.a + k * (i.b == 64 ? 2 : 1), to = i.to + k * (i.c == 64 ? 2 : 1);
    for_lanes([&](uint32_t l) {
      const uint32_t bits = slot(from)[l];
      switch (i.op) {
        case kConvertFToU:
          if (i.c != 32) fail("unsupported conversion of a float to 64 bits");
          slot(to)[l] = static_cast<uint32_t>(std::bit_cast<float>(bits));
          return;
        case kConvertFToS:
          slot(to)[l] = static_cast<uint32_t>(static_cast<int32_t>(std::bit_cast<float>(bits)));
          return;
        case kConvertSToF:
        case kConvertUToF: {
          const float x =
              i.op == kConvertSToF ? static_cast<float>(static_cast<int32_t>(bits)) : static_cast<float>(bits);
          slot(to)[l] = i.c == 16 ? float_to_half(x) : std::bit_cast<uint32_t>(x);
          return;
        }
        default: {  // integers
          uint64_t x = i.b == 64 ? wide(from, l) : bits;
          if (i.op == kSConvert && i.b == 32)
            x = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(bits)));
          if (i.c == 64) {
            set_wide(to, l, x);
          } else {
            slot(to)[l] = static_cast<uint32_t>(x);
          }
        }
      }
    });
  }
}

void Subgroup::compute_glsl(const Instruction& i) {
  switch (i.op - kGlsl) {
    case 2:
      return for_each_component<float>(i, [](float a, float, float) { return std::nearbyint(a); });
    case 4:
      return for_each_component<float>(i, [](float a, float, float) { return std::abs(a); });
    case 6:
      return for_each_component<float>(i, [](float a, float, float) { return a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f; });
    case 8:
      return for_each_component<float>(i, [](float a, float, float) { return std::floor(a); });
    case 27:
      return for_each_component<float>(i, [](float a, float, float) { return std::exp(a); });
    case 28:
      return for_each_component<float>(i, [](float a, float, float) { return std::log(a); });
    case 31:
      return for_each_component<float>(i, [](float a, float, float) { return std::sqrt(a); });
    case 37:
      return for_each_component<float>(i, [](float a, float b, float) { return b < a ? b : a; });
    case 38:
      return for_each_component<uint32_t>(i, [](uint32_t a, uint32_t b, uint32_t) { return std::min(a, b); });
    case 39:
      return for_each_component<int32_t>(i, [](int32_t a, int32_t b, int32_t) { return std::min(a, b); });
    case 40:
      return for_each_component<float>(i, [](float a, float b, float) { return a < b ? b : a; });
    case 41:
      return for_each_component<uint32_t>(i, [](uint32_t a, uint32_t b, uint32_t) { return std::max(a, b); });
    case 42:
      return for_each_component<int32_t>(i, [](int32_t a, int32_t b, int32_t) { return std::max(a, b); });
    case 43:
      return for_each_component<float>(i, [](float a, float b, float c) { return std::min(std::max(a, b), c); });
    case 45:
      return for_each_component<int32_t>(i,
                                         [](int32_t a, int32_t b, int32_t c) { return std::min(std::max(a, b), c); });
    case 50:
      return for_each_component<float>(i, [](float a, float b, float c) { return std::fma(a, b, c); });
    case 58:  // packHalf2x16
      return for_lanes([&](uint32_t l) {
        const uint32_t low = float_to_half(as<float>(i.a)[l]), high = float_to_half(as<float>(i.a + 1)[l]);
        slot(i.to)[l] = low | high << 16;
      });
    case 62:  // unpackHalf2x16
      return for_lanes([&](uint32_t l) {
        const uint32_t packed = slot(i.a)[l];
        as<float>(i.to)[l] = half_to_float(static_cast<uint16_t>(packed));
        as<float>(i.to + 1)[l] = half_to_float(static_cast<uint16_t>(packed >> 16));
      });
    default:
      fail("unsupported GLSL.std.450 instruction");
  }
}

// 64-bit integers: addresses, and the masses and keys of sampling.
void Subgroup::compute_wide(const Instruction& i) {
  using W = uint64_t;
  const auto make = [&](auto f) { for_lanes([&](uint32_t l) { set_wide(i.to, l, f(wide(i.a, l), wide(i.b, l))); }); };
  const auto compare = [&](auto f) {
    for_lanes([&](uint32_t l) { slot(i.to)[l] = f(wide(i.a, l), wide(i.b, l)) ? 1 : 0; });
  };
  switch (i.op) {
    case kIAdd:
      return make([](W a, W b) { return a + b; });
    case kISub:
      return make([](W a, W b) { return a - b; });
    case kIMul:
      return make([](W a, W b) { return a * b; });
    case kIEqual:
      return compare([](W a, W b) { return a == b; });
    case kINotEqual:
      return compare([](W a, W b) { return a != b; });
    case kULessThan:
      return compare([](W a, W b) { return a < b; });
    case kULessThanEqual:
      return compare([](W a, W b) { return a <= b; });
    case kUGreaterThan:
      return compare([](W a, W b) { return a > b; });
    case kUGreaterThanEqual:
      return compare([](W a, W b) { return a >= b; });
    case kBitwiseOr:
      return make([](W a, W b) { return a | b; });
    case kBitwiseXor:
      return make([](W a, W b) { return a ^ b; });
    case kBitwiseAnd:
      return make([](W a, W b) { return a & b; });
    case kGlsl + 38:
      return make([](W a, W b) { return std::min(a, b); });
    case kGlsl + 41:
      return make([](W a, W b) { return std::max(a, b); });
    case kShiftRightLogical:  // shifts are 32-bit
      return for_lanes([&](uint32_t l) { set_wide(i.to, l, wide(i.a, l) >> (slot(i.b)[l] & 63)); });
    case kShiftLeftLogical:
      return for_lanes([&](uint32_t l) { set_wide(i.to, l, wide(i.a, l) << (slot(i.b)[l] & 63)); });
    default:
      fail("unsupported instruction for 64-bit integers");
  }
}

void Subgroup::compute(const Instruction& i) {
  using U = uint32_t;
  using S = int32_t;
  if (i.is_wide != 0 && i.op != kSelect) return compute_wide(i);
  switch (i.op) {
    case kFNegate:
      return for_each_component<float>(i, [](float a, float, float) { return -a; });
    case kFAdd:
      return for_each_component<float>(i, [](float a, float b, float) { return a + b; });
    case kFSub:
      return for_each_component<float>(i, [](float a, float b, float) { return a - b; });
    case kFMul:
      return for_each_component<float>(i, [](float a, float b, float) { return a * b; });
    case kFDiv:
      return for_each_component<float>(i, [](float a, float b, float) { return a / b; });
    case kVectorTimesScalar:
      for (uint32_t k = 0; k < i.n; ++k) {
        for_lanes([&](uint32_t l) { as<float>(i.to + k)[l] = as<float>(i.a + k)[l] * as<float>(i.b)[l]; });
      }
      return;
    case kIAdd:
      return for_each_component<U>(i, [](U a, U b, U) { return a + b; });
    case kISub:
      return for_each_component<U>(i, [](U a, U b, U) { return a - b; });
    case kIMul:
      return for_each_component<U>(i, [](U a, U b, U) { return a * b; });
    case kUDiv:
      return for_each_component<U>(i, [](U a, U b, U) { return b == 0 ? 0 : a / b; });
    case kSDiv:
      return for_each_component<S>(i, [](S a, S b, S) { return b == 0 ? 0 : a / b; });
    case kSMod:
      return for_each_component<S>(i, [](S a, S b, S) { return b == 0 ? 0 : (a % b + b) % b; });
    case kIsNan:
      return for_each_component<float, U>(i, [](float a, float, float) { return std::isnan(a) ? 1u : 0u; });
    case kLogicalOr:
    case kBitwiseOr:
      return for_each_component<U>(i, [](U a, U b, U) { return a | b; });
    case kLogicalAnd:
    case kBitwiseAnd:
      return for_each_component<U>(i, [](U a, U b, U) { return a & b; });
    case kLogicalNot:
      return for_each_component<U>(i, [](U a, U, U) { return 1 - a; });
    case kBitwiseXor:
      return for_each_component<U>(i, [](U a, U b, U) { return a ^ b; });
    case kNot:
      return for_each_component<U>(i, [](U a, U, U) { return ~a; });
    case kSelect:
      for (uint32_t k = 0; k < i.n; ++k) {
        const uint32_t condition = i.a + (i.is_wide != 0 ? 0 : k);
        for_lanes([&](uint32_t l) { slot(i.to + k)[l] = slot(slot(condition)[l] != 0 ? i.b + k : i.c + k)[l]; });
      }
      return;
    case kIEqual:
      return for_each_component<U>(i, [](U a, U b, U) { return a == b; });
    case kINotEqual:
      return for_each_component<U>(i, [](U a, U b, U) { return a != b; });
    case kUGreaterThan:
      return for_each_component<U>(i, [](U a, U b, U) { return a > b; });
    case kUGreaterThanEqual:
      return for_each_component<U>(i, [](U a, U b, U) { return a >= b; });
    case kULessThan:
      return for_each_component<U>(i, [](U a, U b, U) { return a < b; });
    case kULessThanEqual:
      return for_each_component<U>(i, [](U a, U b, U) { return a <= b; });
    case kSGreaterThan:
      return for_each_component<S>(i, [](S a, S b, S) { return a > b; });
    case kSGreaterThanEqual:
      return for_each_component<S>(i, [](S a, S b, S) { return a >= b; });
    case kSLessThan:
      return for_each_component<S>(i, [](S a, S b, S) { return a < b; });
    case kSLessThanEqual:
      return for_each_component<S>(i, [](S a, S b, S) { return a <= b; });
    case kFOrdEqual:
      return for_each_component<float, U>(i, [](float a, float b, float) { return a == b; });
    case kFUnordNotEqual:
      return for_each_component<float, U>(i, [](float a, float b, float) { return a != b; });
    case kFOrdLessThan:
      return for_each_component<float, U>(i, [](float a, float b, float) { return a < b; });
    case kFOrdGreaterThan:
      return for_each_component<float, U>(i, [](float a, float b, float) { return a > b; });
    case kFOrdGreaterThanEqual:
      return for_each_component<float, U>(i, [](float a, float b, float) { return a >= b; });
    case kShiftRightLogical:
      return for_each_component<U>(i, [](U a, U b, U) { return a >> (b & 31); });
    case kShiftRightArithmetic:
      return for_each_component<S>(i, [](S a, S b, S) { return a >> (b & 31); });
    case kShiftLeftLogical:
      return for_each_component<U>(i, [](U a, U b, U) { return a << (b & 31); });
    case kBitFieldSExtract:
      return for_each_component<S>(i, [](S a, S offset, S n) {
        return n == 0 ? 0 : static_cast<S>(static_cast<U>(a) << (32 - n - offset)) >> (32 - n);
      });
    case kSDot:  // of four signed bytes
      return for_each_component<U, S>(i, [](U a, U b, U) {
        S sum = 0;
        for (U k = 0; k < 32; k += 8) sum += static_cast<int8_t>(a >> k) * static_cast<int8_t>(b >> k);
        return sum;
      });
    default:
      if (i.op >= kGlsl) return compute_glsl(i);
      fail("unsupported instruction");
  }
}

}  // namespace zinc::emulated_vulkan
