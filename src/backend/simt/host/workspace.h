// Device memory of the simt kernels of one plan: in addition to gpu::Workspace the inputs and sampled tokens of the
// step, RoPE tables, split-K partial sums of routers, and the masses of chunks in sampling.
#pragma once

#include <array>
#include <vector>

#include "backend/gpu/workspace.h"
#include "backend/simt/host/kernel_call.h"

namespace zinc::simt::host {

using gpu::Buffer;
using gpu::DeviceMatrix;
using gpu::PanelFormat;

// The files of backend/simt/format and kv_format. `backend`: its name, for errors.
gpu::KernelFormats kernel_formats(std::string_view backend);
simt::Matrix simt_matrix(const DeviceMatrix& matrix);
simt::KvLayer simt_kv_layer(const gpu::KvLayer& layer);
// Blocks of split-KV attention that fill the device: one per SM, and as many to balance them.
inline int split_kv_blocks(const DeviceLimits& device) { return 2 * device.n_sms; }
// Steps whose quantized matmuls all run gemm_small.cu: their activations are quantized before, in mma order.
bool runs_gemm_small(const DeviceLimits& device, int max_tokens);
// Rows of a step that the gemv kernels take: several only with large blocks and clusters that share their rows.
inline int max_gemv_rows(const DeviceLimits& device) {
  constexpr int kMinBlockBytes = 96 << 10;
  return device.has_clusters && decode_block_bytes(device) >= kMinBlockBytes ? simt::kMaxGemvTokens : 1;
}
// Steps in which experts may run gemm_small.cu, if they have few pairs; the activations may then be in any order.
bool may_run_gemm_small_experts(const DeviceLimits& device, int max_tokens);
// Shared memory of gemm.cu.
size_t gemm_shared_bytes(const PanelFormat& format);

// Angles of the step's tokens, computed by a kernel at the start of each step.
struct RopeTable {
  Buffer frequencies, table;
  int n_pairs = 0;
  std::vector<float> amplitudes;  // by RoPE scaling
};

class Workspace final : public gpu::Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> allocate(const Graph& graph, const gpu::Weights& weights,
                                                     const gpu::Cache& cache, gpu::Device& device,
                                                     const DeviceLimits& limits, const Bucket& bucket);

  float* floats(Value v) const { return reinterpret_cast<float*>(address(v)); }
  int* ints(Value v) const { return reinterpret_cast<int*>(address(v)); }
  simt::Q8Activation quantized(const gpu::QuantizedActivation& activation) const;
  bool has_decode_kernels() const { return has_decode_kernels_; }  // its steps run the gemv kernels
  const RopeTable& rope_table(const Node& rope) const { return rope_tables_[rope_index(rope)]; }
  const std::vector<RopeTable>& rope_tables() const { return rope_tables_; }
  const simt::Step& step() const { return step_; }
  simt::ExpertTiles expert_tiles() const;
  // Split-K partial sums of the router logits and of the shared expert's gate.
  float* router_partial() const { return router_partial_.device_ptr<float>(); }
  float* gate_partial() const { return router_partial() + n_router_floats_; }
  int* route_blocks_done() const { return route_blocks_done_.device_ptr<int>(); }  // [1], zero between launches
  const Buffer& upload() const { return upload_; }
  const Buffer& hidden_in() const { return hidden_in_; }  // input hidden states of the step
  const int* sampling_params() const { return upload_.device_ptr<const int>() + layout().sampling; }
  const Buffer& sampled() const { return sampled_; }
  unsigned long long* chunk_masses() const { return chunk_masses_.device_ptr<unsigned long long>(); }

 private:
  Workspace(const Graph& graph, const gpu::Weights& weights, const gpu::Cache& cache, const Bucket& bucket,
            const gpu::WorkspaceOptions& options)
      : gpu::Workspace(graph, weights, cache, bucket, options) {}
  Status allocate_step(gpu::Device& device);
  Status allocate_router(gpu::Device& device);
  Status make_rope_tables(gpu::Device& device);

  DeviceLimits limits_;
  simt::Step step_{};
  bool has_decode_kernels_ = false;
  bool is_in_mma_order_ = false;  // of quantized activations
  size_t n_router_floats_ = 0;
  std::vector<RopeTable> rope_tables_;  // as rope_rotations()
  Buffer router_partial_, route_blocks_done_, upload_, hidden_in_, sampled_, chunk_masses_;
};

}  // namespace zinc::simt::host
