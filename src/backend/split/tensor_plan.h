// The plans of a graph's shards as one. All devices run a stage at the same time; then their partial sums are added.
// The last device runs the last stage on while start() returns.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "backend/plan.h"
#include "backend/split/split_cache.h"
#include "backend/split/step_result.h"
#include "graph/shard_graph.h"

namespace zinc::split {

class TensorPlan final : public Plan {
 public:
  // `plans`: [stage][device], nullptr where a device has nothing to do. `host`: the device whose memory is that of the
  // host, if there is one.
  TensorPlan(const Graph& graph, const ShardedGraph& shards, SplitCache& cache,
             std::vector<std::vector<std::unique_ptr<Plan>>> plans, const Bucket& bucket, std::optional<size_t> host);
  size_t device_bytes() const override;
  size_t device_bytes_on(size_t device) const override;
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;
  std::span<const KernelTime> kernel_times() const override { return kernel_times_; }
  Status wait_until_prepared() override;

 private:
  // Rows of a value between stages: the sum of all devices' (device kSum), or what one device passes on to itself.
  struct Buffer {
    std::vector<float> floats;
    size_t last_read = 0, n_elems = 0;  // stage; of a row
  };
  using Key = std::pair<size_t, int32_t>;  // device, value
  static constexpr size_t kSum = kMaxShards;
  void place_crossing_values();
  float* buffer(size_t device, Value v) { return buffers_[buffer_of_.at({device, v.id})].floats.data(); }
  size_t host_bytes() const;
  Status run_stages(const StepInputs& in);
  Status wait_for_stage(size_t stage, std::span<std::span<const float>> hidden);
  std::span<const float> join_inputs(size_t stage, size_t device, size_t n_tokens);
  void keep_outputs(size_t stage, std::span<const std::span<const float>> hidden, size_t n_tokens);
  std::span<const PageTable> page_tables_on(size_t device, const StepInputs& in);
  Result<StepOutput> finish_step(StepResult& result);
  void keep_kernel_times(size_t stage, size_t device);

  const Graph& graph_;
  const ShardedGraph& shards_;
  SplitCache& cache_;
  std::vector<std::vector<std::unique_ptr<Plan>>> plans_;
  Bucket bucket_;
  std::optional<size_t> host_;
  std::vector<TokenId> tokens_;                      // of the step, kFromDevice resolved
  std::vector<std::vector<PageTable>> page_tables_;  // of each device
  std::vector<Buffer> buffers_;
  std::map<Key, size_t> buffer_of_;
  std::vector<std::vector<float>> joined_;  // the input of a stage, of each device
  std::array<StepResult, 2> results_;       // of step k: k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::vector<KernelTime> kernel_times_;
  std::vector<std::vector<int32_t>> kernel_nodes_;        // of kernel_times_
  mutable std::map<int32_t, std::vector<float>> values_;  // value(): what devices have together
};

}  // namespace zinc::split
