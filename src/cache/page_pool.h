// Reference counts of the pages of one group: running sequences pin pages, the prefix cache holds references; a page
// without either is free. Also used for recurrent-state slots. No device; engine thread only.
// Invariant: n_free + n_pinned + n_cached == n_total.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/cache_spec.h"

namespace zinc {

class PagePool {
 public:
  explicit PagePool(int n_pages);

  // A free page, pinned once; a new pool returns pages in ascending order. REQUIRES: n_free() > 0.
  PageId allocate();
  void pin(PageId page);
  void unpin(PageId page);     // REQUIRES: pinned
  void add_ref(PageId page);   // by the prefix cache. REQUIRES: not free
  void drop_ref(PageId page);  // REQUIRES: referenced

  bool is_pinned(PageId page) const { return at(page).n_pins > 0; }
  int n_total() const { return static_cast<int>(ref_counts_.size()); }
  int high_water() const { return high_water_; }  // pages ever allocated are the first so many
  int n_free() const { return static_cast<int>(free_.size()); }
  int n_pinned() const { return n_pinned_; }                         // by sequences, each page counted once
  int n_cached() const { return n_total() - n_free() - n_pinned_; }  // only by the prefix cache

 private:
  struct RefCounts {
    uint32_t n_pins = 0, n_refs = 0;
  };
  const RefCounts& at(PageId page) const { return ref_counts_[static_cast<size_t>(page)]; }
  RefCounts& at(PageId page) { return ref_counts_[static_cast<size_t>(page)]; }
  void free_if_unreferenced(PageId page);

  std::vector<RefCounts> ref_counts_;
  std::vector<PageId> free_;  // allocated from the back
  int n_pinned_ = 0, high_water_ = 0;
};

}  // namespace zinc
