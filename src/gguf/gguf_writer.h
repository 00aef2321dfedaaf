// Writes a GGUF file (version 3) as a stream: first all metadata and tensor infos, then the data tensor by tensor, in
// pieces of any size, so that memory does not grow with the model.
//   GgufHeader header;
//   header.set("general.architecture", "llama").set("llama.block_count", uint32_t{2});
//   header.add_tensor("output.weight", {8, 32}, k_f16);
//   ZINC_TRY(file, GgufFileWriter::create(path, header));
//   ZINC_TRY(written, file.write(bytes));  // as often as needed, in the order of add_tensor()
//   return file.commit();
// The file appears under its name only by commit() (temporary file, fsync, rename); until then an error, or the
// destructor, leaves nothing behind. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "gguf/gguf_encoding.h"
#include "tensor/tensor_view.h"

namespace zinc {

// Metadata and tensor infos. Misuse by our own code (a name twice, a row that is not whole blocks) is a ZINC_CHECK.
class GgufHeader {
 public:
  struct TensorInfo {
    std::string name;
    const Format* format = nullptr;
    Shape shape;
    uint64_t n_bytes = 0;
    uint64_t offset = 0;  // from the start of the data
  };

  // Replaces the value of a key that is already set, in its position. `general.alignment` is u32.
  template <class T>
  GgufHeader& set(std::string_view key, const T& value) {
    std::string encoded;
    const GgufType type = append_gguf_value(encoded, value);
    return set_encoded(key, type, std::move(encoded));
  }
  bool has(std::string_view key) const { return key_index_.contains(std::string(key)); }

  // In the order in which their data will be written.
  GgufHeader& add_tensor(std::string_view name, const Shape& shape, const Format& format);

  size_t n_metadata() const { return keys_.size(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Exact size of the file that will be written.
  uint64_t file_bytes() const;
  // All bytes before the first tensor's data, padding included.
  std::string encode() const;
  uint64_t aligned(uint64_t n_bytes) const { return (n_bytes + alignment_ - 1) / alignment_ * alignment_; }

 private:
  struct Key {
    std::string name;
    GgufType type;
    std::string encoded;
  };
  GgufHeader& set_encoded(std::string_view key, GgufType type, std::string encoded);
  uint64_t data_bytes() const;

  uint32_t alignment_ = 32;
  std::vector<Key> keys_;
  std::unordered_map<std::string, size_t> key_index_, tensor_index_;
  std::vector<TensorInfo> tensors_;
};

class GgufFileWriter {
 public:
  static Result<GgufFileWriter> create(const std::filesystem::path& path, const GgufHeader& header);

  // Bytes of the current tensor, which ends when it is complete; padding is added. REQUIRES: no more bytes than the
  // tensor still needs.
  Status write(std::span<const std::byte> bytes);
  // The tensor that the next write() is for. REQUIRES: !is_complete().
  const GgufHeader::TensorInfo& current() const { return tensors_[tensor_idx_]; }
  bool is_complete() const { return tensor_idx_ == tensors_.size(); }
  uint64_t n_written() const { return n_written_; }  // bytes of the file, with padding
  Status commit();                                   // REQUIRES: is_complete()

 private:
  GgufFileWriter(AtomicFile file, const GgufHeader& header);
  Status put(std::span<const std::byte> bytes);

  AtomicFile file_;
  std::vector<GgufHeader::TensorInfo> tensors_;
  std::vector<uint64_t> padding_;  // bytes after each tensor
  size_t tensor_idx_ = 0;
  uint64_t n_in_tensor_ = 0, n_written_ = 0;
};

}  // namespace zinc
