#include "backend/cpu/weights.h"

#include <algorithm>
#include <array>

namespace zinc::cpu {

const PanelFormat* find_panel_format(const Kernels& kernels, std::string_view name) {
  for (const PanelFormat* const* f = kernels.panel_formats; *f; ++f) {
    if ((*f)->format == name) return *f;
  }
  return nullptr;
}

namespace {

void pack_panel(const Matrix& matrix, size_t stack, size_t panel, const std::byte* zeros) {
  const Format& format = *matrix.view.format;
  const size_t row_size = row_bytes(format, static_cast<size_t>(matrix.n_in));
  const size_t n_blocks = static_cast<size_t>(matrix.n_in) / matrix.format->block_elems;
  uint8_t* out = matrix.panels + (stack * matrix.n_panels() + panel) * matrix.panel_bytes;
  std::array<const std::byte*, kPanelRows> rows;
  for (size_t b = 0; b < n_blocks; ++b) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      const size_t row = panel * kPanelRows + r;
      const size_t stacked_row = stack * static_cast<size_t>(matrix.n_out) + row;
      const bool is_in_bounds = row < static_cast<size_t>(matrix.n_out);
      rows[r] = is_in_bounds ? matrix.view.bytes.data() + stacked_row * row_size + b * format.block_bytes : zeros;
    }
    matrix.format->pack(rows.data(), out + b * matrix.format->panel_block_bytes);
  }
}

}  // namespace

Result<std::unique_ptr<CpuWeights>> CpuWeights::pack(std::span<const Graph* const> graphs, const Kernels& kernels,
                                                     ThreadPool& threads, AllocateBuffer allocate_buffer,
                                                     const ReleaseFilePages& release_file_pages) {
  auto weights = std::make_unique<CpuWeights>();
  weights->release_file_pages_ = release_file_pages;
  for (const Graph* graph : graphs) weights->add(*graph, kernels);
  if (Status s = weights->allocate_panels(allocate_buffer); !s.ok()) return s.error();
  if (allocate_buffer == AlignedBuffer::allocate) weights->pack_matrices(threads);
  return weights;
}

size_t CpuWeights::device_bytes() const {
  size_t n = panels_.size();
  for (const auto& [name, matrix] : matrices_) n += matrix.format ? 0 : matrix.view.bytes.size();  // read in place
  for (const auto& [name, vector] : vectors_) n += vector.capacity() * sizeof(float);
  return n;
}

void CpuWeights::add(const Graph& graph, const Kernels& kernels) {
  for (const Node& node : graph.nodes()) {
    const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!node.in[i] || !graph.info(node.in[i]).is_weight()) continue;
      const ValueInfo& info = graph.info(node.in[i]);
      if (multiplies && i == 1) {
        add_matrix(info, kernels);
      } else if (node.op != Op::embed && !vectors_.contains(info.name)) {
        std::vector<float> floats(static_cast<size_t>(info.shape.elems()));
        info.weight.format->dequantize(info.weight.bytes, floats);
        vectors_.emplace(info.name, std::move(floats));
      }
    }
  }
}

void CpuWeights::add_matrix(const ValueInfo& info, const Kernels& kernels) {
  if (matrices_.contains(info.name)) return;
  const Shape& shape = info.shape;
  Matrix matrix{.view = info.weight,
                .n_stack = shape.n_dims() == 3 ? shape[0] : 1,
                .n_out = shape[shape.n_dims() - 2],
                .n_in = shape.inner(),
                .format = find_panel_format(kernels, info.weight.format->name)};
  if (matrix.format) {
    matrix.panel_bytes =
        static_cast<size_t>(matrix.n_in) / matrix.format->block_elems * matrix.format->panel_block_bytes;
    matrix.panels_begin = n_panel_bytes_;
    n_panel_bytes_ += (static_cast<size_t>(matrix.n_stack) * matrix.n_panels() * matrix.panel_bytes + 63) / 64 * 64;
  }
  matrices_.emplace(info.name, matrix);
}

// One allocation for all matrices: small ones share huge pages, so streaming them causes few TLB misses.
Status CpuWeights::allocate_panels(AllocateBuffer allocate_buffer) {
  panels_ = allocate_buffer(n_panel_bytes_);
  if (panels_.size() == n_panel_bytes_) return ok_status();
  return fail(ErrorCode::out_of_memory, "out of memory: cannot allocate {} bytes for the weights", n_panel_bytes_);
}

void CpuWeights::pack_matrices(ThreadPool& threads) {
  std::vector<Matrix*> in_file_order;
  for (auto& [name, matrix] : matrices_) {
    if (matrix.format) in_file_order.push_back(&matrix);
  }
  std::ranges::sort(in_file_order, std::less<>(), [](const Matrix* matrix) { return matrix->view.bytes.data(); });
  for (Matrix* packed : in_file_order) {
    Matrix& matrix = *packed;
    matrix.panels = panels_.as<uint8_t>() + matrix.panels_begin;
    const std::vector<std::byte> zeros(matrix.view.format->block_bytes);
    threads.parallel_for(static_cast<size_t>(matrix.n_stack) * matrix.n_panels(), [&](size_t begin, size_t end) {
      for (size_t p = begin; p < end; ++p)
        pack_panel(matrix, p / matrix.n_panels(), p % matrix.n_panels(), zeros.data());
    });
    release_file_pages_(matrix.view.bytes);
  }
}

void CpuWeights::note_rows_read(const ValueInfo& table, size_t n_rows) const {
  constexpr size_t kRowsPerRelease = 64;
  const Matrix* weights = matrix(table.name);
  if (weights && !weights->format) return;  // a matmul reads it in place
  n_rows_read_ += n_rows;
  if (n_rows_read_ < kRowsPerRelease) return;
  n_rows_read_ = 0;
  release_file_pages_(table.weight.bytes);
}

const Matrix* CpuWeights::matrix(std::string_view name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? nullptr : &found->second;
}

const std::vector<float>* CpuWeights::vector(std::string_view name) const {
  const auto found = vectors_.find(name);
  return found == vectors_.end() ? nullptr : &found->second;
}

}  // namespace zinc::cpu
