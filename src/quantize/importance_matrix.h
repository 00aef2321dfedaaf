// An importance matrix: for every column of a weight matrix, the mean of x^2 over the activations x that it is
// multiplied with, for every expert of its own. Quantizers weigh the error of a weight with it. Plain data; its files
// are those of llama-imatrix (GGUF with general.type "imatrix"; the older binary .dat files can be read).
//   NAME.in_sum2 [n_mat, n_columns]: sums of x^2, f32     NAME.counts [n_mat, 1]: rows in these sums, f32
// NAME is the weight's tensor name. Sums are kept as floats, as in the file, so that a run that continues from a file
// ends with the same bits as one without interruption.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace zinc {

struct ImportanceEntry {
  std::vector<float> sums;      // [n_mat, n_columns], finite, not negative
  std::vector<int64_t> counts;  // [n_mat]; one for a matrix that is not divided into experts

  size_t n_mat() const { return counts.size(); }
  size_t n_columns() const { return sums.size() / counts.size(); }
};

// Of a file that a run wrote: what it needs to continue. llama.cpp ignores these keys.
struct ImportanceRun {
  std::string model;   // hash of the model file
  std::string tokens;  // hash of the tokens of all windows so far: ImportanceMatrix::chunk_count
  bool operator==(const ImportanceRun&) const = default;
};

struct ImportanceMatrix {
  std::map<std::string, ImportanceEntry, std::less<>> entries;  // by weight name
  std::vector<std::string> datasets;                            // paths of the texts
  int64_t chunk_count = 0, chunk_size = 0;                      // windows of text, and tokens of each
  std::optional<ImportanceRun> run = {};                        // none: merged, or written by another program
};

// The error names the file and says what is wrong with it. The sums and counts of the result are valid, and there is at
// least one entry.
Result<ImportanceMatrix> read_importance_matrix(const std::filesystem::path& path);
// The same for the bytes of a file; `name` is for messages.
Result<ImportanceMatrix> parse_importance_matrix(std::span<const std::byte> bytes, std::string_view name);
// Replaces the file atomically. REQUIRES: at least one entry.
Status write_importance_matrix(const ImportanceMatrix& matrix, const std::filesystem::path& path);
// Adds the sums and counts of `other`, as if both texts had been one. Fails if a weight has another shape; then `into`
// must not be used.
Status merge_importance(ImportanceMatrix& into, const ImportanceMatrix& other);

// A weight's shape [n_mat, .., n_columns], and which of its matrices.
struct ImportanceRow {
  std::string_view name;
  int64_t n_mat = 1, n_columns = 0;
  int64_t mat = 0;
};
// The mean of x^2 for each column of one matrix of a weight. Empty: the matrix has no entry for this weight, or no
// activation reached it. An expert that no token was routed to has the mean over the weight's other experts. Fails if
// the weight has another shape: the file belongs to another model.
Result<std::vector<float>> importance_of(const ImportanceMatrix& matrix, const ImportanceRow& row);

}  // namespace zinc
