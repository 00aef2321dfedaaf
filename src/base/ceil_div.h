// Integer division rounded up.
#pragma once

#include <cstdint>

namespace zinc {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace zinc
