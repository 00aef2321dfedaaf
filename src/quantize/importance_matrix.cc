#include "quantize/importance_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "base/mapped_file.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"
#include "quantize/legacy_importance.h"

namespace zinc {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr std::string_view kDatasets = "imatrix.datasets", kChunkCount = "imatrix.chunk_count",
                           kChunkSize = "imatrix.chunk_size";
constexpr std::string_view kRunModel = "zinc.imatrix.model", kRunTokens = "zinc.imatrix.tokens";
constexpr int64_t kMaxChunks = std::numeric_limits<int32_t>::max();  // and tokens of each
constexpr double kMaxCount = 9e15;  // a double, and an int64_t, holds every integer up to it

Error bad_tensor(const GgufFile& file, std::string_view name, std::string_view what) {
  return fail(ErrorCode::invalid_input, "{}: tensor '{}' {}; make the importance matrix again", file.name(), name,
              what);
}

Result<std::vector<float>> floats_of(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.view.format != &k_f32) return bad_tensor(file, tensor.name, "is not stored as f32");
  if (tensor.view.shape.elems() == 0) return bad_tensor(file, tensor.name, "is empty");
  std::vector<float> values(static_cast<size_t>(tensor.view.shape.elems()));
  std::memcpy(values.data(), tensor.view.bytes.data(), values.size() * sizeof(float));
  for (const float x : values) {
    if (!std::isfinite(x) || x < 0) return bad_tensor(file, tensor.name, "has a value that is negative or not finite");
  }
  return values;
}

Result<ImportanceEntry> read_entry(const GgufFile& file, const GgufTensor& sums, const GgufTensor& counts) {
  ImportanceEntry entry;
  ZINC_TRY(values, floats_of(file, sums));
  ZINC_TRY(rows, floats_of(file, counts));
  entry.sums = std::move(values);
  for (const float n : rows) {
    if (n > kMaxCount) return bad_tensor(file, counts.name, "has a count that is too large");
    entry.counts.push_back(std::llround(n));
  }
  if (sums.view.shape.elems() != sums.view.shape.inner() * counts.view.shape.elems()) {
    const std::string what = fmt::format("has shape {}, which does not go with counts of shape {}",
                                         sums.view.shape.to_string(), counts.view.shape.to_string());
    return bad_tensor(file, sums.name, what);
  }
  for (size_t m = 0; m < entry.n_mat(); ++m) {
    const auto begin = entry.sums.begin() + static_cast<ptrdiff_t>(m * entry.n_columns());
    const auto is_zero = [](float x) { return x == 0; };
    if (entry.counts[m] == 0 && !std::all_of(begin, begin + static_cast<ptrdiff_t>(entry.n_columns()), is_zero)) {
      return bad_tensor(file, sums.name, fmt::format("has sums for matrix {}, which has a count of 0", m));
    }
  }
  return entry;
}

Status read_entries(const GgufFile& file, ImportanceMatrix& matrix) {
  for (const GgufTensor& tensor : file.tensors()) {
    const bool has_sums = tensor.name.ends_with(kSums);
    if (!has_sums && !tensor.name.ends_with(kCounts)) continue;  // statistics that other programs add
    const std::string_view own = has_sums ? kSums : kCounts, other = has_sums ? kCounts : kSums;
    const std::string name(tensor.name.substr(0, tensor.name.size() - own.size()));
    const GgufTensor* const partner = file.find_tensor(name + std::string(other));
    if (!partner) return bad_tensor(file, tensor.name, fmt::format("has no '{}{}'", name, other));
    if (!has_sums) continue;
    ZINC_TRY(entry, read_entry(file, tensor, *partner));
    matrix.entries.emplace(name, std::move(entry));
  }
  if (!matrix.entries.empty()) return ok_status();
  return fail(ErrorCode::invalid_input, "{}: the importance matrix has no entries (no tensor NAME{})", file.name(),
              kSums);
}

Result<int64_t> read_count(const GgufFile& file, std::string_view key) {
  ZINC_TRY(count, file.get<int64_t>(key));
  if (count >= 0 && count <= kMaxChunks) return count;
  return fail(ErrorCode::invalid_input, "{}: {} is {}; expected 0 to {}", file.name(), key, count, kMaxChunks);
}

Result<ImportanceMatrix> read_gguf(const GgufFile& file) {
  const std::string_view type = file.get_or<std::string_view>("general.type", "");
  if (type != "imatrix") {
    return fail(ErrorCode::invalid_input, "{}: not an importance matrix: general.type is '{}', expected 'imatrix'",
                file.name(), type);
  }
  ImportanceMatrix matrix;
  ZINC_TRY(chunk_count, read_count(file, kChunkCount));
  ZINC_TRY(chunk_size, read_count(file, kChunkSize));
  matrix.chunk_count = chunk_count;
  matrix.chunk_size = chunk_size;
  ZINC_TRY(datasets, file.get<std::vector<std::string_view>>(kDatasets));
  matrix.datasets.assign(datasets.begin(), datasets.end());
  if (Status read = read_entries(file, matrix); !read.ok()) return read.error();
  if (!file.find(kRunModel)) return matrix;
  ZINC_TRY(model, file.get<std::string_view>(kRunModel));
  ZINC_TRY(tokens, file.get<std::string_view>(kRunTokens));
  matrix.run = ImportanceRun{std::string(model), std::string(tokens)};
  return matrix;
}

GgufHeader header_of(const ImportanceMatrix& matrix) {
  GgufHeader header;
  header.set("general.type", "imatrix").set(kDatasets, matrix.datasets);
  header.set(kChunkCount, static_cast<uint32_t>(matrix.chunk_count));
  header.set(kChunkSize, static_cast<uint32_t>(matrix.chunk_size));
  if (matrix.run) header.set(kRunModel, matrix.run->model).set(kRunTokens, matrix.run->tokens);
  for (const auto& [name, entry] : matrix.entries) {
    const int64_t n_mat = static_cast<int64_t>(entry.n_mat()), n_columns = static_cast<int64_t>(entry.n_columns());
    header.add_tensor(name + std::string(kSums), Shape{n_mat, n_columns}, k_f32);
    header.add_tensor(name + std::string(kCounts), Shape{n_mat, 1}, k_f32);
  }
  return header;
}

bool has_same_shape(const ImportanceEntry& a, const ImportanceEntry& b) {
  return a.sums.size() == b.sums.size() && (a.n_mat() == b.n_mat() || a.n_mat() == 1 || b.n_mat() == 1);
}

// An older file has one count for all experts of a weight.
void divide_count(ImportanceEntry& entry, size_t n_mat) {
  if (entry.n_mat() == 1) entry.counts.resize(n_mat, entry.counts[0]);
}

// False: a sum is larger than a float.
bool add_entry(ImportanceEntry& into, ImportanceEntry other) {
  const size_t n_mat = std::max(into.n_mat(), other.n_mat());
  divide_count(into, n_mat);
  divide_count(other, n_mat);
  for (size_t i = 0; i < into.sums.size(); ++i) into.sums[i] += other.sums[i];
  for (size_t m = 0; m < n_mat; ++m) into.counts[m] += other.counts[m];
  return std::ranges::all_of(into.sums, [](float sum) { return std::isfinite(sum); });
}

std::vector<float> means_of(std::span<const float> sums, int64_t count) {
  std::vector<float> means;
  for (const float sum : sums) means.push_back(static_cast<float>(double{sum} / static_cast<double>(count)));
  return means;
}

std::vector<float> means_of_all(const ImportanceEntry& entry, size_t n_columns) {
  const double count = std::accumulate(entry.counts.begin(), entry.counts.end(), 0.0);
  if (count == 0) return {};
  std::vector<double> sums(n_columns);
  for (size_t i = 0; i < entry.sums.size(); ++i) sums[i % n_columns] += entry.sums[i];
  std::vector<float> means;
  for (const double sum : sums) means.push_back(static_cast<float>(sum / count));
  return means;
}

}  // namespace

Result<ImportanceMatrix> parse_importance_matrix(std::span<const std::byte> bytes, std::string_view name) {
  constexpr std::string_view kMagic = "GGUF";
  const bool is_gguf = bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
  if (!is_gguf) return parse_legacy_importance(bytes, name);
  ZINC_TRY(file, GgufFile::parse(bytes, std::string(name)));
  return read_gguf(file);
}

Result<ImportanceMatrix> read_importance_matrix(const std::filesystem::path& path) {
  ZINC_TRY(file, MappedFile::open(path));
  return parse_importance_matrix(file.bytes(), path.string());
}

Status write_importance_matrix(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  ZINC_CHECK(!matrix.entries.empty());
  ZINC_TRY(file, GgufFileWriter::create(path, header_of(matrix)));
  for (const auto& [name, entry] : matrix.entries) {
    if (Status s = file.write(std::as_bytes(std::span(entry.sums))); !s.ok()) return s;
    const std::vector<float> counts(entry.counts.begin(), entry.counts.end());
    if (Status s = file.write(std::as_bytes(std::span(counts))); !s.ok()) return s;
  }
  return file.commit();
}

Status merge_importance(ImportanceMatrix& into, const ImportanceMatrix& other) {
  for (const auto& [name, entry] : other.entries) {
    const auto [at, is_new] = into.entries.emplace(name, entry);
    if (is_new) continue;
    if (!has_same_shape(at->second, entry)) {
      return fail(
          ErrorCode::invalid_input,
          "the importance matrices are of different models: '{}' has {} columns of {} matrices in one, {} of {} "
          "in the other",
          name, at->second.n_columns(), at->second.n_mat(), entry.n_columns(), entry.n_mat());
    }
    if (!add_entry(at->second, entry)) {
      return fail(ErrorCode::invalid_input, "a sum of '{}' is larger than a float; one of the files is damaged", name);
    }
  }
  into.datasets.insert(into.datasets.end(), other.datasets.begin(), other.datasets.end());
  if (into.chunk_size == 0) into.chunk_size = other.chunk_size;
  const int64_t n_tokens = into.chunk_count * into.chunk_size + other.chunk_count * other.chunk_size;
  into.chunk_count = into.chunk_size > 0 ? std::min(n_tokens / into.chunk_size, kMaxChunks) : 0;
  into.run.reset();
  return ok_status();
}

Result<std::vector<float>> importance_of(const ImportanceMatrix& matrix, const ImportanceRow& row) {
  const auto found = matrix.entries.find(row.name);
  if (found == matrix.entries.end()) return std::vector<float>();
  const ImportanceEntry& entry = found->second;
  const size_t n_columns = static_cast<size_t>(row.n_columns), n_mat = static_cast<size_t>(row.n_mat);
  const bool has_counts = entry.n_mat() == n_mat || entry.n_mat() == 1;
  if (!has_counts || entry.sums.size() != n_mat * n_columns) {
    return fail(
        ErrorCode::invalid_input,
        "the importance matrix has {} columns of {} matrices for '{}', but the weight has {} of {}; it was made "
        "for another model",
        entry.n_columns(), entry.n_mat(), row.name, row.n_columns, row.n_mat);
  }
  const size_t mat = static_cast<size_t>(row.mat);
  const int64_t count = entry.counts[entry.n_mat() == 1 ? 0 : mat];
  if (count == 0) return means_of_all(entry, n_columns);
  return means_of(std::span(entry.sums).subspan(mat * n_columns, n_columns), count);
}

}  // namespace zinc
