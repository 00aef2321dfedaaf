#include "backend/vulkan/weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "tensor/half.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kStagingBytes = size_t{32} << 20;
constexpr size_t kSlabBytes = size_t{128} << 20;
constexpr size_t kAlign = 256;

int div_up(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

Matrix lay_out(const PanelFormat& format, int64_t n_out, int64_t n_in) {
  Matrix m{};
  m.n_in = static_cast<int>(n_in);
  m.n_out = static_cast<int>(n_out);
  m.n_segments = div_up(n_in, kSegmentElems);
  m.n_splits = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(kMaxSplits, m.n_segments))));
  m.panel_bytes = static_cast<uint64_t>(m.n_segments) * static_cast<uint64_t>(format.segment_bytes());
  m.matrix_bytes = m.panel_bytes * static_cast<uint64_t>(div_up(n_out, kPanelRows));
  return m;
}

}  // namespace

struct VulkanWeights::Staging {
  struct Half {
    Buffer memory;
    Ticket emptied = 0;
  };
  Device& device;
  ThreadPool& threads;
  std::array<Half, 2> halves;
  size_t n_given = 0;

  // Memory of n_bytes that nobody uses any more, zeroed.
  Result<Half*> next(size_t n_bytes) {
    Half& half = halves[n_given++ % 2];
    if (Status s = device.wait(half.emptied); !s.ok()) return s.error();
    if (half.memory.size() < n_bytes) {
      ZINC_TRY(memory, device.allocate(std::max(n_bytes, 2 * half.memory.size()), "uploading", Memory::readback));
      half.memory = std::move(memory);
    }
    return &half;
  }
  Status send(Half& half, const Buffer& to, size_t at, size_t n_bytes) {
    ZINC_TRY(ticket, device.copy(half.memory, 0, to, at, n_bytes));
    half.emptied = ticket;
    return ok_status();
  }
};

Result<std::unique_ptr<VulkanWeights>> VulkanWeights::upload(std::span<const Graph* const> graphs, Device& device,
                                                             ThreadPool& threads, const DoneWith& done_with) {
  auto weights = std::make_unique<VulkanWeights>();
  Staging staging{.device = device, .threads = threads, .halves = {}};
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
        done_with(info.weight.bytes);
      }
    }
  }
  if (Status s = device.wait_all(); !s.ok()) return s.error();
  return weights;
}

Result<VulkanWeights::Place> VulkanWeights::take(size_t n_bytes, const std::string& what, Device& device) {
  n_bytes = (n_bytes + kAlign - 1) / kAlign * kAlign;
  if (slabs_.empty() || n_used_ + n_bytes > slabs_.back().size()) {
    // A large tensor has a slab of its own; small ones share, in one no larger than there are weights so far.
    const size_t shared = std::clamp(device_bytes_, size_t{1} << 20, kSlabBytes);
    ZINC_TRY(slab, device.allocate(std::max(n_bytes, shared), what));
    slabs_.push_back(std::move(slab));
    n_used_ = 0;
  }
  const Place place{slabs_.size() - 1, n_used_};
  n_used_ += n_bytes;
  device_bytes_ += n_bytes;
  return place;
}

namespace {

// Some rows of one matrix into panels, by all threads: one panel each.
struct Packing {
  const Format& from_format;
  const DeviceMatrix& to;
  bool is_decoded, is_f32;
  const std::byte* rows;  // the matrix's first row in the file

  size_t file_row() const { return row_bytes(from_format, static_cast<size_t>(to.matrix.n_in)); }
  size_t row_step() const { return is_decoded ? static_cast<size_t>(to.matrix.n_in) * (is_f32 ? 4 : 2) : file_row(); }

  const std::byte* row_of(size_t row, std::vector<float>& floats, std::vector<std::byte>& decoded) const {
    const std::byte* at = rows + row * file_row();
    if (!is_decoded) return at;
    from_format.decode({at, file_row()}, floats);
    if (is_f32) return reinterpret_cast<const std::byte*>(floats.data());
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t half = float_to_half(floats[i]);
      std::memcpy(decoded.data() + 2 * i, &half, sizeof(half));
    }
    return decoded.data();
  }

  void pack_panel(size_t panel, std::byte* out) const {
    std::vector<float> floats(is_decoded ? static_cast<size_t>(to.matrix.n_in) : 0);
    std::vector<std::byte> decoded(is_decoded && !is_f32 ? row_step() : 0);
    const PanelFormat& format = *to.format;
    std::memset(out, 0, to.matrix.panel_bytes);
    const size_t first = panel * kPanelRows, n_out = static_cast<size_t>(to.matrix.n_out);
    for (size_t r = first; r < std::min(n_out, first + kPanelRows); ++r) {
      const std::byte* row = row_of(r, floats, decoded);
      for (int s = 0; s < to.matrix.n_segments; ++s) {
        const int n_elems = std::min(kSegmentElems, to.matrix.n_in - s * kSegmentElems);
        const size_t at = static_cast<size_t>(s * (kSegmentElems / format.block_elems) * format.block_bytes);
        format.pack(row + at, n_elems, out + static_cast<size_t>(s) * static_cast<size_t>(format.segment_bytes()),
                    static_cast<int>(r - first));
      }
    }
  }
};

}  // namespace

Status VulkanWeights::add_matrix(const ValueInfo& info, bool is_table, Staging& staging) {
  const PanelFormat* panel = find_panel_format(info.weight.format->name);
  const bool is_decoded = panel == nullptr;
  if (is_decoded) panel = find_panel_format(is_table ? "f32" : "f16");
  auto& into = is_decoded && is_table ? tables_ : matrices_;
  if (into.contains(info.name)) return ok_status();
  const Shape& shape = info.shape;
  DeviceMatrix m{.format = panel, .n_stack = static_cast<int>(shape.n_dims() == 3 ? shape[0] : 1), .matrix = {}};
  m.matrix = lay_out(*panel, shape[shape.n_dims() - 2], shape.inner());
  const size_t n_stack = static_cast<size_t>(m.n_stack);
  ZINC_TRY(place, take(m.matrix.matrix_bytes * n_stack, info.name, staging.device));
  m.matrix.bytes = address(place);
  const size_t n_panels = m.matrix.matrix_bytes / m.matrix.panel_bytes, all = n_panels * n_stack;
  const size_t at_once = std::max<size_t>(1, kStagingBytes / m.matrix.panel_bytes);
  const size_t matrix_rows = static_cast<size_t>(m.matrix.n_out);
  for (size_t first = 0; first < all; first += at_once) {
    const size_t n = std::min(at_once, all - first);
    ZINC_TRY(half, staging.next(n * m.matrix.panel_bytes));
    std::byte* out = half->memory.as<std::byte>();
    staging.threads.parallel_for(n, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const size_t stack = (first + i) / n_panels, in_matrix = (first + i) % n_panels;
        const std::byte* rows =
            info.weight.bytes.data() +
            stack * matrix_rows * row_bytes(*info.weight.format, static_cast<size_t>(m.matrix.n_in));
        Packing{*info.weight.format, m, is_decoded, is_table, rows}.pack_panel(in_matrix,
                                                                               out + i * m.matrix.panel_bytes);
      }
    });
    const size_t at = place.at + first * m.matrix.panel_bytes;
    if (Status s = staging.send(*half, slabs_[place.slab], at, n * m.matrix.panel_bytes); !s.ok()) return s;
  }
  into.emplace(info.name, m);
  return ok_status();
}

Status VulkanWeights::add_vector(const ValueInfo& info, Staging& staging) {
  if (vectors_.contains(info.name)) return ok_status();
  std::vector<float> floats(static_cast<size_t>(info.shape.elems()));
  info.weight.format->decode(info.weight.bytes, floats);
  const size_t n_bytes = floats.size() * sizeof(float);
  ZINC_TRY(place, take(n_bytes, info.name, staging.device));
  ZINC_TRY(half, staging.next(n_bytes));
  std::memcpy(half->memory.as<std::byte>(), floats.data(), n_bytes);
  if (Status s = staging.send(*half, slabs_[place.slab], place.at, n_bytes); !s.ok()) return s;
  vectors_.emplace(info.name, address(place));
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
