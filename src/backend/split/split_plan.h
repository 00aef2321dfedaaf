// The plans of a graph's stages as one. A step runs stage by stage; the last stage runs on while start() returns, and
// meanwhile the other devices run the next step, unless it needs a token that this one samples: the chunks of a prompt
// do not.
#pragma once

#include <array>
#include <optional>

#include "backend/plan.h"
#include "backend/split/placed_graph.h"
#include "backend/split/split_cache.h"
#include "backend/split/step_result.h"
#include "backend/split/step_rows.h"

namespace zinc::split {

// A stage of routed experts on the GPU whose weights are copied when it runs. No plan: the stage has none.
struct StreamedStage {
  std::unique_ptr<Plan> plan;
  DeviceWeights* weights = nullptr;
};

class SplitPlan final : public Plan {
 public:
  // `plans`, `streamed`: one per stage. `host`: the device whose memory is that of the host, if there is one.
  SplitPlan(const PlacedGraph& placed, SplitCache& cache, std::vector<std::unique_ptr<Plan>> plans,
            std::vector<StreamedStage> streamed, const Bucket& bucket, std::optional<size_t> host);
  size_t device_bytes() const override;
  size_t device_bytes_on(size_t device) const override;
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;
  std::span<const KernelTime> kernel_times() const override { return kernel_times_; }
  Status wait_until_prepared() override;

 private:
  void place_crossing_values();
  size_t host_bytes() const;
  bool passes_through(size_t stage) const;
  bool must_wait_for_previous(const StepInputs& inputs) const;
  float* crossing(Value v) { return buffers_[buffer_of_[static_cast<size_t>(v.id)]].data(); }
  Status run_stages(const StepInputs& in);
  void divide_rows(const StepInputs& in);
  std::span<const PageTable> page_tables_on(size_t device, const StepInputs& in);
  Status load_experts(size_t stage);
  Result<std::span<const float>> run_streamed(size_t stage, const StepInputs& in, std::span<const float> hidden);
  std::span<const float> join_inputs(size_t stage, size_t n_tokens);
  void keep_outputs(size_t stage, std::span<const float> hidden, size_t n_tokens);
  Result<StepOutput> finish_step(StepResult& result);
  void keep_kernel_times(size_t stage, const Plan& plan);

  const PlacedGraph& placed_;
  SplitCache& cache_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<StreamedStage> streamed_;
  Bucket bucket_;
  std::optional<size_t> host_;
  std::vector<TokenId> tokens_;              // of the step, kFromDevice resolved
  std::vector<PageTable> page_tables_;       // of one device
  std::vector<std::vector<float>> buffers_;  // of values that cross a cut: [T, elems]
  std::vector<size_t> buffer_of_;            // by value of the graph
  std::vector<float> joined_;                // the input of a stage
  StepRows streamed_rows_, host_rows_;       // of the step: in streamed stages, computed by the GPU and by the host
  std::vector<float> divided_, merged_;      // the input of a streamed stage, rows of the GPU first; its output
  std::array<StepResult, 2> results_;        // of step k: k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::vector<KernelTime> kernel_times_;
  std::vector<std::vector<int32_t>> kernel_nodes_;  // of kernel_times_
};

}  // namespace zinc::split
