// Weights on the CPU: matrices packed into panels (backend/cpu/panel.h) where a panel format exists, left in the mapped
// file and decoded row by row where none does; small vectors as floats. Found by tensor name, shared by all graphs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace zinc::cpu {

const PanelFormat* find_panel_format(const Kernels& kernels, std::string_view name);  // nullptr: it has none

// A stack of matrices of equal shape (experts), or one.
struct Matrix {
  TensorView view;
  int64_t n_stack = 1, n_out = 0, n_in = 0;
  const PanelFormat* format = nullptr;  // nullptr: not packed
  size_t panels_begin = 0;              // in the one allocation of all matrices
  uint8_t* panels = nullptr;
  size_t panel_bytes = 0;

  size_t n_panels() const { return static_cast<size_t>((n_out + kPanelRows - 1) / kPanelRows); }  // of one matrix
  ColumnKind column_kind() const { return format ? format->column_kind : ColumnKind::f32; }
  const uint8_t* panel(size_t matrix, size_t p) const { return panels + (matrix * n_panels() + p) * panel_bytes; }
};

class CpuWeights final : public DeviceWeights {
 public:
  static Result<std::unique_ptr<CpuWeights>> pack(std::span<const Graph* const> graphs, const Kernels& kernels,
                                                  ThreadPool& threads, const DoneWith& done_with);
  size_t device_bytes() const override { return panels_.size(); }

  // Rows of a table that stays in the mapped file were read: every so many, its pages are given back. What is mapped
  // around each row would be the whole table before long.
  void note_rows_read(const ValueInfo& table, size_t n_rows) const;

  const Matrix* matrix(std::string_view name) const;              // nullptr: not one
  const std::vector<float>* vector(std::string_view name) const;  // nullptr: not one

 private:
  void add(const Graph& graph, const Kernels& kernels);
  void add_matrix(const ValueInfo& info, const Kernels& kernels);
  Status pack_matrices(ThreadPool& threads);
  std::map<std::string, Matrix, std::less<>> matrices_;
  std::map<std::string, std::vector<float>, std::less<>> vectors_;
  DoneWith done_with_;
  mutable size_t n_rows_read_ = 0;
  AlignedBuffer panels_;  // of all matrices, in the order in which the graphs use them
  size_t n_panel_bytes_ = 0;
};

}  // namespace zinc::cpu
