// Writes GGUF files for tests: metadata of every kind, tensors in any format, split files, and on request wrong ones.
//   GgufWriter w;
//   w.add("general.architecture", "llama").add("llama.block_count", uint32_t{2});
//   w.add_tensor("output.weight", {8, 32}, *find_format("f16"), std::vector<float>(256, 0.5f));
//   w.write(path);
// The on-disk type of a metadata value follows from its C++ type. Misuse ends the test program (ZINC_CHECK).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gguf/gguf_encoding.h"
#include "tensor/tensor_view.h"

namespace zinc {

// A tensor record as written to the file; not validated.
struct GgufTensorRecord {
  std::string name;
  std::vector<uint64_t> dims;  // innermost first
  uint32_t type = 0;
  std::string data;
  std::optional<uint64_t> offset = {};  // nullopt: the actual offset
};

class GgufWriter {
 public:
  template <class T>
  GgufWriter& add(std::string_view key, const T& value) {
    std::string encoded;
    const GgufType type = append_gguf_value(encoded, value);
    return add_raw(key, static_cast<uint32_t>(type), encoded);
  }

  // Any type number with any bytes.
  GgufWriter& add_raw(std::string_view key, uint32_t type, std::string_view encoded) {
    append(metadata_, string(key));
    append(metadata_, number(type));
    append(metadata_, encoded);
    ++n_metadata_;
    return *this;
  }

  // `data` is quantized to the format (which must encode).
  GgufWriter& add_tensor(std::string_view name, const Shape& shape, const Format& format, std::span<const float> data) {
    ZINC_CHECK(format.quantize && data.size() == static_cast<size_t>(shape.elems()));
    std::string blocks(row_bytes(format, data.size()), '\0');
    format.quantize(data, std::as_writable_bytes(std::span(blocks)));
    return add_tensor(name, shape, format, blocks);
  }

  // `blocks` are stored unchanged.
  GgufWriter& add_tensor(std::string_view name, const Shape& shape, const Format& format, std::string_view blocks) {
    ZINC_CHECK(blocks.size() == row_bytes(format, static_cast<size_t>(shape.elems())));
    GgufTensorRecord record{std::string(name), {}, format.gguf_id, std::string(blocks)};
    for (int i = shape.n_dims() - 1; i >= 0; --i) record.dims.push_back(static_cast<uint64_t>(shape[i]));
    return add_record(std::move(record));
  }

  GgufWriter& add_record(GgufTensorRecord record) {
    tensors_.push_back(std::move(record));
    return *this;
  }

  GgufWriter& set_version(uint32_t version) { return version_ = version, *this; }
  GgufWriter& set_counts(uint64_t n_tensors, uint64_t n_metadata) {  // instead of the actual ones
    claimed_ = {n_tensors, n_metadata};
    return *this;
  }
  // Also written to the metadata.
  GgufWriter& set_alignment(uint32_t alignment) { return alignment_ = alignment, add("general.alignment", alignment); }

  std::string bytes() const { return encode_file(metadata_, n_metadata_, tensors_); }
  void write(const std::filesystem::path& path) const { write_bytes(path, bytes()); }

  // Writes NAME-00001-of-0000N.gguf and so on, with the tensors split in order; all metadata is in the first. Returns
  // the first shard's path. `name` has no suffix.
  std::filesystem::path write_split(const std::filesystem::path& name, int n_shards) const {
    const size_t per_shard = (tensors_.size() + static_cast<size_t>(n_shards) - 1) / static_cast<size_t>(n_shards);
    for (int i = 0; i < n_shards; ++i) {
      GgufWriter keys;
      keys.add("split.no", static_cast<uint16_t>(i)).add("split.count", static_cast<uint16_t>(n_shards));
      keys.add("split.tensors.count", static_cast<int32_t>(tensors_.size()));
      const size_t begin = std::min(tensors_.size(), static_cast<size_t>(i) * per_shard);
      const size_t end = std::min(tensors_.size(), begin + per_shard);
      const std::vector<GgufTensorRecord> part(tensors_.begin() + static_cast<ptrdiff_t>(begin),
                                               tensors_.begin() + static_cast<ptrdiff_t>(end));
      const std::string& head = i == 0 ? metadata_ : std::string();
      write_bytes(shard_path(name, i, n_shards),
                  encode_file(head + keys.metadata_, (i == 0 ? n_metadata_ : 0) + keys.n_metadata_, part));
    }
    return shard_path(name, 0, n_shards);
  }

  static std::filesystem::path shard_path(const std::filesystem::path& name, int shard, int n_shards) {
    return fmt::format("{}-{:05}-of-{:05}.gguf", name.string(), shard + 1, n_shards);
  }

  // The encoding of one number or string, for add_raw().
  template <class T>
  static std::string number(T value) {
    std::string out;
    append_gguf_number(out, value);
    return out;
  }
  static std::string string(std::string_view text) { return number(uint64_t{text.size()}).append(text); }

 private:
  static void append(std::string& out, std::string_view more) { out.append(more); }

  std::string encode_file(const std::string& metadata, uint64_t n_metadata,
                          const std::vector<GgufTensorRecord>& tensors) const {
    std::string out = "GGUF";
    append(out, number(version_));
    append(out, number(claimed_ ? claimed_->first : uint64_t{tensors.size()}));
    append(out, number(claimed_ ? claimed_->second : n_metadata));
    append(out, metadata);
    std::string data;
    for (const GgufTensorRecord& tensor : tensors) {
      append(out, string(tensor.name));
      append(out, number(static_cast<uint32_t>(tensor.dims.size())));
      for (const uint64_t dim : tensor.dims) append(out, number(dim));
      append(out, number(tensor.type));
      append(out, number(tensor.offset.value_or(data.size())));
      append(data, tensor.data);
      pad(data);
    }
    if (!tensors.empty()) pad(out);
    return out + data;
  }

  void pad(std::string& out) const { out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_); }

  static void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ZINC_CHECK(file.good());
  }

  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  uint64_t n_metadata_ = 0;
  std::string metadata_;
  std::vector<GgufTensorRecord> tensors_;
  std::optional<std::pair<uint64_t, uint64_t>> claimed_;
};

}  // namespace zinc
