// A memory-mapped and fully validated GGUF file (v2, v3) with all its shards. Immutable; any thread.
// open() checks every offset, size and count against the real file, so later reads cannot leave it.
// Metadata is the first shard's; tensors are those of all shards. Strings and arrays are views into the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/gguf_shard.h"
#include "gguf/gguf_value.h"

namespace zinc {

class GgufFile {
 public:
  // For a split model (NAME-00001-of-0000N.gguf) pass the first shard; the others are in the same folder.
  static Result<GgufFile> open(const std::filesystem::path& first_shard);
  // For tests and fuzzers: one shard in memory, which must outlive the GgufFile.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }  // path of the first shard, for messages
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }  // in file order
  const std::vector<GgufTensor>& tensors() const { return tensors_; }           // in file order, shard after shard
  const std::vector<std::string>& shard_names() const { return shard_names_; }  // paths, at least one
  std::vector<std::span<const std::byte>> shard_bytes() const;                  // as they are mapped
  uint64_t file_bytes() const { return file_bytes_; }                           // of all shards together

  // Drops the pages of `part` of the file, such as a tensor's bytes, once they were packed elsewhere.
  void release_pages(std::span<const std::byte> part) const;
  void release_pages() const;  // all of it

  const GgufValue* find(std::string_view key) const;  // nullptr: absent
  // T: int64_t, double (integers too), bool, std::string_view, and std::vector of these; std::vector<int64_t> also
  // accepts bools as 0 and 1. The error names file, key, expected and found type.
  template <class T>
  Result<T> get(std::string_view key) const;
  template <class T>
  T get_or(std::string_view key, T fallback) const;            // fallback if absent OR of another type
  Result<TensorView> tensor(std::string_view name) const;      // error names file and tensor
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr: absent

 private:
  GgufFile() = default;
  Status add_shard(std::span<const std::byte> bytes, const std::string& name);
  Status map_shard(const std::filesystem::path& path);
  Status map_other_shards(int64_t n_shards);
  Result<std::string> path_prefix(int64_t n_shards) const;
  Status check_next_shard(const GgufShard& shard, std::string_view name, int number) const;

  std::string name_;
  std::vector<MappedFile> mapped_;
  std::vector<std::string> shard_names_;
  uint64_t file_bytes_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> metadata_index_, tensor_index_;
};

}  // namespace zinc
