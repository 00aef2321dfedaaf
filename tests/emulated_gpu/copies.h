// Asynchronous copies of kernels. A GPU may read the source and write the destination at any time between issue and
// wait, so touching either in between is a bug: the destination is poisoned until the wait, and a source or destination
// that changed while the copy was pending is an error that names the kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zinc::emulated {

inline constexpr int kPoisonByte = 0xEE;  // fills memory that is not written yet

// Prints the kernel's error and aborts.
[[noreturn]] void fail_kernel(const std::string& kernel, const char* why);

class Copy {
 public:
  // From memory, or of a register value, which cannot change.
  static Copy of_memory(void* to, const void* from, size_t n_bytes);
  static Copy of_value(void* to, const void* value, size_t n_bytes);
  void complete(const std::string& kernel) const;
  size_t size() const { return bytes_.size(); }

 private:
  Copy(void* to, const void* bytes, size_t n_bytes);
  std::byte* to_;
  const void* from_ = nullptr;
  std::vector<std::byte> bytes_;
};

// A thread's async operations in commit groups; uncommitted ones are not waited for.
template <class T>
class CommitGroups {
 public:
  void begin(T one) { uncommitted_.push_back(std::move(one)); }
  void commit() { groups_.push_back(std::exchange(uncommitted_, {})); }
  // Completes all groups but the last n_left, in order.
  template <class Complete>
  void wait(size_t n_left, Complete&& complete) {
    const auto end = groups_.end() - static_cast<ptrdiff_t>(std::min(n_left, groups_.size()));
    for (auto group = groups_.begin(); group != end; ++group) std::ranges::for_each(*group, complete);
    groups_.erase(groups_.begin(), end);
  }

 private:
  std::vector<T> uncommitted_;
  std::vector<std::vector<T>> groups_;
};

// Copies that report to an mbarrier.
class MbarrierCopies {
 public:
  void begin(const void* mbarrier, Copy copy) { copies_[mbarrier].push_back(std::move(copy)); }
  size_t complete(const void* mbarrier, const std::string& kernel);  // returns the number of bytes
  bool empty() const { return copies_.empty(); }

 private:
  std::unordered_map<const void*, std::vector<Copy>> copies_;
};

}  // namespace zinc::emulated
