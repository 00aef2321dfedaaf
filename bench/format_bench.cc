// Elements dequantized per second by each format, on one core, with blocks in the cache.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "tensor/format.h"

namespace zinc {
namespace {

constexpr size_t kElems = 4096;  // one row of a common weight

void decode_row(benchmark::State& state, const Format* format) {
  std::vector<std::byte> blocks(row_bytes(*format, kElems));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 37 % 59);  // scales stay finite
  std::vector<float> out(kElems);
  for (auto _ : state) {
    format->dequantize(blocks, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kElems));
}

const int kRegistered = [] {
  for (const Format* const* f = kFormats; *f; ++f) {
    benchmark::RegisterBenchmark(std::string((*f)->name).c_str(), decode_row, *f);
  }
  return 0;
}();

}  // namespace
}  // namespace zinc
