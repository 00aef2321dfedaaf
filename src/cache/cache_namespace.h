// Isolation in the prefix cache: prefixes are found only within their namespace, so no client can probe, by content or
// by timing, which tokens another namespace has cached. Like vLLM's cache_salt.
#pragma once

#include <cstdint>

namespace zinc {

using CacheNamespace = uint64_t;
inline constexpr CacheNamespace kSharedNamespace = 0;  // for all requests without a namespace of their own

}  // namespace zinc
