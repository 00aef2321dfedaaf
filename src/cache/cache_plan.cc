#include "cache/cache_plan.h"

#include <algorithm>
#include <functional>

#include "base/format_memory.h"
#include "base/pluralize.h"

namespace zinc {
namespace {

constexpr int kMinContext = 256;        // tokens; smaller contexts are rejected
constexpr int kPrefixCacheDivisor = 4;  // a windowed group has 1 / this of all positions for the prefix cache

class Planner {
 public:
  Planner(std::span<const LayerCache> layers, const Format& kv_format, const CacheRequirements& requirements)
      : groups_(page_groups(layers)), requirements_(requirements), state_bytes_(state_bytes(layers)) {
    for (const PageGroup& group : groups_) page_bytes_.push_back(page_bytes(group, layers, kv_format));
    sizes_.kv_format = &kv_format;
  }

  // For n_pages of each unbounded group; a sequence uses up to `context` positions.
  CachePlan plan(int64_t n_pages, int context) const {
    CachePlan out{.sizes = sizes_, .n_draft_slots = 0, .context = context, .n_bytes = 0};
    out.sizes.max_length = context;
    const int64_t spare = n_pages + 1;  // one page for copy-on-write
    for (size_t g = 0; g < groups_.size(); ++g) {
      int64_t n = spare;
      if (const int window = groups_[g].window; window > 0) {
        const int64_t held =
            int64_t{requirements_.max_sequences} * window_pages(window, requirements_.max_chunk_tokens, context);
        n = std::min(spare, held + n_pages / kPrefixCacheDivisor + 1);
      }
      out.sizes.n_pages.push_back(static_cast<int>(n));
      out.n_bytes += static_cast<size_t>(n) * page_bytes_[g];
    }
    out.n_draft_slots = n_draft_slots(out.n_bytes);
    out.sizes.n_slots = requirements_.max_sequences + n_states(n_pages, out.n_bytes) + out.n_draft_slots;
    out.n_bytes += static_cast<size_t>(out.sizes.n_slots) * state_bytes_;
    return out;
  }

 private:
  // Checkpoint slots: a few per sequence and one per interval, but not more bytes than the pages.
  int n_states(int64_t n_pages, size_t n_page_bytes) const {
    if (state_bytes_ == 0) return 0;
    const int64_t wanted = 2 * requirements_.max_sequences + n_pages * kPageTokens / requirements_.checkpoint_interval;
    const int64_t affordable = static_cast<int64_t>(n_page_bytes / state_bytes_);
    return static_cast<int>(std::clamp<int64_t>(affordable, 2, std::max<int64_t>(2, wanted)));
  }

  int n_draft_slots(size_t n_page_bytes) const {
    if (state_bytes_ == 0) return 0;
    const int64_t affordable = static_cast<int64_t>(n_page_bytes / state_bytes_);
    return static_cast<int>(
        std::clamp<int64_t>(affordable, requirements_.min_draft_slots, requirements_.max_draft_slots));
  }

  std::vector<PageGroup> groups_;
  CacheRequirements requirements_;
  size_t state_bytes_;
  std::vector<size_t> page_bytes_;
  CacheSizes sizes_;
};

// The largest n of [low, high] that fits; low if none does. REQUIRES: fits is monotone.
int64_t largest_fitting(int64_t low, int64_t high, const std::function<bool(int64_t)>& fits) {
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

int window_pages(int window, int max_chunk_tokens, int max_length) {
  const int64_t n_seen = int64_t{window} + max_chunk_tokens;  // positions, starting anywhere in a page
  return static_cast<int>(std::min<int64_t>(pages_of(max_length), (n_seen + kPageTokens - 2) / kPageTokens + 1));
}

Result<CachePlan> plan_cache(std::span<const LayerCache> layers, const Format& kv_format,
                             const CacheRequirements& requirements) {
  const Planner planner(layers, kv_format, requirements);
  const auto fits = [&](int64_t n_pages, int context) {
    return planner.plan(n_pages, context).n_bytes <= requirements.max_bytes;
  };
  const auto min_pages = [&](int64_t context) {
    return int64_t{pages_of(static_cast<int>(context))} * requirements.n_full_contexts;
  };
  const auto fits_context = [&](int64_t context) { return fits(min_pages(context), static_cast<int>(context)); };
  int context = requirements.context;
  if (!fits_context(context)) {
    const int64_t possible = largest_fitting(std::min(kMinContext, context), context, fits_context);
    if (!requirements.may_shrink_context || !fits_context(possible)) {
      const bool smaller_context_fits = fits_context(possible);
      const int64_t longest = requirements.longest_context;
      const int64_t proposed = longest > 0 ? std::min(possible, longest) : possible;
      return fail(
          ErrorCode::out_of_memory, "a context of {} tokens for {} needs {} of KV cache, but only {} is available; {}",
          context, pluralize(requirements.max_sequences, "concurrent request"),
          format_memory(planner.plan(min_pages(context), context).n_bytes), format_memory(requirements.max_bytes),
          smaller_context_fits ? fmt::format("a context of {} fits: use -c {}", proposed, proposed)
                               : "use fewer concurrent requests (--parallel) or a larger cache (--cache-bytes)");
    }
    context = static_cast<int>(possible);
  }
  constexpr int64_t kMaxPages = int64_t{1} << 24;
  const int64_t low = min_pages(context);
  const int64_t wanted =
      requirements.max_tokens > 0 ? static_cast<int64_t>(requirements.max_tokens / kPageTokens) : kMaxPages;
  const int64_t n_pages =
      largest_fitting(low, std::clamp(wanted, low, kMaxPages), [&](int64_t n) { return fits(n, context); });
  return planner.plan(n_pages, context);
}

}  // namespace zinc
