#include "backend/cuda/weights.h"

#include <algorithm>

#include "tensor/half.h"

namespace zinc::cuda {
namespace {

constexpr size_t kStagingBytes = size_t{64} << 20;

int div_up(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

simt::Matrix lay_out(const PanelFormat& format, int64_t n_out, int64_t n_in) {
  simt::Matrix m{};
  m.n_in = static_cast<int>(n_in);
  m.n_out = static_cast<int>(n_out);
  m.n_segments = div_up(n_in, simt::kSegmentElems);
  const int64_t in_last = n_in - int64_t{m.n_segments - 1} * simt::kSegmentElems;
  m.n_last_groups = div_up(in_last, simt::kGroupElems);
  const int64_t whole = format.header_bytes + simt::kSegmentGroups * format.group_bytes;
  const int64_t last = format.header_bytes + m.n_last_groups * format.group_bytes;
  m.panel_bytes = simt::kPanelRows * ((m.n_segments - 1) * whole + last);
  m.matrix_bytes = m.panel_bytes * div_up(n_out, simt::kPanelRows);
  return m;
}

}  // namespace

// Two halves that are filled by the host and emptied by the device in turn.
struct CudaWeights::Staging {
  struct Half {
    PinnedBuffer host;
    Buffer device;
    Event emptied = nullptr;
    bool is_used = false;
  };
  explicit Staging(Device& d) : device(d) {}
  ~Staging() {
    for (Half& half : halves) {
      if (half.emptied) device.api().destroy_event(half.emptied);
    }
  }
  Status reserve(size_t n_bytes) {  // of each half
    if (halves[0].host.size() >= n_bytes) return ok_status();
    if (Status s = device.wait(); !s.ok()) return s;
    for (Half& half : halves) {
      ZINC_TRY(host, device.allocate_pinned(n_bytes));
      ZINC_TRY(room, device.allocate(n_bytes, "uploading"));
      half.host = std::move(host);
      half.device = std::move(room);
      if (half.emptied) continue;
      if (Status s = device.check(device.api().create_event(&half.emptied, 0), "making an event"); !s.ok()) return s;
    }
    return ok_status();
  }
  Result<Half*> next() {
    Half& half = halves[n_given++ % 2];
    if (half.is_used) {
      const Status s = device.check(device.api().synchronize_event(half.emptied), "uploading weights");
      if (!s.ok()) return s.error();
    }
    half.is_used = true;
    return &half;
  }
  Device& device;
  Half halves[2];
  size_t n_given = 0;
};

Result<std::unique_ptr<CudaWeights>> CudaWeights::upload(std::span<const Graph* const> graphs, Device& device,
                                                         ThreadPool& threads, const DoneWith& done_with) {
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
        done_with(info.weight.bytes);
      }
    }
  }
  if (Status s = device.wait(); !s.ok()) return s.error();
  return weights;
}

// One tensor on its way into panels, as it is or decoded.
struct CudaWeights::Journey {
  const TensorView& from;
  const DeviceMatrix& to;
  bool is_decoded = false, is_f32 = false;  // decoded: to f32, else to f16
  Function pack = nullptr;

  size_t n_in() const { return static_cast<size_t>(to.matrix.n_in); }
  size_t file_row() const { return row_bytes(*from.format, n_in()); }
  size_t sent_row() const { return is_decoded ? n_in() * (is_f32 ? 4 : 2) : file_row(); }

  void fill(size_t first, size_t n, std::byte* out, ThreadPool& threads) const {
    const std::byte* source = from.bytes.data() + first * file_row();
    threads.parallel_for(n, [&](size_t begin, size_t end) {
      if (!is_decoded) {
        std::memcpy(out + begin * sent_row(), source + begin * sent_row(), (end - begin) * sent_row());
        return;
      }
      std::vector<float> floats(n_in());
      for (size_t r = begin; r < end; ++r) {
        from.format->decode({source + r * file_row(), file_row()}, floats);
        std::byte* row = out + r * sent_row();
        if (is_f32) {
          std::memcpy(row, floats.data(), sent_row());
          continue;
        }
        for (size_t i = 0; i < floats.size(); ++i) {
          const uint16_t half = float_to_half(floats[i]);
          std::memcpy(row + 2 * i, &half, sizeof(half));
        }
      }
    });
  }

  // Rows first..first+n-1 of matrix `stack`, through one half of the staging memory.
  Status send(size_t stack, size_t first, size_t n, Staging& staging, ThreadPool& threads) const {
    Device& device = staging.device;
    ZINC_TRY(half, staging.next());
    fill(stack * static_cast<size_t>(to.matrix.n_out) + first, n, half->host.as<std::byte>(), threads);
    if (Status s = device.copy_in(half->device.address(), half->host.as<std::byte>(), n * sent_row()); !s.ok())
      return s;
    const long long panel = static_cast<long long>(first / simt::kPanelRows);
    const simt::PackParams params{.from = half->device.as<const unsigned char>(),
                                  .to = to.bytes.as<unsigned char>() +
                                        static_cast<long long>(stack) * to.matrix.matrix_bytes +
                                        panel * to.matrix.panel_bytes,
                                  .row_bytes = static_cast<long long>(sent_row()),
                                  .panel_bytes = to.matrix.panel_bytes,
                                  .n_rows = static_cast<int>(n),
                                  .n_in = to.matrix.n_in,
                                  .n_segments = to.matrix.n_segments};
    const int n_blocks = div_up(static_cast<int64_t>(n) * to.matrix.n_segments, simt::kThreads);
    if (Status s = device.run(Launch::of(pack, params, static_cast<unsigned>(n_blocks))); !s.ok()) return s;
    return device.check(device.api().record_event(half->emptied, device.stream()), "uploading");
  }
};

Status CudaWeights::add_matrix(const ValueInfo& info, bool is_table, Device& device, ThreadPool& threads,
                               Staging& staging) {
  const PanelFormat* panel = find_panel_format(info.weight.format->name);
  const bool is_decoded = panel == nullptr;
  if (is_decoded) panel = find_panel_format(is_table ? "f32" : "f16");
  auto& into = is_decoded && is_table ? tables_ : matrices_;
  if (into.contains(info.name)) return ok_status();

  DeviceMatrix m;
  m.format = panel;
  const Shape& shape = info.shape;
  m.n_stack = static_cast<int>(shape.n_dims() == 3 ? shape[0] : 1);
  m.matrix = lay_out(*panel, shape[shape.n_dims() - 2], shape.inner());
  ZINC_TRY(bytes, device.allocate(static_cast<size_t>(m.matrix.matrix_bytes) * static_cast<size_t>(m.n_stack),
                                  info.name.c_str()));
  m.bytes = std::move(bytes);
  m.matrix.bytes = m.bytes.as<const unsigned char>();
  ZINC_TRY(pack, device.kernel({"pack", std::string(panel->name)}, "pack"));
  const Journey journey{info.weight, m, is_decoded, is_table, pack};
  const size_t n_at_once =
      std::max<size_t>(1, kStagingBytes / journey.sent_row() / simt::kPanelRows) * simt::kPanelRows;
  if (Status s = staging.reserve(std::max(kStagingBytes, n_at_once * journey.sent_row())); !s.ok()) return s;
  const size_t n_rows = static_cast<size_t>(m.matrix.n_out);
  for (size_t stack = 0; stack < static_cast<size_t>(m.n_stack); ++stack) {
    for (size_t first = 0; first < n_rows; first += n_at_once) {
      const size_t n = std::min(n_at_once, n_rows - first);
      if (Status s = journey.send(stack, first, n, staging, threads); !s.ok()) return s;
    }
  }
  device_bytes_ += m.bytes.size();
  into.emplace(info.name, std::move(m));
  return ok_status();
}

Status CudaWeights::add_vector(const ValueInfo& info, Device& device) {
  if (vectors_.contains(info.name)) return ok_status();
  std::vector<float> floats(static_cast<size_t>(info.shape.elems()));
  info.weight.format->decode(info.weight.bytes, floats);
  ZINC_TRY(buffer, device.allocate(floats.size() * sizeof(float), info.name.c_str()));
  if (Status s = device.copy_in(buffer.address(), floats.data(), buffer.size()); !s.ok()) return s;
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
