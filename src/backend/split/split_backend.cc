#include "backend/split/split_backend.h"

#include <numeric>

#include "backend/split/split_cache.h"
#include "backend/split/split_plan.h"

namespace zinc::split {
namespace {

class SplitWeights final : public DeviceWeights {
 public:
  explicit SplitWeights(std::vector<std::unique_ptr<DeviceWeights>> parts) : parts_(std::move(parts)) {}
  size_t device_bytes() const override { return sum(&DeviceWeights::device_bytes); }
  size_t upload_bytes() const override { return sum(&DeviceWeights::upload_bytes); }
  size_t device_bytes_on(size_t device) const override { return parts_[device]->device_bytes(); }
  size_t upload_bytes_on(size_t device) const override { return parts_[device]->upload_bytes(); }
  DeviceWeights& on(size_t device) { return *parts_[device]; }

 private:
  size_t sum(size_t (DeviceWeights::*n_bytes)() const) const {
    return std::accumulate(parts_.begin(), parts_.end(), size_t{0},
                           [&](size_t n, const auto& part) { return n + ((*part).*n_bytes)(); });
  }
  std::vector<std::unique_ptr<DeviceWeights>> parts_;  // per device
};

// A draft graph, whole on the last device. Its page tables and caches are those of all devices.
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

class SplitBackend final : public Backend {
 public:
  SplitBackend(std::shared_ptr<const PlacedGraph> placed, std::vector<std::shared_ptr<Backend>> devices)
      : placed_(std::move(placed)), devices_(std::move(devices)) {}

  DeviceInfo info() const override {
    DeviceInfo all;
    for (const DeviceInfo& device : devices()) {
      all.name += (all.name.empty() ? "" : " + ") + device.name;
      all.memory_bytes += device.memory_bytes;
    }
    return all;
  }

  std::vector<DeviceInfo> devices() const override {
    std::vector<DeviceInfo> infos;
    for (const auto& device : devices_) infos.push_back(device->info());
    return infos;
  }

  DevicePeaks measure_peaks() override { return devices_[placed_->last_device()]->measure_peaks(); }
  double clock_mhz() override { return devices_[placed_->last_device()]->clock_mhz(); }

  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages& release_file_pages) override {
    std::vector<std::unique_ptr<DeviceWeights>> parts;
    for (size_t d = 0; d < devices_.size(); ++d) {
      std::vector<const Graph*> own;
      for (size_t s = 0; s < placed_->stages.size(); ++s) {
        if (placed_->devices[s] == d) own.push_back(&placed_->stages[s].graph);
      }
      for (const Graph* graph : graphs) {
        if (graph != &placed_->graph && d == placed_->last_device()) own.push_back(graph);
      }
      ZINC_TRY(weights, devices_[d]->upload(own, release_file_pages));
      parts.push_back(std::move(weights));
    }
    return std::unique_ptr<DeviceWeights>(std::make_unique<SplitWeights>(std::move(parts)));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    ZINC_TRY(cache, SplitCache::allocate(*placed_, devices_, layers, sizes));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    SplitWeights& own_weights = static_cast<SplitWeights&>(weights);
    SplitCache& own_cache = static_cast<SplitCache&>(cache);
    if (&graph != &placed_->graph) return compile_draft(graph, own_weights, own_cache, bucket);
    std::vector<std::unique_ptr<Plan>> plans;
    std::vector<const Plan*> on_device(devices_.size());  // stages run one after the other: their memory is shared
    for (size_t s = 0; s < placed_->stages.size(); ++s) {
      const size_t d = placed_->devices[s];
      Bucket own_bucket = bucket;
      own_bucket.shares_memory_with = on_device[d];
      ZINC_TRY(plan, devices_[d]->compile(placed_->stages[s].graph, own_weights.on(d), own_cache.on(d), own_bucket));
      if (!bucket.keep_values) on_device[d] = plan.get();
      plans.push_back(std::move(plan));
    }
    const std::vector<DeviceInfo> infos = this->devices();
    const auto host = std::ranges::find(infos, false, &DeviceInfo::has_dedicated_memory);
    std::optional<size_t> host_device;
    if (host != infos.end()) host_device = static_cast<size_t>(host - infos.begin());
    return std::unique_ptr<Plan>(
        std::make_unique<SplitPlan>(*placed_, own_cache, std::move(plans), bucket, host_device));
  }

  std::unique_ptr<Backend> without_memory() override {
    std::vector<std::shared_ptr<Backend>> devices;
    for (const auto& device : devices_) devices.push_back(device->without_memory());
    return std::make_unique<SplitBackend>(placed_, std::move(devices));
  }

 private:
  Result<std::unique_ptr<Plan>> compile_draft(const Graph& graph, SplitWeights& weights, SplitCache& cache,
                                              const Bucket& bucket) {
    const size_t d = placed_->last_device();
    for (const Node& node : graph.nodes()) {
      const int layer = cache_layer_of(node);
      if (layer < 0 || placed_->cache_device(layer) == d) continue;
      return fail(
          ErrorCode::unsupported,
          "the draft graph reads the cache of layer {}, which is on another device; leave more layers on the last "
          "device or use --speculate ngram",
          layer);
    }
    ZINC_TRY(plan, devices_[d]->compile(graph, weights.on(d), cache.on(d), bucket));
    return std::unique_ptr<Plan>(std::make_unique<DraftPlan>(cache, d, std::move(plan)));
  }

  std::shared_ptr<const PlacedGraph> placed_;
  std::vector<std::shared_ptr<Backend>> devices_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_split_backend(const Graph& graph, const Stages& stages,
                                                    std::vector<std::shared_ptr<Backend>> devices) {
  ZINC_CHECK(stages.devices.size() == stages.cuts.size() + 1);
  for (size_t d = 0; d < devices.size(); ++d) {
    ZINC_CHECK(std::ranges::find(stages.devices, d) != stages.devices.end());
  }
  ZINC_TRY(cut, split_graph(graph, stages.cuts));
  auto placed = std::make_shared<PlacedGraph>(PlacedGraph{graph, std::move(cut), stages.devices, devices.size()});
  return std::unique_ptr<Backend>(std::make_unique<SplitBackend>(std::move(placed), std::move(devices)));
}

}  // namespace zinc::split
