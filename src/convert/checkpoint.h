// The weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names;
// mapped, validated, immutable. Names are those of the language model alone: "language_model." of multimodal
// checkpoints is removed, and tensors of vision and audio encoders are left out.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "convert/safetensors.h"

namespace zinc {

struct CheckpointTensor {
  SafetensorsTensor tensor;
  std::string file;  // for messages
};

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const CheckpointTensor* find(std::string_view name) const;  // nullptr: absent
  int n_left_out() const { return n_left_out_; }              // tensors of vision and audio encoders
  void release_pages(const CheckpointTensor& tensor) const;   // drops them from memory; they can be read again

 private:
  // expected: the names of all tensors in the file; nullptr: unknown.
  Status add_file(const std::filesystem::path& path, const std::set<std::string>* expected);

  std::vector<MappedFile> files_;
  std::vector<CheckpointTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
  int n_left_out_ = 0;
};

}  // namespace zinc
