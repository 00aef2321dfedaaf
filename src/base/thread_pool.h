#pragma once
#include <cstddef>
namespace zinc {
inline int default_thread_count() { return 1; }
class ThreadPool { public: explicit ThreadPool(int) {}
 template <class F> void parallel_for(size_t n, F&& f) { f(size_t{0}, n); } };
}
