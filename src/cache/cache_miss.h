// Why a prefix cache lookup did not cover the whole prompt; reported to users and in metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zinc {

enum class CacheMiss : uint8_t {
  none,         // full hit, except the last token, which always has to be computed
  nothing,      // no cached prefix starts like this prompt
  diverged,     // the cached prefixes continue differently
  no_state,     // the tokens are cached, but without a recurrent state at their end
  window_gone,  // the tokens are cached, but the last window of a sliding layer's KV pages was evicted
};
inline constexpr size_t kCacheMisses = 5;

constexpr std::string_view cache_miss_name(CacheMiss miss) {  // "diverged"
  constexpr std::array<std::string_view, kCacheMisses> kNames = {"none", "nothing", "diverged", "no_state",
                                                                 "window_gone"};
  return kNames[static_cast<size_t>(miss)];
}

}  // namespace zinc
