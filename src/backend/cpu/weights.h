// Weights on the CPU. Matrices are packed into panels (backend/cpu/panel.h) if their format has them; otherwise they
// stay in the mapped file and are dequantized row by row. Vectors are f32. Looked up by tensor name, shared by all
// graphs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace zinc::cpu {

const PanelFormat* find_panel_format(const Kernels& kernels, std::string_view name);  // nullptr: no panel format

// A stack of matrices of equal shape (experts), or one.
struct Matrix {
  TensorView view;
  int64_t n_stack = 1, n_out = 0, n_in = 0;
  const PanelFormat* format = nullptr;  // nullptr: not packed
  size_t panels_begin = 0;              // offset in the shared allocation
  uint8_t* panels = nullptr;
  size_t panel_bytes = 0;

  size_t n_panels() const { return static_cast<size_t>((n_out + kPanelRows - 1) / kPanelRows); }  // of one matrix
  ActivationFormat activation_format() const { return format ? format->activation_format : ActivationFormat::f32; }
  const uint8_t* panel(size_t matrix, size_t p) const { return panels + (matrix * n_panels() + p) * panel_bytes; }
};

class CpuWeights final : public DeviceWeights {
 public:
  static Result<std::unique_ptr<CpuWeights>> pack(std::span<const Graph* const> graphs, const Kernels& kernels,
                                                  ThreadPool& threads, AllocateBuffer allocate_buffer,
                                                  const ReleaseFilePages& release_file_pages);
  size_t device_bytes() const override;

  // Called after rows of an embedding table in the mapped file were read. Every 64 rows its file pages are released;
  // otherwise read-ahead around each row would soon load the whole table.
  void note_rows_read(const ValueInfo& table, size_t n_rows) const;

  const Matrix* matrix(std::string_view name) const;              // nullptr: not found
  const std::vector<float>* vector(std::string_view name) const;  // nullptr: not found

 private:
  void add(const Graph& graph, const Kernels& kernels);
  void add_matrix(const ValueInfo& info, const Kernels& kernels);
  Status allocate_panels(AllocateBuffer allocate_buffer);
  void pack_matrices(ThreadPool& threads);
  std::map<std::string, Matrix, std::less<>> matrices_;
  std::map<std::string, std::vector<float>, std::less<>> vectors_;
  ReleaseFilePages release_file_pages_;
  mutable size_t n_rows_read_ = 0;
  AlignedBuffer panels_;  // of all matrices, in the order of use in the graphs
  size_t n_panel_bytes_ = 0;
};

}  // namespace zinc::cpu
