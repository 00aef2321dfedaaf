// How a launch of the gemv kernels (simt/params/gemv.h) is split over a GPU: problems, clusters, blocks, warp pairs and
// shared memory. Plain data; needs no GPU, only its limits.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/panel_format.h"
#include "backend/simt/host/kernel_call.h"
#include "backend/simt/params.h"

namespace zinc::simt::host {

// What a launch computes.
struct GemvWork {
  struct Part {  // a matrix, or a GLU's gate and up
    const gpu::PanelFormat* format;
    int n_out;
    bool is_split_k = false;
  };
  int n_in = 0, n_matrices = 1, n_input_rows = 1;  // as in simt::GemvShape
  int n_columns = 1, n_tokens = 1;                 // likewise
  int n_normed_rows = 0;     // that the prologue holds in registers: the rows, or one with its residual
  int n_selected = 0;        // experts, with separate outputs; 0: no experts
  int n_routed_experts = 0;  // the launch routes its token to some of these
  std::vector<Part> parts;
};

class GemvSchedule {
 public:
  GemvSchedule(const GemvWork& work, const DeviceLimits& device);

  const simt::GemvShape& shape() const { return shape_; }
  int64_t n_blocks() const { return n_blocks_; }
  const std::vector<simt::GemvProblem>& problems() const { return problems_; }  // by format
  const std::vector<size_t>& order() const { return order_; }                   // indices of parts, by problem
  int panels_of(const GemvWork::Part& part) const;  // of one expert; of a split-K part: segments of panels
  std::string format_names() const;                 // of the program: "q4_k+q6_k"
  size_t shared_bytes() const;

 private:
  void build_problems();
  void choose_warp_pairs(int block_bytes);
  void choose_cluster_size(int n_sms, int max_cluster_size);
  bool is_one_batch(int cluster_size) const;
  int max_panels() const;  // of one cluster
  // Returns the bytes read by the busiest block.
  int64_t assign_blocks(int n_sms, int cluster_size);
  void size_shared_memory(int block_bytes);
  std::vector<const gpu::PanelFormat*> formats() const;  // without duplicates, sorted by name
  const gpu::PanelFormat& format_of(const simt::GemvProblem& problem) const {
    return *work_.parts[order_[static_cast<size_t>(problem.first_part)]].format;
  }

  const GemvWork work_;
  simt::GemvShape shape_{};
  std::vector<size_t> order_;
  std::vector<simt::GemvProblem> problems_;
  std::vector<int> n_panels_;  // of each problem
  int64_t n_blocks_ = 0;
};

}  // namespace zinc::simt::host
