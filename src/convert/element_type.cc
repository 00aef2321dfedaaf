#include "convert/element_type.h"

#include <array>
#include <cmath>
#include <cstring>

#include "tensor/fp8.h"
#include "tensor/half.h"

namespace zinc {
namespace {

template <class Stored, auto kToFloat>
void decode(std::span<const std::byte> bytes, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = kToFloat(stored);
  }
}

constexpr float e5m2_to_float(uint8_t bits) { return half_to_float(static_cast<uint16_t>(bits << 8)); }
float e8m0_to_float(uint8_t bits) { return bits == 0xFF ? std::nanf("") : std::ldexp(1.0f, bits - 127); }
constexpr float same(float value) { return value; }
constexpr float narrow(double value) { return static_cast<float>(value); }

const Format* const kBf16 = find_format("bf16");

// The names of the reference implementation; F4 and F6 are packed and not supported.
const std::array kTypes = {
    ElementType{"F64", 8, decode<double, narrow>},
    ElementType{"F32", 4, decode<float, same>, &k_f32},
    ElementType{"F16", 2, decode<uint16_t, half_to_float>, &k_f16},
    ElementType{"BF16", 2, decode<uint16_t, bfloat_to_float>, kBf16},
    ElementType{.name = "F8_E4M3", .n_bytes = 1, .to_float = decode<uint8_t, e4m3_to_float>, .is_fp8 = true},
    ElementType{.name = "F8_E5M2", .n_bytes = 1, .to_float = decode<uint8_t, e5m2_to_float>, .is_fp8 = true},
    ElementType{"F8_E8M0", 1, decode<uint8_t, e8m0_to_float>},
    ElementType{"I64", 8},
    ElementType{"I32", 4},
    ElementType{"I16", 2},
    ElementType{"I8", 1},
    ElementType{"U64", 8},
    ElementType{"U32", 4},
    ElementType{"U16", 2},
    ElementType{"U8", 1},
    ElementType{"BOOL", 1},
};

}  // namespace

const ElementType* find_element_type(std::string_view name) {
  for (const ElementType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string element_type_names() {
  std::string names;
  for (const ElementType& type : kTypes) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

}  // namespace zinc
