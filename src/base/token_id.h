// A token's number in its model's vocabulary.
#pragma once

#include <cstdint>

namespace zinc {

using TokenId = int32_t;

}  // namespace zinc
