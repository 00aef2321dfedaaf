// Arbitrary bytes as an importance matrix: reading succeeds or fails, and a matrix that was read can be merged and
// used.
#include <cstdint>

#include "quantize/importance_matrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto read = zinc::parse_importance_matrix(std::as_bytes(std::span(data, size)), "fuzz");
  if (!read.ok()) return 0;
  zinc::ImportanceMatrix& matrix = read.value();
  for (const auto& [name, entry] : matrix.entries) {
    const auto n_mat = static_cast<int64_t>(entry.n_mat()), n_columns = static_cast<int64_t>(entry.n_columns());
    const auto importance =
        zinc::importance_of(matrix, {.name = name, .n_mat = n_mat, .n_columns = n_columns, .mat = n_mat - 1});
    if (!importance.ok()) __builtin_trap();
    for (const float x : importance.value()) {
      if (!(x >= 0)) __builtin_trap();
    }
  }
  const zinc::ImportanceMatrix copy = matrix;
  static_cast<void>(zinc::merge_importance(matrix, copy).ok());
  return 0;
}
