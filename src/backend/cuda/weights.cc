#include "backend/cuda/weights.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "tensor/half.h"

namespace zinc::cuda {
namespace {

constexpr size_t kStagingBytes = size_t{64} << 20;

simt::Matrix panel_layout(const PanelFormat& format, int64_t n_out, int64_t n_in) {
  simt::Matrix m{};
  m.n_in = static_cast<int>(n_in);
  m.n_out = static_cast<int>(n_out);
  m.n_segments = static_cast<int>(ceil_div(n_in, simt::kSegmentElems));
  const int64_t n_last_inputs = n_in - int64_t{m.n_segments - 1} * simt::kSegmentElems;
  m.n_last_groups = static_cast<int>(ceil_div(n_last_inputs, simt::kGroupElems));
  const int64_t segment_bytes = format.header_bytes + simt::kSegmentGroups * format.group_bytes;
  const int64_t last_segment_bytes = format.header_bytes + m.n_last_groups * format.group_bytes;
  m.panel_bytes = simt::kPanelRows * ((m.n_segments - 1) * segment_bytes + last_segment_bytes);
  m.matrix_bytes = m.panel_bytes * ceil_div(n_out, simt::kPanelRows);
  return m;
}

}  // namespace

// Double-buffered staging memory: the host fills one half while the device packs the other into panels.
struct CudaWeights::Staging {
  struct Half {
    PinnedBuffer host;
    Buffer device;
    Event consumed = nullptr;  // recorded after the pack kernel
    bool is_used = false;
  };
  explicit Staging(Device& d) : device(d) {}
  ~Staging() {
    for (Half& half : halves) {
      if (half.consumed) device.api().destroy_event(half.consumed);
    }
  }
  Status reserve(size_t n_bytes) {  // per half
    if (halves[0].host.size() >= n_bytes) return ok_status();
    if (Status s = device.wait(); !s.ok()) return s;
    for (Half& half : halves) {
      ZINC_TRY(host, device.allocate_pinned(n_bytes));
      ZINC_TRY(buffer, device.allocate(n_bytes, "upload staging"));
      half.host = std::move(host);
      half.device = std::move(buffer);
      if (half.consumed) continue;
      if (Status s = device.check(device.api().create_event(&half.consumed, 0), "creating an event"); !s.ok()) return s;
    }
    return ok_status();
  }
  Result<Half*> next() {
    Half& half = halves[n_acquired++ % 2];
    if (half.is_used) {
      const Status s = device.check(device.api().synchronize_event(half.consumed), "uploading weights");
      if (!s.ok()) return s.error();
    }
    half.is_used = true;
    return &half;
  }
  Device& device;
  Half halves[2];
  size_t n_acquired = 0;
};

Result<std::unique_ptr<CudaWeights>> CudaWeights::upload(std::span<const Graph* const> graphs, Device& device,
                                                         ThreadPool& threads,
                                                         const ReleaseFilePages& release_file_pages) {
  if (Status s = device.make_current(); !s.ok()) return s.error();
  auto weights = std::make_unique<CudaWeights>();
  Staging staging(device);
  for (const Graph* graph : graphs) {
    for (const Node& node : graph->nodes()) {
      const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear;
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!node.in[i] || !graph->info(node.in[i]).is_weight()) continue;
        const ValueInfo& info = graph->info(node.in[i]);
        const bool is_table = node.op == Op::embed;
        const Status added = (multiplies && i == 1) || is_table
                                 ? weights->add_matrix(info, is_table, device, threads, staging)
                                 : weights->add_vector(info, device);
        if (!added.ok()) return added.error();
        release_file_pages(info.weight.bytes);
      }
    }
  }
  if (Status s = device.wait(); !s.ok()) return s.error();
  return weights;
}

// The upload of one tensor into panels, as stored in the file or dequantized.
struct CudaWeights::WeightUpload {
  const TensorView& from;
  const DeviceMatrix& to;
  bool is_dequantized = false, is_f32 = false;  // is_f32: dequantized to f32, else to f16
  Function pack = nullptr;

  size_t n_in() const { return static_cast<size_t>(to.matrix.n_in); }
  size_t file_row_bytes() const { return row_bytes(*from.format, n_in()); }
  size_t staged_row_bytes() const { return is_dequantized ? n_in() * (is_f32 ? 4 : 2) : file_row_bytes(); }

  void fill(size_t first, size_t n, std::byte* out, ThreadPool& threads) const {
    const std::byte* source = from.bytes.data() + first * file_row_bytes();
    threads.parallel_for(n, [&](size_t begin, size_t end) {
      if (!is_dequantized) {
        std::memcpy(out + begin * staged_row_bytes(), source + begin * staged_row_bytes(),
                    (end - begin) * staged_row_bytes());
        return;
      }
      std::vector<float> floats(n_in());
      for (size_t r = begin; r < end; ++r) {
        from.format->dequantize({source + r * file_row_bytes(), file_row_bytes()}, floats);
        std::byte* row = out + r * staged_row_bytes();
        if (is_f32) {
          std::memcpy(row, floats.data(), staged_row_bytes());
          continue;
        }
        for (size_t i = 0; i < floats.size(); ++i) {
          const uint16_t half = float_to_half(floats[i]);
          std::memcpy(row + 2 * i, &half, sizeof(half));
        }
      }
    });
  }

  // Rows first..first+n-1 of matrix `expert`, through one half of the staging memory.
  Status send(size_t expert, size_t first, size_t n, Staging& staging, ThreadPool& threads) const {
    Device& device = staging.device;
    ZINC_TRY(half, staging.next());
    fill(expert * static_cast<size_t>(to.matrix.n_out) + first, n, half->host.as<std::byte>(), threads);
    if (Status s = device.copy_h2d(half->device.address(), half->host.as<std::byte>(), n * staged_row_bytes()); !s.ok())
      return s;
    const long long panel = static_cast<long long>(first / simt::kPanelRows);
    const simt::PackParams params{.from = half->device.as<const unsigned char>(),
                                  .to = to.bytes.as<unsigned char>() +
                                        static_cast<long long>(expert) * to.matrix.matrix_bytes +
                                        panel * to.matrix.panel_bytes,
                                  .row_bytes = static_cast<long long>(staged_row_bytes()),
                                  .panel_bytes = to.matrix.panel_bytes,
                                  .n_rows = static_cast<int>(n),
                                  .n_in = to.matrix.n_in,
                                  .n_segments = to.matrix.n_segments};
    const int64_t n_blocks = ceil_div(static_cast<int64_t>(n) * to.matrix.n_segments, simt::kThreads);
    if (Status s = device.run(Launch::of(pack, params, static_cast<unsigned>(n_blocks))); !s.ok()) return s;
    return device.check(device.api().record_event(half->consumed, device.stream()), "uploading");
  }
};

Status CudaWeights::add_matrix(const ValueInfo& info, bool is_table, Device& device, ThreadPool& threads,
                               Staging& staging) {
  const PanelFormat* panel = find_panel_format(info.weight.format->name);
  const bool is_dequantized = panel == nullptr;
  if (is_dequantized) panel = find_panel_format(is_table ? "f32" : "f16");
  auto& into = is_dequantized && is_table ? tables_ : matrices_;
  if (into.contains(info.name)) return ok_status();

  DeviceMatrix m;
  m.format = panel;
  const Shape& shape = info.shape;
  m.n_experts = static_cast<int>(shape.n_dims() == 3 ? shape[0] : 1);
  m.matrix = panel_layout(*panel, shape[shape.n_dims() - 2], shape.inner());
  ZINC_TRY(bytes, device.allocate(static_cast<size_t>(m.matrix.matrix_bytes) * static_cast<size_t>(m.n_experts),
                                  info.name.c_str()));
  m.bytes = std::move(bytes);
  m.matrix.bytes = m.bytes.as<const unsigned char>();
  ZINC_TRY(pack, device.kernel({"pack", std::string(panel->name)}, "pack"));
  const WeightUpload upload{info.weight, m, is_dequantized, is_table, pack};
  const size_t n_staged_rows =
      std::max<size_t>(1, kStagingBytes / upload.staged_row_bytes() / simt::kPanelRows) * simt::kPanelRows;
  if (Status s = staging.reserve(std::max(kStagingBytes, n_staged_rows * upload.staged_row_bytes())); !s.ok()) return s;
  const size_t n_rows = static_cast<size_t>(m.matrix.n_out);
  for (size_t expert = 0; expert < static_cast<size_t>(m.n_experts); ++expert) {
    for (size_t first = 0; first < n_rows; first += n_staged_rows) {
      const size_t n = std::min(n_staged_rows, n_rows - first);
      if (Status s = upload.send(expert, first, n, staging, threads); !s.ok()) return s;
    }
  }
  device_bytes_ += m.bytes.size();
  into.emplace(info.name, std::move(m));
  return ok_status();
}

Status CudaWeights::add_vector(const ValueInfo& info, Device& device) {
  if (vectors_.contains(info.name)) return ok_status();
  std::vector<float> floats(static_cast<size_t>(info.shape.elems()));
  info.weight.format->dequantize(info.weight.bytes, floats);
  ZINC_TRY(buffer, device.allocate(floats.size() * sizeof(float), info.name.c_str()));
  if (Status s = device.copy_h2d(buffer.address(), floats.data(), buffer.size()); !s.ok()) return s;
  device_bytes_ += buffer.size();
  vectors_.emplace(info.name, std::move(buffer));
  host_vectors_.emplace(info.name, std::move(floats));
  return ok_status();
}

const DeviceMatrix* CudaWeights::matrix(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? nullptr : &found->second;
}

const DeviceMatrix* CudaWeights::table(const std::string& name) const {
  const auto found = tables_.find(name);
  return found == tables_.end() ? matrix(name) : &found->second;
}

const float* CudaWeights::vector(const std::string& name) const {
  const auto found = vectors_.find(name);
  return found == vectors_.end() ? nullptr : found->second.as<const float>();
}

}  // namespace zinc::cuda
