#include "cache/cache_plan.h"

#include <algorithm>
#include <functional>

namespace zinc {
namespace {

constexpr int kSmallestContext = 256;  // below this nobody is served
constexpr int kTreeShare = 4;          // a windowed group keeps this fraction of all positions for the prefix tree

class Planner {
 public:
  Planner(std::span<const LayerCache> layers, const Format& kv_format, const CacheDemand& demand)
      : groups_(page_groups(layers)), demand_(demand), state_bytes_(state_bytes(layers)) {
    for (const PageGroup& group : groups_) page_bytes_.push_back(page_bytes(group, layers, kv_format));
    sizes_.kv_format = &kv_format;
  }

  // For n_pages of each unbounded group, of which a sequence takes up to `context` positions.
  CachePlan plan(int64_t n_pages, int context) const {
    CachePlan out{.sizes = sizes_, .context = context, .n_bytes = 0};
    out.sizes.max_length = context;
    const int64_t spare = n_pages + 1;  // one page for copies
    for (size_t g = 0; g < groups_.size(); ++g) {
      int64_t n = spare;
      if (const int window = groups_[g].window; window > 0) {
        const int64_t held = int64_t{demand_.max_sequences} * window_pages(window, demand_.max_run, context);
        n = std::min(spare, held + n_pages / kTreeShare + 1);
      }
      out.sizes.n_pages.push_back(static_cast<int>(n));
      out.n_bytes += static_cast<size_t>(n) * page_bytes_[g];
    }
    out.sizes.n_slots = demand_.max_sequences + n_states(n_pages, out.n_bytes);
    out.n_bytes += static_cast<size_t>(out.sizes.n_slots) * state_bytes_;
    return out;
  }

 private:
  // Kept states: a few per sequence and one per interval, but no more than the pages take.
  int n_states(int64_t n_pages, size_t n_page_bytes) const {
    if (state_bytes_ == 0) return 0;
    const int64_t wanted = 2 * demand_.max_sequences + n_pages * kPageTokens / demand_.state_interval;
    const int64_t affordable = static_cast<int64_t>(n_page_bytes / state_bytes_);
    return static_cast<int>(std::clamp<int64_t>(affordable, 2, std::max<int64_t>(2, wanted)));
  }

  std::vector<PageGroup> groups_;
  CacheDemand demand_;
  size_t state_bytes_;
  std::vector<size_t> page_bytes_;
  CacheSizes sizes_;
};

// The largest n of [low, high] that fits; low if none does. REQUIRES: fits is monotone.
int64_t largest(int64_t low, int64_t high, const std::function<bool(int64_t)>& fits) {
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

int window_pages(int window, int max_run, int max_length) {
  const int64_t n_seen = int64_t{window} - 1 + max_run;  // positions, beginning anywhere in a page
  return static_cast<int>(std::min<int64_t>(pages_of(max_length), (n_seen + kPageTokens - 2) / kPageTokens + 1));
}

Result<CachePlan> plan_cache(std::span<const LayerCache> layers, const Format& kv_format, const CacheDemand& demand) {
  const Planner planner(layers, kv_format, demand);
  const auto fits = [&](int64_t n_pages, int context) {
    return planner.plan(n_pages, context).n_bytes <= demand.max_bytes;
  };
  const auto least_pages = [&](int64_t context) {
    return int64_t{pages_of(static_cast<int>(context))} * demand.n_whole_contexts;
  };
  const auto fits_context = [&](int64_t context) { return fits(least_pages(context), static_cast<int>(context)); };
  int context = demand.context;
  if (!fits_context(context)) {
    const int64_t possible = largest(std::min(kSmallestContext, context), context, fits_context);
    if (!demand.may_shrink_context || !fits_context(possible)) {
      const bool helps = fits_context(possible);
      return fail(ErrorCode::out_of_memory,
                  "a context of {} tokens for {} requests at once needs {} bytes of cache, but there are {}; {}",
                  context, demand.max_sequences, planner.plan(least_pages(context), context).n_bytes, demand.max_bytes,
                  helps ? fmt::format("a context of {} fits", possible)
                        : "serve fewer requests at once or give the cache more memory");
    }
    context = static_cast<int>(possible);
  }
  constexpr int64_t kMostPages = int64_t{1} << 24;
  const int64_t low = least_pages(context);
  const int64_t wanted = demand.max_tokens > 0 ? static_cast<int64_t>(demand.max_tokens / kPageTokens) : kMostPages;
  const int64_t n_pages =
      largest(low, std::clamp(wanted, low, kMostPages), [&](int64_t n) { return fits(n, context); });
  return planner.plan(n_pages, context);
}

}  // namespace zinc
