// A token's number in its vocabulary, 0 to n_vocab - 1.
#pragma once

#include <cstdint>

namespace zinc {

using TokenId = int32_t;

}  // namespace zinc
