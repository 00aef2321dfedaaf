// The overhead of one empty parallel_for, which is one barrier. A decode step of a dense model has about a thousand of
// them. "asleep" lets the workers park first.
#include "base/thread_pool.h"

#include <benchmark/benchmark.h>

#include <chrono>

namespace zinc {
namespace {

void barrier(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.parallel_for(64, [](size_t begin, size_t) { benchmark::DoNotOptimize(begin); });
  }
}
BENCHMARK(barrier)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

void barrier_asleep(benchmark::State& state) {
  ThreadPool pool(2);
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(64, [](size_t begin, size_t) { benchmark::DoNotOptimize(begin); });
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(barrier_asleep)->UseManualTime()->Iterations(200);

}  // namespace
}  // namespace zinc
