// Who holds which page of one group: running sequences pin pages, the prefix tree keeps them; a page that nobody holds
// is free. Recurrent-state slots are counted the same way. No device; engine thread only.
// Invariant: n_free + n_pinned + n_cached == n_total.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/cache_spec.h"

namespace zinc {

class PagePool {
 public:
  explicit PagePool(int n_pages);

  // A free page, pinned once; pages of a fresh pool come in ascending order. REQUIRES: n_free() > 0.
  PageId take();
  void pin(PageId page);
  void unpin(PageId page);  // REQUIRES: pinned
  void keep(PageId page);   // REQUIRES: not free
  void drop(PageId page);   // REQUIRES: kept

  bool is_pinned(PageId page) const { return at(page).n_pins > 0; }
  int n_total() const { return static_cast<int>(holders_.size()); }
  int n_used() const { return n_used_; }  // ever taken: the first so many
  int n_free() const { return static_cast<int>(free_.size()); }
  int n_pinned() const { return n_pinned_; }                         // by sequences, each page counted once
  int n_cached() const { return n_total() - n_free() - n_pinned_; }  // by the tree alone

 private:
  struct Holders {
    uint32_t n_pins = 0, n_keeps = 0;
  };
  const Holders& at(PageId page) const { return holders_[static_cast<size_t>(page)]; }
  Holders& at(PageId page) { return holders_[static_cast<size_t>(page)]; }
  void free_if_unheld(PageId page);

  std::vector<Holders> holders_;
  std::vector<PageId> free_;  // taken from the back
  int n_pinned_ = 0, n_used_ = 0;
};

}  // namespace zinc
