// Writes tensors whose rows are computed on all cores. At most 16 MiB of floats are computed at a time, so that memory
// does not grow with a tensor. The bytes do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/gguf_writer.h"

namespace zinc {

struct WriteProgress {
  uint64_t n_done = 0, n_bytes = 0;  // of all files that are written
};
struct WriteCallbacks {
  std::function<void(const WriteProgress&)> progress = [](const WriteProgress&) {};
  std::function<bool()> cancelled = [] { return false; };  // called by any thread
};

struct RowSource {
  int64_t n_rows = 0, row_elems = 0;
  size_t n_row_bytes = 0;  // in the file
  // Computes one row, on any thread. `scratch` belongs to the thread and keeps its capacity.
  std::function<Status(int64_t row, std::vector<float>& scratch, std::span<std::byte> out)> encode;
  std::function<void(int64_t first, int64_t n)> written = [](int64_t, int64_t) {};  // these rows are in the file
};

class RowWriter {
 public:
  // n_bytes: of all files together, for the progress. n_threads 0: all cores.
  RowWriter(const WriteCallbacks& callbacks, uint64_t n_bytes, int n_threads = 0);

  // The error is that of the first row that failed. REQUIRES: the file's current tensor has these rows; files one after
  // the other.
  Status write(GgufFileWriter& file, const RowSource& rows);
  // The same for a tensor whose bytes are at hand.
  Status copy(GgufFileWriter& file, std::span<const std::byte> bytes,
              const std::function<void(std::span<const std::byte>)>& written);

 private:
  Status write_chunk(GgufFileWriter& file, const RowSource& rows, int64_t first, int64_t n);
  Status append(GgufFileWriter& file, std::span<const std::byte> bytes);

  const WriteCallbacks& callbacks_;
  uint64_t n_bytes_, n_done_ = 0;
  const GgufFileWriter* file_ = nullptr;  // the current one,
  uint64_t n_seen_ = 0;                   // and how much of it is in n_done_
  ThreadPool pool_;
  std::vector<std::vector<float>> scratch_;  // by thread
  std::vector<std::byte> bytes_;
};

}  // namespace zinc
