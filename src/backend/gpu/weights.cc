#include "backend/gpu/weights.h"

#include <chrono>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace zinc::gpu {
namespace {

// Tensors share allocations of up to this size, which every Vulkan device can make: a driver may limit their number,
// and rounds up the size of each (CUDA to 2 MiB).
constexpr size_t kMaxSharedBytes = size_t{1} << 30;
constexpr size_t kTensorAlign = 256;

size_t aligned(size_t n_bytes) { return (n_bytes + kTensorAlign - 1) / kTensorAlign * kTensorAlign; }

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
  std::vector<Tensor> tensors = weights->lay_out(graphs, uploader.formats());
  if (Status s = weights->allocate(tensors, device); !s.ok()) return s.error();
  for (const Tensor& tensor : tensors) {
    weights->set_address(tensor);
    if (Status s = weights->upload_tensor(tensor, uploader); !s.ok()) return s.error();
    release_file_pages(tensor.info->weight.bytes);
  }
  if (Status s = device.wait_all(); !s.ok()) return s.error();
  if (weights->device_bytes_ > 0) weights->upload_bytes_ = uploader.staging_bytes();
  return weights;
}

Result<std::unique_ptr<Weights>> Weights::stream(std::span<const Graph* const> graphs, Device& device,
                                                 std::unique_ptr<WeightUploader> uploader) {
  auto weights = std::make_unique<Weights>();
  size_t n_largest = 0;
  for (const Graph* graph : graphs) {
    std::vector<Tensor>& tensors = weights->streamed_[graph];
    tensors = weights->lay_out({&graph, 1}, uploader->formats());
    size_t n_bytes = 0;
    for (Tensor& tensor : tensors) {
      tensor.range.offset = n_bytes;
      n_bytes += aligned(tensor.n_bytes);
    }
    n_largest = std::max(n_largest, n_bytes);
  }
  ZINC_TRY(buffer, device.allocate(n_largest, "weights of a layer's experts"));
  weights->device_bytes_ = buffer.size() + uploader->staging_bytes();
  weights->buffers_.push_back(std::make_unique<Buffer>(std::move(buffer)));
  for (auto& [graph, tensors] : weights->streamed_) {
    for (Tensor& tensor : tensors) {
      tensor.range.buffer = weights->buffers_[0].get();
      weights->set_address(tensor);
    }
  }
  weights->streamer_ = std::move(uploader);
  weights->streaming_device_ = &device;
  if (Status s = device.wait_all(); !s.ok()) return s.error();  // allocate() may have queued a fill of the buffer
  return weights;
}

Status Weights::load(const Graph& graph) {
  ZINC_CHECK(streamer_);
  for (const Tensor& tensor : streamed_.at(&graph)) {
    if (Status s = upload_tensor(tensor, *streamer_); !s.ok()) return s;
  }
  return ok_status();
}

Result<double> Weights::measure_load_seconds(const Graph& graph) {
  if (Status s = streaming_device_->wait_all(); !s.ok()) return s.error();
  const auto begin = std::chrono::steady_clock::now();
  if (Status s = load(graph); !s.ok()) return s.error();
  if (Status s = streaming_device_->wait_all(); !s.ok()) return s.error();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<Weights::Tensor> Weights::lay_out(std::span<const Graph* const> graphs, const KernelFormats& kernels) {
  std::vector<Tensor> tensors;
  for (const Graph* graph : graphs) {
    for (const Node& node : graph->nodes()) {
      const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear, is_table = node.op == Op::embed;
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (!node.in[i] || !graph->info(node.in[i]).is_weight()) continue;
        const ValueInfo& info = graph->info(node.in[i]);
        const std::optional<Tensor> added =
            (multiplies && i == 1) || is_table ? add_matrix(info, is_table, kernels) : add_vector(info);
        if (added) tensors.push_back(*added);
      }
    }
  }
  return tensors;
}

// Nothing if it was added before.
std::optional<Weights::Tensor> Weights::add_matrix(const ValueInfo& info, bool is_table, const KernelFormats& kernels) {
  const PanelFormat* panel = find_panel_format(info.weight.format->name);
  const bool is_dequantized = panel == nullptr || (kernels.has_panels && !kernels.has_panels(panel->name));
  if (is_dequantized) panel = find_panel_format(is_table ? "f32" : "f16");
  auto& into = is_dequantized && is_table ? tables_ : matrices_;
  const Shape& shape = info.shape;
  const DeviceMatrix m{panel_layout(*panel, shape[shape.n_dims() - 2], shape.inner(), kernels.pads_last_segment), panel,
                       static_cast<int>(shape.n_dims() == 3 ? shape[0] : 1)};
  const auto [entry, is_new] = into.try_emplace(info.name, m);
  if (!is_new) return std::nullopt;
  using Kind = WeightRows::Kind;
  return Tensor{.info = &info,
                .matrix = &entry->second,
                .kind = !is_dequantized ? Kind::file
                        : is_table      ? Kind::f32
                                        : Kind::f16,
                .n_bytes = static_cast<size_t>(m.matrix_bytes) * static_cast<size_t>(m.n_experts)};
}

std::optional<Weights::Tensor> Weights::add_vector(const ValueInfo& info) {
  if (!vectors_.try_emplace(info.name, 0).second) return std::nullopt;
  return Tensor{.info = &info,
                .matrix = nullptr,
                .kind = WeightRows::Kind::f32,
                .n_bytes = static_cast<size_t>(info.shape.elems()) * sizeof(float)};
}

// In the order of use; as many tensors as fit share an allocation.
Status Weights::allocate(std::span<Tensor> tensors, Device& device) {
  for (size_t first = 0, end = 0; first < tensors.size(); first = end) {
    size_t n_bytes = 0;
    do {
      tensors[end].range.offset = n_bytes;
      n_bytes += aligned(tensors[end++].n_bytes);
    } while (end < tensors.size() && n_bytes + aligned(tensors[end].n_bytes) <= kMaxSharedBytes);
    ZINC_TRY(buffer, device.allocate(n_bytes, tensors[first].info->name));
    device_bytes_ += buffer.size();
    buffers_.push_back(std::make_unique<Buffer>(std::move(buffer)));
    for (Tensor& tensor : tensors.subspan(first, end - first)) tensor.range.buffer = buffers_.back().get();
  }
  return ok_status();
}

void Weights::set_address(const Tensor& tensor) {
  const ValueInfo& info = *tensor.info;
  if (tensor.matrix) {
    tensor.matrix->bytes = tensor.range.address();
    return;
  }
  std::vector<float>& floats = host_vectors_[info.name];
  floats.resize(static_cast<size_t>(info.shape.elems()));
  info.weight.format->dequantize(info.weight.bytes, floats);
  vectors_[info.name] = tensor.range.address();
}

Status Weights::upload_tensor(const Tensor& tensor, WeightUploader& uploader) {
  const ValueInfo& info = *tensor.info;
  if (!tensor.matrix) return uploader.upload_vector(host_vectors_.at(info.name), tensor.range);
  const WeightRows rows(info.weight, tensor.matrix->n_in, tensor.kind);
  return uploader.upload_matrix(rows, *tensor.matrix, tensor.range);
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
