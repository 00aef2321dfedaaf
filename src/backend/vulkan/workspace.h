// Device memory of one plan on a Vulkan device: in addition to gpu::Workspace the RoPE tables and the counters of
// counter-based synchronization. Memory that changes between steps belongs to the plan.
#pragma once

#include <array>
#include <vector>

#include "backend/gpu/workspace.h"
#include "backend/vulkan/kernels.h"
#include "backend/vulkan/weights.h"

namespace zinc::vulkan {

using gpu::DeviceMatrix;
using gpu::kMaxSplitTokens;
using gpu::PanelFormat;

const gpu::KernelFormats& kernel_formats();  // the files of shader/format and shader/kv_format

// Longest input row that a workgroup can stage in shared memory: as q8, and as floats if shared memory suffices.
inline constexpr int kMaxQuantizedInputs = 16384;
int max_float_inputs(const Capabilities& device);

// Rows of one expert per tile on cooperative matrices: gemm.comp, gemm_planes.comp; on integer dot products in steps of
// few rows, if experts have no more on average.
inline constexpr int kMatrixExpertRows = 64, kDotExpertRows = 4;
// Rows of activations per tile of gemm_small.comp, which runs matmuls of up to kMaxSmallRows rows.
inline constexpr int kSmallTileRows = 16, kMaxSmallRows = 64;
// For dense matrices; fewer rows are faster on integer dot products.
bool uses_gemm_small(int64_t n_rows);

// (cos, sin) of multiples of kFinePositions, and of the positions between them, by RoPE scaling.
struct RopeBuffers {
  Buffer coarse, fine;
  int n_pairs = 0, n_scalings = 1;
};

inline constexpr size_t kCounterBytes = 64;  // one counter per cache line

class Workspace final : public gpu::Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> allocate(const Graph& graph, const gpu::Weights& weights,
                                                     const gpu::Cache& cache, gpu::Device& device,
                                                     const Capabilities& capabilities, const Bucket& bucket);

  Q8Activation q8(const gpu::QuantizedActivation& activation) const;
  size_t n_coarse_positions() const { return max_positions() / kFinePositions + 1; }
  const RopeBuffers& rope_buffers(const Node& rope) const { return rope_buffers_[rope_index(rope)]; }
  // All experts are multiplied on cooperative matrices.
  bool has_matrix_experts() const { return has_matrix_experts_; }
  // The counter of moe_route.comp.
  const Buffer& routed_workgroups() const { return routed_workgroups_; }
  // kCounterBytes per dispatch batch; empty: steps of many tokens, which use barriers.
  const Buffer& sync_counters() const { return sync_counters_; }

 private:
  Workspace(const Graph& graph, const gpu::Weights& weights, const gpu::Cache& cache, const Bucket& bucket,
            const gpu::WorkspaceOptions& options)
      : gpu::Workspace(graph, weights, cache, bucket, options) {}
  size_t max_positions() const;
  Status make_rope_buffers(gpu::Device& device);

  std::vector<RopeBuffers> rope_buffers_;  // as rope_rotations()
  Buffer sync_counters_, routed_workgroups_;
  bool has_matrix_experts_ = false;
};

}  // namespace zinc::vulkan
