// What GCC 12's run-time library and headers expect of glibc 2.32 to 2.36, for a program that runs on glibc 2.31.
// Linked into the portable program only (tools/link_portable.py); where glibc has these itself, the program still uses
// the ones below.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

// glibc 2.32: true while there is one thread, which lets shared_ptr count without atomics. False is always right.
extern "C" char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.36, for std::random_device.
extern "C" uint32_t arc4random() noexcept {
  uint32_t number = 0;
  ssize_t n_bytes = 0;
  do {
    n_bytes = getrandom(&number, sizeof number, 0);
  } while (n_bytes < 0 && errno == EINTR);
  if (n_bytes != sizeof number) abort();
  return number;
}

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* found;
};

int find_in_object(dl_phdr_info* object, size_t, void* argument) {
  const auto& search = *static_cast<const Search*>(argument);
  uintptr_t begin = UINTPTR_MAX, end = 0, unwind_table = 0;
  bool contains_address = false;
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const uintptr_t first = object->dlpi_addr + segment.p_vaddr, last = first + segment.p_memsz;
    if (segment.p_type == PT_GNU_EH_FRAME) unwind_table = first;
    if (segment.p_type != PT_LOAD) continue;
    begin = std::min(begin, first);
    end = std::max(end, last);
    contains_address |= first <= search.address && search.address < last;
  }
  if (!contains_address) return 0;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(unwind_table);
  return 1;
}

}  // namespace

// glibc 2.35: the unwind table of the code at an address, which the unwinder needs when an exception is thrown.
extern "C" int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(find_in_object, &search) == 1 && result->dlfo_eh_frame ? 0 : -1;
}
