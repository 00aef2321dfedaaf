#include "quantize/legacy_importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace zinc {
namespace {

// The file has the number of windows, not their length: this is llama-imatrix's default. Means do not depend on it.
constexpr int64_t kChunkSize = 512;

class LegacyReader {
 public:
  LegacyReader(std::string_view name, std::span<const std::byte> bytes) : name_(name), rest_(bytes) {}

  bool is_at_end() const { return rest_.empty(); }

  Result<int32_t> number() {
    ZINC_TRY(bytes, take(sizeof(int32_t)));
    int32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    if (value >= 0) return value;
    return damaged("a count is negative");
  }

  Result<std::string> text() {
    ZINC_TRY(length, number());
    ZINC_TRY(bytes, take(static_cast<size_t>(length)));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Result<ImportanceEntry> entry() {
    ZINC_TRY(n_windows, number());
    ZINC_TRY(n_values, number());
    ZINC_TRY(bytes, take(size_t{sizeof(float)} * static_cast<size_t>(n_values)));
    ImportanceEntry entry;
    // 0 windows: the values are means of an unknown number.
    entry.counts = {std::max(n_windows, 1) * kChunkSize};
    entry.sums.resize(static_cast<size_t>(n_values));
    if (n_values == 0) return damaged("an entry has no values");
    std::memcpy(entry.sums.data(), bytes.data(), bytes.size());
    for (float& sum : entry.sums) {
      sum *= static_cast<float>(kChunkSize);
      if (!std::isfinite(sum) || sum < 0) return damaged("a value is negative or not finite");
    }
    return entry;
  }

  Error damaged(std::string_view what) const {
    return fail(ErrorCode::invalid_input,
                "{}: not an importance matrix: it is not a GGUF file, and as a binary file of older versions of "
                "llama-imatrix it is damaged ({})",
                name_, what);
  }

 private:
  Result<std::span<const std::byte>> take(size_t n) {
    if (n > rest_.size()) return damaged("it ends too early");
    const std::span<const std::byte> taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }

  std::string_view name_;
  std::span<const std::byte> rest_;
};

}  // namespace

Result<ImportanceMatrix> parse_legacy_importance(std::span<const std::byte> bytes, std::string_view name) {
  LegacyReader reader(name, bytes);
  ImportanceMatrix matrix;
  matrix.chunk_size = kChunkSize;
  ZINC_TRY(n_entries, reader.number());
  for (int32_t i = 0; i < n_entries; ++i) {
    ZINC_TRY(weight, reader.text());
    ZINC_TRY(entry, reader.entry());
    if (!matrix.entries.emplace(weight, std::move(entry)).second) return reader.damaged("an entry occurs twice");
  }
  if (matrix.entries.empty()) return reader.damaged("it has no entries");
  if (reader.is_at_end()) return matrix;  // the oldest files end here
  ZINC_TRY(n_windows, reader.number());
  matrix.chunk_count = n_windows;
  if (reader.is_at_end()) return matrix;
  ZINC_TRY(dataset, reader.text());
  matrix.datasets.push_back(dataset);
  return matrix;
}

}  // namespace zinc
