#include "backend/cuda/weights.h"

#include <algorithm>

#include "base/ceil_div.h"

namespace zinc::cuda {
namespace {

constexpr size_t kStagingBytes = kWeightStagingBytes / 2;  // of each half

// Double-buffered staging memory: the host fills one half while the device packs the other into panels.
class Staging {
 public:
  struct Half {
    Buffer host, device;
    Event consumed = nullptr;  // recorded after the pack kernel
    bool is_used = false;
  };
  explicit Staging(Device& device) : device_(device) {}
  ~Staging() {
    for (Half& half : halves_) {
      if (half.consumed) device_.api().destroy_event(half.consumed);
    }
  }
  Status reserve(size_t n_bytes) {  // per half
    if (halves_[0].host.size() >= n_bytes) return ok_status();
    if (Status s = device_.wait(); !s.ok()) return s;
    for (Half& half : halves_) {
      ZINC_TRY(host, device_.allocate(n_bytes, "upload staging", Memory::upload));
      ZINC_TRY(buffer, device_.allocate(n_bytes, "upload staging"));
      half.host = std::move(host);
      half.device = std::move(buffer);
      if (half.consumed) continue;
      if (Status s = device_.check(device_.api().create_event(&half.consumed, 0), "creating an event"); !s.ok())
        return s;
    }
    return ok_status();
  }
  Result<Half*> next() {
    Half& half = halves_[n_acquired_++ % 2];
    if (half.is_used) {
      const Status s = device_.check(device_.api().synchronize_event(half.consumed), "uploading weights");
      if (!s.ok()) return s.error();
    }
    half.is_used = true;
    return &half;
  }

 private:
  Device& device_;
  Half halves_[2];
  size_t n_acquired_ = 0;
};

class Uploader final : public gpu::WeightUploader {
 public:
  Uploader(Device& device, ThreadPool& threads) : device_(device), threads_(threads), staging_(device) {}
  gpu::KernelFormats formats() const override { return kernel_formats(); }
  size_t staging_bytes() const override { return kWeightStagingBytes; }

  Status upload_matrix(const gpu::WeightRows& rows, const gpu::DeviceMatrix& matrix,
                       const gpu::BufferRange& to) override {
    if (Status s = device_.make_current(); !s.ok()) return s;
    ZINC_TRY(pack, device_.kernel({"pack", std::string(matrix.format->name)}, "pack"));
    const size_t n_staged_rows =
        std::max<size_t>(1, kStagingBytes / rows.row_bytes() / simt::kPanelRows) * simt::kPanelRows;
    if (Status s = staging_.reserve(std::max(kStagingBytes, n_staged_rows * rows.row_bytes())); !s.ok()) return s;
    if (matrix.n_in % simt::kSegmentElems != 0 || matrix.n_out % simt::kPanelRows != 0) {  // padding stays zero
      const size_t n_bytes = static_cast<size_t>(matrix.matrix_bytes) * static_cast<size_t>(matrix.n_experts);
      const Code filled = device_.api().fill(to.address(), 0, n_bytes, device_.stream());
      if (Status s = device_.check(filled, "clearing memory"); !s.ok()) return s;
    }
    const size_t n_rows = static_cast<size_t>(matrix.n_out);
    for (size_t expert = 0; expert < static_cast<size_t>(matrix.n_experts); ++expert) {
      const DevicePointer panels = to.address() + expert * static_cast<size_t>(matrix.matrix_bytes);
      for (size_t first = 0; first < n_rows; first += n_staged_rows) {
        const size_t n = std::min(n_staged_rows, n_rows - first);
        const DevicePointer panel = panels + first / simt::kPanelRows * static_cast<size_t>(matrix.panel_bytes);
        if (Status s = pack_rows(rows, expert * n_rows + first, n, matrix, panel, pack); !s.ok()) return s;
      }
    }
    return ok_status();
  }

  // From memory that outlives the upload: Weights keeps the vector.
  Status upload_vector(std::span<const float> vector, const gpu::BufferRange& to) override {
    if (Status s = device_.make_current(); !s.ok()) return s;
    return device_.copy_h2d(to.address(), vector.data(), vector.size_bytes());
  }

 private:
  // Rows first..first+n-1 of the tensor into the panels from `to` on, through one half of the staging memory.
  Status pack_rows(const gpu::WeightRows& rows, size_t first, size_t n, const gpu::DeviceMatrix& matrix,
                   DevicePointer to, Function pack) {
    ZINC_TRY(half, staging_.next());
    std::byte* staged = half->host.host_ptr<std::byte>();
    threads_.parallel_for(
        n, [&](size_t begin, size_t end) { rows.copy(first + begin, end - begin, staged + begin * rows.row_bytes()); });
    if (Status s = device_.copy_h2d(half->device.address(), staged, n * rows.row_bytes()); !s.ok()) return s;
    const simt::PackParams params{.from = half->device.device_ptr<const unsigned char>(),
                                  .to = reinterpret_cast<unsigned char*>(to),
                                  .row_bytes = static_cast<long long>(rows.row_bytes()),
                                  .panel_bytes = matrix.panel_bytes,
                                  .n_rows = static_cast<int>(n),
                                  .n_in = matrix.n_in,
                                  .n_segments = matrix.n_segments};
    const int64_t n_blocks = ceil_div(static_cast<int64_t>(n) * matrix.n_segments, simt::kThreads);
    if (Status s = device_.run({pack, Launch::of(params, static_cast<unsigned>(n_blocks))}); !s.ok()) return s;
    return device_.check(device_.api().record_event(half->consumed, device_.stream()), "uploading");
  }

  Device& device_;
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

}  // namespace zinc::cuda
