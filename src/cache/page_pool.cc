#include "cache/page_pool.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace zinc {

PagePool::PagePool(int n_pages) : ref_counts_(static_cast<size_t>(n_pages)), free_(static_cast<size_t>(n_pages)) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

PageId PagePool::allocate() {
  ZINC_CHECK(!free_.empty());
  const PageId page = free_.back();
  free_.pop_back();
  at(page).n_pins = 1;
  high_water_ = std::max(high_water_, page + 1);
  ++n_pinned_;
  return page;
}

void PagePool::pin(PageId page) {
  ZINC_CHECK(at(page).n_pins + at(page).n_refs > 0);
  if (at(page).n_pins++ == 0) ++n_pinned_;
}

void PagePool::unpin(PageId page) {
  ZINC_CHECK(at(page).n_pins > 0);
  if (--at(page).n_pins == 0) --n_pinned_;
  free_if_unreferenced(page);
}

void PagePool::add_ref(PageId page) {
  ZINC_CHECK(at(page).n_pins + at(page).n_refs > 0);
  ++at(page).n_refs;
}

void PagePool::drop_ref(PageId page) {
  ZINC_CHECK(at(page).n_refs > 0);
  --at(page).n_refs;
  free_if_unreferenced(page);
}

void PagePool::free_if_unreferenced(PageId page) {
  if (at(page).n_pins + at(page).n_refs == 0) free_.push_back(page);
}

}  // namespace zinc
