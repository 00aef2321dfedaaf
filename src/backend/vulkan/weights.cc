#include "backend/vulkan/weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/ceil_div.h"
#include "tensor/half.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kStagingBytes = size_t{32} << 20;
constexpr size_t kSlabBytes = size_t{128} << 20;
constexpr size_t kAlign = 256;

Matrix matrix_layout(const PanelFormat& format, int64_t n_out, int64_t n_in) {
  Matrix m{};
  m.n_in = static_cast<int>(n_in);
  m.n_out = static_cast<int>(n_out);
  m.n_segments = static_cast<int>(ceil_div(n_in, kSegmentElems));
  m.n_splits = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(kMaxSplits, m.n_segments))));
  m.panel_bytes = static_cast<uint64_t>(m.n_segments) * static_cast<uint64_t>(format.segment_bytes());
  m.matrix_bytes = m.panel_bytes * static_cast<uint64_t>(ceil_div(n_out, kPanelRows));
  return m;
}

}  // namespace

struct VulkanWeights::Staging {
  struct StagingBuffer {
    Buffer memory;
    TimelineValue copy_done = 0;  // of the last copy out of it
  };
  Device& device;
  ThreadPool& threads;
  std::array<StagingBuffer, 2> buffers;
  size_t n_acquired = 0;

  // A staging buffer of n_bytes that is no longer in use.
  Result<StagingBuffer*> acquire(size_t n_bytes) {
    StagingBuffer& buffer = buffers[n_acquired++ % 2];
    if (Status s = device.wait(buffer.copy_done); !s.ok()) return s.error();
    if (buffer.memory.size() < n_bytes) {
      ZINC_TRY(memory,
               device.allocate(std::max(n_bytes, 2 * buffer.memory.size()), "weight staging", Memory::readback));
      buffer.memory = std::move(memory);
    }
    return &buffer;
  }
  Status copy_to_device(StagingBuffer& buffer, const Buffer& dst, size_t offset, size_t n_bytes) {
    ZINC_TRY(timeline_value, device.copy(buffer.memory, 0, dst, offset, n_bytes));
    buffer.copy_done = timeline_value;
    return ok_status();
  }
};

Result<std::unique_ptr<VulkanWeights>> VulkanWeights::upload(std::span<const Graph* const> graphs, Device& device,
                                                             ThreadPool& threads,
                                                             const ReleaseFilePages& release_file_pages) {
  auto weights = std::make_unique<VulkanWeights>();
  Staging staging{.device = device, .threads = threads, .buffers = {}};
  for (const Graph* graph : graphs) {
    for (const Node& node : graph->nodes()) {
      const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear;
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!node.in[i] || !graph->info(node.in[i]).is_weight()) continue;
        const ValueInfo& info = graph->info(node.in[i]);
        const bool is_table = node.op == Op::embed;
        const Status added = (multiplies && i == 1) || is_table ? weights->add_matrix(info, is_table, staging)
                                                                : weights->add_vector(info, staging);
        if (!added.ok()) return added.error();
        release_file_pages(info.weight.bytes);
      }
    }
  }
  if (Status s = device.wait_all(); !s.ok()) return s.error();
  return weights;
}

Result<VulkanWeights::SlabRange> VulkanWeights::allocate(size_t n_bytes, const std::string& what, Device& device) {
  n_bytes = (n_bytes + kAlign - 1) / kAlign * kAlign;
  if (slabs_.empty() || n_used_ + n_bytes > slabs_.back().size()) {
    // Large tensors get their own slab; small ones share a slab, no larger than all weights so far.
    const size_t shared = std::clamp(device_bytes_, size_t{1} << 20, kSlabBytes);
    ZINC_TRY(slab, device.allocate(std::max(n_bytes, shared), what));
    slabs_.push_back(std::move(slab));
    n_used_ = 0;
  }
  const SlabRange range{slabs_.size() - 1, n_used_};
  n_used_ += n_bytes;
  device_bytes_ += n_bytes;
  return range;
}

namespace {

// Packs rows of one matrix into panels; one call per panel, from several threads.
struct PanelPacker {
  const Format& from_format;
  const DeviceMatrix& to;
  bool is_dequantized, is_f32;
  const std::byte* rows;  // the matrix's first row in the file

  size_t file_row_bytes() const { return row_bytes(from_format, static_cast<size_t>(to.matrix.n_in)); }
  size_t row_stride() const {
    return is_dequantized ? static_cast<size_t>(to.matrix.n_in) * (is_f32 ? 4 : 2) : file_row_bytes();
  }

  const std::byte* row_of(size_t row, std::vector<float>& floats, std::vector<std::byte>& halves) const {
    const std::byte* file_row_data = rows + row * file_row_bytes();
    if (!is_dequantized) return file_row_data;
    from_format.dequantize({file_row_data, file_row_bytes()}, floats);
    if (is_f32) return reinterpret_cast<const std::byte*>(floats.data());
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t half = float_to_half(floats[i]);
      std::memcpy(halves.data() + 2 * i, &half, sizeof(half));
    }
    return halves.data();
  }

  void pack_panel(size_t panel, std::byte* out) const {
    std::vector<float> floats(is_dequantized ? static_cast<size_t>(to.matrix.n_in) : 0);
    std::vector<std::byte> halves(is_dequantized && !is_f32 ? row_stride() : 0);
    const PanelFormat& format = *to.format;
    std::memset(out, 0, to.matrix.panel_bytes);
    const size_t first = panel * kPanelRows, n_out = static_cast<size_t>(to.matrix.n_out);
    for (size_t r = first; r < std::min(n_out, first + kPanelRows); ++r) {
      const std::byte* row = row_of(r, floats, halves);
      for (int s = 0; s < to.matrix.n_segments; ++s) {
        const int n_elems = std::min(kSegmentElems, to.matrix.n_in - s * kSegmentElems);
        const size_t offset = static_cast<size_t>(s * (kSegmentElems / format.block_elems) * format.block_bytes);
        format.pack(row + offset, n_elems, out + static_cast<size_t>(s) * static_cast<size_t>(format.segment_bytes()),
                    static_cast<int>(r - first));
      }
    }
  }
};

}  // namespace

Status VulkanWeights::add_matrix(const ValueInfo& info, bool is_table, Staging& staging) {
  const PanelFormat* panel = find_panel_format(info.weight.format->name);
  const bool is_dequantized = panel == nullptr;
  if (is_dequantized) panel = find_panel_format(is_table ? "f32" : "f16");
  auto& target = is_dequantized && is_table ? tables_ : matrices_;
  if (target.contains(info.name)) return ok_status();
  const Shape& shape = info.shape;
  DeviceMatrix m{.format = panel, .n_stack = static_cast<int>(shape.n_dims() == 3 ? shape[0] : 1), .matrix = {}};
  m.matrix = matrix_layout(*panel, shape[shape.n_dims() - 2], shape.inner());
  const size_t n_stack = static_cast<size_t>(m.n_stack);
  ZINC_TRY(range, allocate(m.matrix.matrix_bytes * n_stack, info.name, staging.device));
  m.matrix.bytes = address(range);
  const size_t n_panels = m.matrix.matrix_bytes / m.matrix.panel_bytes, n_total_panels = n_panels * n_stack;
  const size_t panels_per_upload = std::max<size_t>(1, kStagingBytes / m.matrix.panel_bytes);
  const size_t matrix_rows = static_cast<size_t>(m.matrix.n_out);
  for (size_t first = 0; first < n_total_panels; first += panels_per_upload) {
    const size_t n = std::min(panels_per_upload, n_total_panels - first);
    ZINC_TRY(buffer, staging.acquire(n * m.matrix.panel_bytes));
    std::byte* out = buffer->memory.as<std::byte>();
    staging.threads.parallel_for(n, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const size_t stack = (first + i) / n_panels, in_matrix = (first + i) % n_panels;
        const std::byte* rows =
            info.weight.bytes.data() +
            stack * matrix_rows * row_bytes(*info.weight.format, static_cast<size_t>(m.matrix.n_in));
        PanelPacker{*info.weight.format, m, is_dequantized, is_table, rows}.pack_panel(in_matrix,
                                                                                       out + i * m.matrix.panel_bytes);
      }
    });
    const size_t offset = range.offset + first * m.matrix.panel_bytes;
    if (Status s = staging.copy_to_device(*buffer, slabs_[range.slab], offset, n * m.matrix.panel_bytes); !s.ok())
      return s;
  }
  target.emplace(info.name, m);
  return ok_status();
}

Status VulkanWeights::add_vector(const ValueInfo& info, Staging& staging) {
  if (vectors_.contains(info.name)) return ok_status();
  std::vector<float> floats(static_cast<size_t>(info.shape.elems()));
  info.weight.format->dequantize(info.weight.bytes, floats);
  const size_t n_bytes = floats.size() * sizeof(float);
  ZINC_TRY(range, allocate(n_bytes, info.name, staging.device));
  ZINC_TRY(buffer, staging.acquire(n_bytes));
  std::memcpy(buffer->memory.as<std::byte>(), floats.data(), n_bytes);
  if (Status s = staging.copy_to_device(*buffer, slabs_[range.slab], range.offset, n_bytes); !s.ok()) return s;
  vectors_.emplace(info.name, address(range));
  host_vectors_.emplace(info.name, std::move(floats));
  return ok_status();
}

const DeviceMatrix* VulkanWeights::matrix(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? nullptr : &found->second;
}

const DeviceMatrix* VulkanWeights::table(const std::string& name) const {
  const auto found = tables_.find(name);
  return found == tables_.end() ? matrix(name) : &found->second;
}

Address VulkanWeights::vector(const std::string& name) const {
  const auto found = vectors_.find(name);
  return found == vectors_.end() ? 0 : found->second;
}

}  // namespace zinc::vulkan
