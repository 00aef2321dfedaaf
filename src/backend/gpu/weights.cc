#include "backend/gpu/weights.h"

#include <cstring>

#include "tensor/half.h"

namespace zinc::gpu {
namespace {

// Tensors up to this size share allocations: a driver may limit their number, and rounds up the size of each.
constexpr size_t kSharedBytes = size_t{1} << 20;
constexpr size_t kTensorAlign = 256;  // of a tensor in a shared allocation

}  // namespace

size_t WeightRows::row_bytes() const {
  return kind_ == Kind::file ? file_row_bytes() : n_in_ * (kind_ == Kind::f32 ? sizeof(float) : sizeof(uint16_t));
}

const std::byte* WeightRows::row(size_t r, std::vector<std::byte>& scratch) const {
  const std::span<const std::byte> stored = from_.bytes.subspan(r * file_row_bytes(), file_row_bytes());
  if (kind_ == Kind::file) return stored.data();
  scratch.resize(n_in_ * (sizeof(float) + sizeof(uint16_t)));  // the floats, then the halves
  const std::span<float> floats(reinterpret_cast<float*>(scratch.data()), n_in_);
  from_.format->dequantize(stored, floats);
  if (kind_ == Kind::f32) return scratch.data();
  std::byte* halves = scratch.data() + floats.size_bytes();
  for (size_t i = 0; i < floats.size(); ++i) {
    const uint16_t half = float_to_half(floats[i]);
    std::memcpy(halves + sizeof(half) * i, &half, sizeof(half));
  }
  return halves;
}

void WeightRows::copy(size_t first, size_t n_rows, std::byte* to) const {
  if (kind_ == Kind::file) {
    std::memcpy(to, from_.bytes.data() + first * row_bytes(), n_rows * row_bytes());
    return;
  }
  std::vector<std::byte> scratch;
  for (size_t r = 0; r < n_rows; ++r) std::memcpy(to + r * row_bytes(), row(first + r, scratch), row_bytes());
}

Result<std::unique_ptr<Weights>> Weights::upload(std::span<const Graph* const> graphs, Device& device,
                                                 WeightUploader& uploader, const ReleaseFilePages& release_file_pages) {
  auto weights = std::make_unique<Weights>();
  for (const Graph* graph : graphs) {
    if (Status s = weights->add_graph(*graph, device, uploader, release_file_pages); !s.ok()) return s.error();
  }
  if (Status s = device.wait_all(); !s.ok()) return s.error();
  return weights;
}

Status Weights::add_graph(const Graph& graph, Device& device, WeightUploader& uploader,
                          const ReleaseFilePages& release) {
  for (const Node& node : graph.nodes()) {
    const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear, is_table = node.op == Op::embed;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!node.in[i] || !graph.info(node.in[i]).is_weight()) continue;
      const ValueInfo& info = graph.info(node.in[i]);
      const Status added = (multiplies && i == 1) || is_table ? add_matrix(info, is_table, device, uploader)
                                                              : add_vector(info, device, uploader);
      if (!added.ok()) return added;
      release(info.weight.bytes);
    }
  }
  return ok_status();
}

Status Weights::add_matrix(const ValueInfo& info, bool is_table, Device& device, WeightUploader& uploader) {
  const PanelFormat* panel = find_panel_format(info.weight.format->name);
  const bool is_dequantized = panel == nullptr || !uploader.has_format(panel->name);
  if (is_dequantized) panel = find_panel_format(is_table ? "f32" : "f16");
  auto& into = is_dequantized && is_table ? tables_ : matrices_;
  if (into.contains(info.name)) return ok_status();
  const Shape& shape = info.shape;
  DeviceMatrix m{panel_layout(*panel, shape[shape.n_dims() - 2], shape.inner(), uploader.pads_last_segment()), panel,
                 static_cast<int>(shape.n_dims() == 3 ? shape[0] : 1)};
  const size_t n_bytes = static_cast<size_t>(m.matrix_bytes) * static_cast<size_t>(m.n_experts);
  ZINC_TRY(range, allocate(n_bytes, info.name, device));
  m.bytes = range.address();
  using Kind = WeightRows::Kind;
  const WeightRows rows(info.weight, m.n_in, !is_dequantized ? Kind::file : is_table ? Kind::f32 : Kind::f16);
  if (Status s = uploader.upload_matrix(rows, m, range); !s.ok()) return s;
  into.emplace(info.name, m);
  return ok_status();
}

Status Weights::add_vector(const ValueInfo& info, Device& device, WeightUploader& uploader) {
  if (vectors_.contains(info.name)) return ok_status();
  std::vector<float> floats(static_cast<size_t>(info.shape.elems()));
  info.weight.format->dequantize(info.weight.bytes, floats);
  ZINC_TRY(range, allocate(floats.size() * sizeof(float), info.name, device));
  const std::vector<float>& kept = host_vectors_.emplace(info.name, std::move(floats)).first->second;
  vectors_.emplace(info.name, range.address());
  return uploader.upload_vector(kept, range);
}

Result<BufferRange> Weights::allocate(size_t n_bytes, const std::string& what, Device& device) {
  n_bytes = (n_bytes + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
  const bool is_shared = n_bytes <= kSharedBytes;
  if (!is_shared || !shared_ || n_shared_used_ + n_bytes > kSharedBytes) {
    ZINC_TRY(buffer, device.allocate(is_shared ? kSharedBytes : n_bytes, what));
    buffers_.push_back(std::make_unique<Buffer>(std::move(buffer)));
    device_bytes_ += buffers_.back()->size();
    if (!is_shared) return BufferRange{buffers_.back().get(), 0};
    shared_ = buffers_.back().get();
    n_shared_used_ = 0;
  }
  const BufferRange range{shared_, n_shared_used_};
  n_shared_used_ += n_bytes;
  return range;
}

const DeviceMatrix* Weights::matrix(const std::string& name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? nullptr : &found->second;
}

const DeviceMatrix* Weights::table(const std::string& name) const {
  const auto found = tables_.find(name);
  return found == tables_.end() ? matrix(name) : &found->second;
}

Address Weights::vector(const std::string& name) const {
  const auto found = vectors_.find(name);
  return found == vectors_.end() ? 0 : found->second;
}

}  // namespace zinc::gpu
