// E2M1, the 4-bit float of MXFP4 and NVFP4: its sixteen values, doubled to make them integers; the block scale is
// halved to match.
#pragma once

#include <cstdint>

namespace zinc {

constexpr int8_t kTwiceFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace zinc
