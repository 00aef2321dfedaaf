// A set of indices as ascending ranges that neither overlap nor touch: the elements of a row, the rows of a matrix or
// the heads that one of several devices has.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zinc {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  auto operator<=>(const IndexRange&) const = default;
};

class IndexRanges {
 public:
  IndexRanges() = default;
  IndexRanges(int64_t begin, int64_t end) { add(IndexRange{begin, end}); }

  void add(IndexRange range);
  void add(const IndexRanges& other) {
    for (const IndexRange& range : other.ranges_) add(range);
  }
  const std::vector<IndexRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  int64_t size() const;  // indices
  bool contains(const IndexRanges& other) const;
  bool is_all(int64_t n) const { return ranges_.size() == 1 && ranges_[0] == IndexRange{0, n}; }
  auto operator<=>(const IndexRanges&) const = default;

  IndexRanges shifted(int64_t by) const;
  IndexRanges within(IndexRange bounds) const;
  IndexRanges scaled(int64_t factor) const;  // index i becomes i * factor .. i * factor + factor - 1
  IndexRanges divided(int64_t width) const;  // the groups of `width` indices that have an index of the set
  // The positions of other's indices among this set's. REQUIRES: contains(other).
  IndexRanges positions_of(const IndexRanges& other) const;

 private:
  std::vector<IndexRange> ranges_;
};

}  // namespace zinc
