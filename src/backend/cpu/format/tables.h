// Values of 4-bit codes, biased by 128 to be unsigned bytes; dot4_biased (isa/*.h) removes the bias.
#pragma once

#include <cstdint>

namespace zinc::cpu {

inline constexpr int kByteBias = 128;
inline constexpr uint8_t kIq4Biased[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
// Twice the value of an E2M1 number: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
inline constexpr uint8_t kE2m1Biased[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                            128, 127, 126, 125, 124, 122, 120, 116};

}  // namespace zinc::cpu
