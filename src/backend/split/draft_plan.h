// A draft graph of a model on several devices: it runs whole on one of them, with its caches. The page tables of its
// steps are those of all devices.
#pragma once

#include <memory>
#include <vector>

#include "backend/plan.h"
#include "backend/split/split_cache.h"

namespace zinc::split {

class DraftPlan final : public Plan {
 public:
  DraftPlan(SplitCache& cache, size_t device, std::unique_ptr<Plan> plan)
      : cache_(cache), device_(device), plan_(std::move(plan)) {}
  size_t device_bytes() const override { return plan_->device_bytes(); }
  size_t device_bytes_on(size_t device) const override { return device == device_ ? plan_->device_bytes() : 0; }
  void start(const StepInputs& inputs) override {
    StepInputs own = inputs;
    page_tables_.clear();
    for (const int group : cache_.groups_on(device_)) {
      page_tables_.push_back(inputs.page_tables[static_cast<size_t>(group)]);
    }
    own.page_tables = page_tables_;
    plan_->start(own);
  }
  Result<StepOutput> wait() override { return plan_->wait(); }
  std::span<const float> value(Value v) const override { return plan_->value(v); }
  std::span<const KernelTime> kernel_times() const override { return plan_->kernel_times(); }
  Status wait_until_prepared() override { return plan_->wait_until_prepared(); }

 private:
  SplitCache& cache_;
  size_t device_;
  std::unique_ptr<Plan> plan_;
  std::vector<PageTable> page_tables_;
};

}  // namespace zinc::split
