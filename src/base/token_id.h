// Index of a token in the model's vocabulary.
#pragma once

#include <cstdint>

namespace zinc {

using TokenId = int32_t;

}  // namespace zinc
