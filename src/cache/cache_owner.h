// Whose texts the prefix tree finds: nobody finds what another owner has said, nor learns from a time that it was said.
#pragma once

#include <cstdint>

namespace zinc {

using CacheOwner = uint64_t;
inline constexpr CacheOwner kEverybody = 0;  // all who have no texts of their own

}  // namespace zinc
