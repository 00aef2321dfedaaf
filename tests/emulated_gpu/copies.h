// Copies that run beside a kernel's threads. A GPU reads their source and writes their destination at any time between
// their begin and the wait for them, so whoever touches either meanwhile is wrong: the destination is nonsense until
// the bytes arrive, which is when they are waited for, and a source or a destination that changed under way is an error
// that names the kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zinc::emulated {

inline constexpr int kNobodysByte = 0xEE;  // what was not written has no meaning

// Says what is wrong with a kernel, and ends the process.
[[noreturn]] void refuse(const std::string& kernel, const char* why);

class Copy {
 public:
  // From memory, or of a value that the thread has (nothing can change it under way).
  static Copy of_memory(void* to, const void* from, size_t n_bytes);
  static Copy of_value(void* to, const void* value, size_t n_bytes);
  void arrive(const std::string& kernel) const;
  size_t size() const { return bytes_.size(); }

 private:
  Copy(void* to, const void* bytes, size_t n_bytes);
  std::byte* to_;
  const void* from_ = nullptr;
  std::vector<std::byte> bytes_;
};

// What a thread begins in sets and awaits in sets: what is not in a set yet is awaited by nobody.
template <class T>
class Sets {
 public:
  void begin(T one) { open_.push_back(std::move(one)); }
  void end_set() { sets_.push_back(std::exchange(open_, {})); }
  // All sets but the last so many, in order.
  template <class Do>
  void await(size_t n_left, Do&& complete) {
    const auto end = sets_.end() - static_cast<ptrdiff_t>(std::min(n_left, sets_.size()));
    for (auto set = sets_.begin(); set != end; ++set) std::ranges::for_each(*set, complete);
    sets_.erase(sets_.begin(), end);
  }

 private:
  std::vector<T> open_;
  std::vector<std::vector<T>> sets_;
};

// Those that report to a place in shared memory.
class ReportedCopies {
 public:
  void begin(const void* gate, Copy copy) { copies_[gate].push_back(std::move(copy)); }
  size_t arrive(const void* gate, const std::string& kernel);  // how many bytes came
  bool empty() const { return copies_.empty(); }

 private:
  std::unordered_map<const void*, std::vector<Copy>> copies_;
};

}  // namespace zinc::emulated
