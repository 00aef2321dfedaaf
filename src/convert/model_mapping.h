// Builds the description of a GGUF file from a checkpoint: which metadata, which tensors, and from what. Keeps the
// first error, so that architecture files have no error handling; the caller checks finish() once. Every tensor of the
// checkpoint must be used or ignored: one that is neither means that the model has a part which would be lost.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/checkpoint_config.h"
#include "convert/output_tensor.h"
#include "gguf/gguf_writer.h"

namespace zinc {

// How a tensor differs from the checkpoint's.
struct TensorOptions {
  std::vector<int64_t> rows = {}, columns = {};  // as in OutputTensor; a vector has one row
  void (*transform)(std::span<float>) = nullptr;
  bool transposed = false;
  std::optional<Shape> shape = {};  // checked against the number of elements
};

class ModelMapping {
 public:
  // gguf_name: of the architecture, the prefix of its keys. format: of the matrices.
  ModelMapping(const Checkpoint& checkpoint, CheckpointConfig config, std::string_view gguf_name, const Format& format);

  CheckpointConfig& config() { return config_; }
  GgufHeader& header() { return header_; }
  // Sets <architecture>.<key>.
  template <class T>
  void set(std::string_view key, const T& value) {
    header_.set(gguf_name_ + "." + std::string(key), value);
  }
  void set_count(std::string_view key, int64_t count) { set(key, static_cast<uint32_t>(count)); }
  void set_real(std::string_view key, double value) { set(key, static_cast<float>(value)); }

  bool has(std::string_view source) const { return checkpoint_.find(source) != nullptr; }
  // Shape of a tensor of the checkpoint; empty if it is absent or has no elements.
  std::vector<int64_t> shape_of(std::string_view source) const;
  void add(std::string_view name, std::string_view source, TensorOptions options = {});  // required
  void add_if_present(std::string_view name, std::string_view source, TensorOptions options = {});
  void add_stacked(std::string_view name, std::span<const std::string> sources);  // [sources, rows, columns]
  // blocks [n, rows, blocks, 16] and scales [n, rows, blocks] as [n, output rows, 32 x blocks].
  void add_mxfp4(std::string_view name, std::string_view blocks, std::string_view scales, std::vector<int64_t> rows);
  void add_values(std::string_view name, std::vector<float> values);
  void ignore(std::string_view source);  // if present

  void fail_with(Error error);  // keeps the first error
  bool has_failed() const { return !status_.ok(); }
  template <class... Args>
  void unsupported(fmt::format_string<Args...> text, Args&&... args) {
    fail_with(fail(ErrorCode::unsupported, "{}: {}", config_.name(), fmt::format(text, std::forward<Args>(args)...)));
  }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  // The first error, if there is one; else checks that no tensor was forgotten.
  Status finish();
  std::vector<OutputTensor>& tensors() { return tensors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool has_mxfp4() const { return has_mxfp4_; }

 private:
  const CheckpointTensor* use(std::string_view source);  // an error if it is absent
  std::optional<SourceMatrix> matrix(const CheckpointTensor& tensor);
  bool find_blocks(const CheckpointTensor& weight, SourceMatrix& source);
  void append(OutputTensor tensor);
  const Format& format_of(std::string_view name, const Shape& shape) const;
  Error bad_shape(const CheckpointTensor& tensor, std::string_view expected) const;

  const Checkpoint& checkpoint_;
  CheckpointConfig config_;
  std::string gguf_name_;
  const Format& format_;
  GgufHeader header_;
  std::vector<OutputTensor> tensors_;
  std::unordered_set<std::string> used_, names_;
  std::vector<std::string> warnings_;
  bool has_mxfp4_ = false;
  Status status_ = ok_status();
};

}  // namespace zinc
