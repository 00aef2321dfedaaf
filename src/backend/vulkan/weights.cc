#include "backend/vulkan/weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/vulkan/workspace.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kStagingBytes = size_t{32} << 20;  // of each of two buffers

class Staging {
 public:
  struct StagingBuffer {
    Buffer memory;
    TimelineValue copy_done = 0;  // of the last copy out of it
  };
  explicit Staging(Device& device) : device_(device) {}
  // A staging buffer of n_bytes that is no longer in use.
  Result<StagingBuffer*> acquire(size_t n_bytes) {
    StagingBuffer& buffer = buffers_[n_acquired_++ % 2];
    if (Status s = device_.wait(buffer.copy_done); !s.ok()) return s.error();
    if (buffer.memory.size() < n_bytes) {
      const size_t n_grown = std::max(n_bytes, std::min(2 * buffer.memory.size(), kStagingBytes));
      ZINC_TRY(memory, device_.allocate(n_grown, "weight staging", Memory::readback));
      buffer.memory = std::move(memory);
    }
    return &buffer;
  }
  Status copy_to_device(StagingBuffer& buffer, const gpu::BufferRange& to, size_t offset, size_t n_bytes) {
    ZINC_TRY(timeline_value, device_.copy(buffer.memory, 0, *to.buffer, to.offset + offset, n_bytes));
    buffer.copy_done = timeline_value;
    return ok_status();
  }

 private:
  Device& device_;
  std::array<StagingBuffer, 2> buffers_;
  size_t n_acquired_ = 0;
};

// Packs panel `panel`, counted over all experts.
void pack_panel(const gpu::WeightRows& rows, const gpu::DeviceMatrix& matrix, size_t panel, std::byte* out) {
  std::memset(out, 0, static_cast<size_t>(matrix.panel_bytes));
  const gpu::PanelFormat& format = *matrix.format;
  const size_t n_panels = static_cast<size_t>(matrix.matrix_bytes / matrix.panel_bytes);
  const size_t n_out = static_cast<size_t>(matrix.n_out), first = panel % n_panels * kPanelRows;
  std::vector<std::byte> scratch;
  for (size_t r = first; r < std::min(n_out, first + kPanelRows); ++r) {
    const std::byte* row = rows.row(panel / n_panels * n_out + r, scratch);
    for (int s = 0; s < matrix.n_segments; ++s) {
      const int n_elems = std::min(kSegmentElems, matrix.n_in - s * kSegmentElems);
      const size_t offset = static_cast<size_t>(s * (kSegmentElems / format.block_elems) * format.block_bytes);
      format.pack(row + offset, n_elems, out + static_cast<size_t>(s) * static_cast<size_t>(format.segment_bytes()),
                  static_cast<int>(r - first));
    }
  }
}

class Uploader final : public gpu::WeightUploader {
 public:
  Uploader(Device& device, ThreadPool& threads) : device_(device), threads_(threads), staging_(device) {}
  gpu::KernelFormats formats() const override { return kernel_formats(); }
  size_t staging_bytes() const override { return weight_staging_bytes(device_); }

  Status upload_matrix(const gpu::WeightRows& rows, const gpu::DeviceMatrix& matrix,
                       const gpu::BufferRange& to) override {
    const size_t panel_bytes = static_cast<size_t>(matrix.panel_bytes);
    const size_t n_panels =
        static_cast<size_t>(matrix.matrix_bytes) / panel_bytes * static_cast<size_t>(matrix.n_experts);
    const size_t n_staged = std::max<size_t>(1, kStagingBytes / panel_bytes);
    for (size_t first = 0; first < n_panels; first += n_staged) {
      const size_t n = std::min(n_staged, n_panels - first);
      ZINC_TRY(buffer, staging_.acquire(n * panel_bytes));
      std::byte* out = buffer->memory.host_ptr<std::byte>();
      threads_.parallel_for(n, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) pack_panel(rows, matrix, first + i, out + i * panel_bytes);
      });
      if (Status s = staging_.copy_to_device(*buffer, to, first * panel_bytes, n * panel_bytes); !s.ok()) return s;
    }
    return ok_status();
  }

  Status upload_vector(std::span<const float> vector, const gpu::BufferRange& to) override {
    ZINC_TRY(buffer, staging_.acquire(vector.size_bytes()));
    std::memcpy(buffer->memory.host_ptr<std::byte>(), vector.data(), vector.size_bytes());
    return staging_.copy_to_device(*buffer, to, 0, vector.size_bytes());
  }

 private:
  const Device& device_;
  ThreadPool& threads_;
  Staging staging_;
};

}  // namespace

std::unique_ptr<gpu::WeightUploader> make_weight_uploader(Device& device, ThreadPool& threads) {
  return std::make_unique<Uploader>(device, threads);
}

Result<std::unique_ptr<gpu::Weights>> upload_weights(std::span<const Graph* const> graphs, Device& device,
                                                     ThreadPool& threads, const ReleaseFilePages& release_file_pages) {
  Uploader uploader(device, threads);
  return gpu::Weights::upload(graphs, device, uploader, release_file_pages);
}

size_t weight_staging_bytes(const Device& device) {
  return device.is_on_device(Memory::readback) ? 2 * kStagingBytes : 0;
}

int k_splits(const gpu::DeviceMatrix& matrix) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(kMaxSplits, matrix.n_segments))));
}

Matrix shader_matrix(const gpu::DeviceMatrix& matrix) {
  return {.bytes = matrix.bytes,
          .panel_bytes = static_cast<uint64_t>(matrix.panel_bytes),
          .matrix_bytes = static_cast<uint64_t>(matrix.matrix_bytes),
          .n_in = matrix.n_in,
          .n_out = matrix.n_out,
          .n_segments = matrix.n_segments,
          .n_splits = k_splits(matrix)};
}

}  // namespace zinc::vulkan
