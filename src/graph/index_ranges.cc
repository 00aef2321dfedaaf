#include "graph/index_ranges.h"

#include <algorithm>

namespace zinc {

void IndexRanges::add(IndexRange range) {
  if (range.begin >= range.end) return;
  std::vector<IndexRange> merged;
  for (const IndexRange& own : ranges_) {
    if (own.end < range.begin || own.begin > range.end) {
      merged.push_back(own);
    } else {
      range = {std::min(own.begin, range.begin), std::max(own.end, range.end)};
    }
  }
  merged.insert(std::ranges::upper_bound(merged, range.begin, {}, &IndexRange::begin), range);
  ranges_ = std::move(merged);
}

int64_t IndexRanges::size() const {
  int64_t n = 0;
  for (const IndexRange& range : ranges_) n += range.size();
  return n;
}

bool IndexRanges::contains(const IndexRanges& other) const {
  return std::ranges::all_of(other.ranges_, [&](const IndexRange& range) {
    return std::ranges::any_of(ranges_,
                               [&](const IndexRange& own) { return own.begin <= range.begin && range.end <= own.end; });
  });
}

IndexRanges IndexRanges::shifted(int64_t by) const {
  IndexRanges out;
  for (const IndexRange& range : ranges_) out.add(IndexRange{range.begin + by, range.end + by});
  return out;
}

IndexRanges IndexRanges::within(IndexRange bounds) const {
  IndexRanges out;
  for (const IndexRange& range : ranges_) {
    out.add(IndexRange{std::max(range.begin, bounds.begin), std::min(range.end, bounds.end)});
  }
  return out;
}

IndexRanges IndexRanges::scaled(int64_t factor) const {
  IndexRanges out;
  for (const IndexRange& range : ranges_) out.add(IndexRange{range.begin * factor, range.end * factor});
  return out;
}

IndexRanges IndexRanges::divided(int64_t width) const {
  IndexRanges out;
  for (const IndexRange& range : ranges_) out.add(IndexRange{range.begin / width, (range.end + width - 1) / width});
  return out;
}

IndexRanges IndexRanges::positions_of(const IndexRanges& other) const {
  IndexRanges out;
  int64_t before = 0;  // indices of the ranges before
  for (const IndexRange& own : ranges_) {
    out.add(other.within(own).shifted(before - own.begin));
    before += own.size();
  }
  return out;
}

}  // namespace zinc
