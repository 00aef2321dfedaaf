// Why not more of a prompt came from the prefix tree than did: what users and metrics are told.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zinc {

enum class CacheMiss : uint8_t {
  none,         // all of it did, but for the last token, which has to be computed
  nothing,      // no cached prompt begins like this one
  diverged,     // the cached prompts go on differently
  no_state,     // the tokens are there, but no recurrent state at their end
  window_gone,  // the tokens are there, but not the last keys and values of sliding layers
};
inline constexpr size_t kCacheMisses = 5;

constexpr std::string_view cache_miss_name(CacheMiss miss) {  // "diverged"
  constexpr std::array<std::string_view, kCacheMisses> kNames = {"none", "nothing", "diverged", "no_state",
                                                                 "window_gone"};
  return kNames[static_cast<size_t>(miss)];
}

}  // namespace zinc
