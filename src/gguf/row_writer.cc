#include "gguf/row_writer.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

namespace zinc {
namespace {

constexpr size_t kChunkBytes = size_t{16} << 20;

int64_t rows_per_chunk(const RowSource& rows) {
  const auto row_floats = static_cast<size_t>(rows.row_elems) * sizeof(float);
  return std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes / row_floats));
}

Error interrupted() { return fail(ErrorCode::cancelled, "interrupted; nothing was written"); }

// The error of the row with the lowest number, whichever thread finds one first.
class FirstError {
 public:
  bool is_before(int64_t row) const { return row_ < row; }
  void set(int64_t row, Error error) {
    const std::scoped_lock lock(mutex_);
    if (row >= row_) return;
    row_ = row;
    error_ = std::move(error);
  }
  Status status() const {
    if (row_ == std::numeric_limits<int64_t>::max()) return ok_status();
    return error_;
  }

 private:
  std::mutex mutex_;
  std::atomic<int64_t> row_ = std::numeric_limits<int64_t>::max();
  Error error_{};
};

}  // namespace

RowWriter::RowWriter(const WriteCallbacks& callbacks, uint64_t n_bytes, int n_threads)
    : callbacks_(callbacks),
      n_bytes_(n_bytes),
      pool_(n_threads > 0 ? n_threads : default_thread_count()),
      scratch_(static_cast<size_t>(pool_.n_threads())) {}

Status RowWriter::write(GgufFileWriter& file, const RowSource& rows) {
  const int64_t n_chunk = rows_per_chunk(rows);
  for (int64_t first = 0; first < rows.n_rows; first += n_chunk) {
    const int64_t n = std::min(n_chunk, rows.n_rows - first);
    ZINC_TRY(written, write_chunk(file, rows, first, n));
    rows.written(first, n);
  }
  return ok_status();
}

Status RowWriter::write_chunk(GgufFileWriter& file, const RowSource& rows, int64_t first, int64_t n) {
  bytes_.resize(static_cast<size_t>(n) * rows.n_row_bytes);
  FirstError error;
  std::atomic<bool> is_cancelled = false;
  pool_.parallel_for(static_cast<size_t>(n), [&](size_t begin, size_t end) {
    std::vector<float>& scratch = scratch_[ThreadPool::current_thread()];
    for (size_t i = begin; i < end; ++i) {
      const int64_t row = first + static_cast<int64_t>(i);
      if (callbacks_.cancelled()) is_cancelled = true;
      if (is_cancelled || error.is_before(row)) return;
      const Status encoded =
          rows.encode(row, scratch, std::span(bytes_).subspan(i * rows.n_row_bytes, rows.n_row_bytes));
      if (!encoded.ok()) error.set(row, encoded.error());
    }
  });
  if (is_cancelled) return interrupted();
  if (Status computed = error.status(); !computed.ok()) return computed;
  return append(file, bytes_);
}

Status RowWriter::copy(GgufFileWriter& file, std::span<const std::byte> bytes,
                       const std::function<void(std::span<const std::byte>)>& written) {
  while (!bytes.empty()) {
    if (callbacks_.cancelled()) return interrupted();
    const std::span<const std::byte> part = bytes.first(std::min(kChunkBytes, bytes.size()));
    ZINC_TRY(appended, append(file, part));
    written(part);
    bytes = bytes.subspan(part.size());
  }
  return ok_status();
}

Status RowWriter::append(GgufFileWriter& file, std::span<const std::byte> bytes) {
  ZINC_TRY(written, file.write(bytes));
  if (std::exchange(file_, &file) != &file) n_seen_ = 0;
  n_done_ += file.n_written() - std::exchange(n_seen_, file.n_written());
  callbacks_.progress({.n_done = n_done_, .n_bytes = n_bytes_});
  return ok_status();
}

}  // namespace zinc
