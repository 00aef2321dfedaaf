// Weights in GPU memory, looked up by tensor name and shared by all graphs. Matrices are stored in panels
// (panel_format.h). Formats without panels are dequantized: to f16 for matmuls, to f32 for embedding lookups. Small
// vectors are f32.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu/device.h"
#include "backend/gpu/kernel_formats.h"
#include "backend/gpu/panel_format.h"

namespace zinc::gpu {

// Part of a buffer.
struct BufferRange {
  const Buffer* buffer = nullptr;
  size_t offset = 0;
  Address address() const { return buffer->address() + offset; }
};

struct DeviceMatrix : PanelLayout {
  const PanelFormat* format = nullptr;  // on the device
  int n_experts = 1;                    // consecutive matrices: 1, or one per expert
  Address bytes = 0;
};

// The rows of a tensor as they are packed into panels: as in the file, or dequantized.
class WeightRows {
 public:
  enum class Kind : uint8_t { file, f16, f32 };
  WeightRows(const TensorView& from, int n_in, Kind kind)
      : from_(from), n_in_(static_cast<size_t>(n_in)), kind_(kind) {}
  size_t row_bytes() const;
  // Row r of the tensor, all experts counted; in place or in `scratch`.
  const std::byte* row(size_t r, std::vector<std::byte>& scratch) const;
  void copy(size_t first, size_t n_rows, std::byte* to) const;

 private:
  size_t file_row_bytes() const { return zinc::row_bytes(*from_.format, n_in_); }
  const TensorView& from_;
  size_t n_in_;
  Kind kind_;
};

// Packs weights and copies them to the device; both may still be under way when a call returns. Padding becomes zero,
// whatever was in that memory (streamed weights share it).
class WeightUploader {
 public:
  virtual ~WeightUploader() = default;
  virtual KernelFormats formats() const = 0;
  virtual size_t staging_bytes() const = 0;  // of device memory, while weights are uploaded, at most
  virtual Status upload_matrix(const WeightRows& rows, const DeviceMatrix& matrix, const BufferRange& to) = 0;
  virtual Status upload_vector(std::span<const float> vector, const BufferRange& to) = 0;
};

class Weights final : public DeviceWeights {
 public:
  static Result<std::unique_ptr<Weights>> upload(std::span<const Graph* const> graphs, Device& device,
                                                 WeightUploader& uploader, const ReleaseFilePages& release_file_pages);
  // Backend::stream(). REQUIRES: no weight is in two of the graphs. The device must outlive the result.
  static Result<std::unique_ptr<Weights>> stream(std::span<const Graph* const> graphs, Device& device,
                                                 std::unique_ptr<WeightUploader> uploader);
  Status load(const Graph& graph) override;
  Result<double> measure_load_seconds(const Graph& graph) override;
  size_t device_bytes() const override { return device_bytes_; }
  size_t upload_bytes() const override { return upload_bytes_; }

  const DeviceMatrix* matrix(const std::string& name) const;  // of linear and moe_linear; nullptr: none
  const DeviceMatrix* table(const std::string& name) const;   // of embed
  Address vector(const std::string& name) const;              // 0: none
  const std::vector<float>& host_vector(const std::string& name) const { return host_vectors_.at(name); }

 private:
  struct Tensor {
    const ValueInfo* info;
    DeviceMatrix* matrix;  // nullptr: a vector
    WeightRows::Kind kind;
    size_t n_bytes;
    BufferRange range = {};
  };
  std::vector<Tensor> lay_out(std::span<const Graph* const> graphs, const KernelFormats& kernels);
  std::optional<Tensor> add_matrix(const ValueInfo& info, bool is_table, const KernelFormats& kernels);
  std::optional<Tensor> add_vector(const ValueInfo& info);
  Status allocate(std::span<Tensor> tensors, Device& device);
  void set_address(const Tensor& tensor);
  Status upload_tensor(const Tensor& tensor, WeightUploader& uploader);

  std::unordered_map<std::string, DeviceMatrix> matrices_;
  std::unordered_map<std::string, DeviceMatrix> tables_;  // only if stored differently from the matrix of the same name
  std::unordered_map<std::string, Address> vectors_;
  std::unordered_map<std::string, std::vector<float>> host_vectors_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  size_t device_bytes_ = 0, upload_bytes_ = 0;

  std::unordered_map<const Graph*, std::vector<Tensor>> streamed_;
  std::unique_ptr<WeightUploader> streamer_;  // nullptr: all weights stay on the device
  Device* streaming_device_ = nullptr;
};

}  // namespace zinc::gpu
