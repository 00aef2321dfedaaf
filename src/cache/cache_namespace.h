// Isolation in the prefix cache: prefixes are found only within their namespace, so no client can probe, by content or
// by timing, which tokens another namespace has cached. Like vLLM's cache_salt. Keys rotated with another RoPE scaling
// (graph/rope.h) are of no use: each scaling has namespaces of its own.
#pragma once

#include <cstdint>

namespace zinc {

using CacheNamespace = uint64_t;
inline constexpr CacheNamespace kSharedNamespace = 0;  // for all requests without a namespace of their own

// The namespace for sequences with this RoPE scaling; 0: the same one.
constexpr CacheNamespace with_rope_scaling(CacheNamespace base, int rope_scaling) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio, as in SplitMix64
  for (int i = 0; i < rope_scaling; ++i) base = (base ^ kOdd) * kOdd;
  return base;
}

}  // namespace zinc
