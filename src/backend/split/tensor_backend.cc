#include "backend/split/tensor_backend.h"

#include <algorithm>

#include "backend/split/draft_plan.h"
#include "backend/split/split_cache.h"
#include "backend/split/tensor_plan.h"
#include "graph/split_graph.h"

namespace zinc::split {
namespace {

class TensorWeights final : public DeviceWeights {
 public:
  explicit TensorWeights(std::vector<std::unique_ptr<DeviceWeights>> parts) : parts_(std::move(parts)) {}
  size_t device_bytes() const override {
    size_t n = 0;
    for (const auto& part : parts_) n += part->device_bytes();
    return n;
  }
  size_t upload_bytes() const override {
    size_t n = 0;
    for (const auto& part : parts_) n += part->upload_bytes();
    return n;
  }
  size_t device_bytes_on(size_t device) const override { return parts_[device]->device_bytes(); }
  size_t upload_bytes_on(size_t device) const override { return parts_[device]->upload_bytes(); }
  DeviceWeights& on(size_t device) { return *parts_[device]; }

 private:
  std::vector<std::unique_ptr<DeviceWeights>> parts_;  // of each device
};

class TensorBackend final : public Backend {
 public:
  TensorBackend(const Graph& graph, std::shared_ptr<ShardedGraph> shards, std::vector<std::shared_ptr<Backend>> devices,
                bool has_memory)
      : graph_(graph), shards_(std::move(shards)), devices_(std::move(devices)), has_memory_(has_memory) {}

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

  DevicePeaks measure_peaks() override { return devices_[root()]->measure_peaks(); }
  double clock_mhz() override { return devices_[root()]->clock_mhz(); }

  // Parts that are not rows of the file as they are have a copy, which lives until the device has read it.
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages& release_file_pages) override {
    std::vector<std::unique_ptr<DeviceWeights>> parts;
    for (size_t d = 0; d < devices_.size(); ++d) {
      std::vector<const Graph*> own;
      for (const auto& stage : shards_->stages) {
        if (!stage[d].graph.nodes().empty()) own.push_back(&stage[d].graph);
      }
      for (const Graph* graph : graphs) {
        if (graph != &graph_ && d == root()) own.push_back(graph);
      }
      if (has_memory_) shards_->weights[d].fill();
      const auto release = [shards = shards_.get(), d, release_file_pages, this](std::span<const std::byte> bytes) {
        if (has_memory_) shards->weights[d].release(bytes);
        release_file_pages(bytes);
      };
      ZINC_TRY(weights, devices_[d]->upload(own, release));
      parts.push_back(std::move(weights));
    }
    return std::unique_ptr<DeviceWeights>(std::make_unique<TensorWeights>(std::move(parts)));
  }

  // Layers that only a draft graph has are on the last device.
  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    std::vector<std::vector<LayerCache>> own(devices_.size(), std::vector<LayerCache>(layers.size()));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!is_divided(static_cast<int>(i))) {
        own[root()][i] = layers[i];
        continue;
      }
      for (size_t d = 0; d < devices_.size(); ++d) own[d][i] = shards_->caches[d][i];
    }
    ZINC_TRY(cache, SplitCache::allocate(own, devices_, layers, sizes));
    return std::unique_ptr<CacheMemory>(std::move(cache));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    TensorWeights& own_weights = static_cast<TensorWeights&>(weights);
    SplitCache& own_cache = static_cast<SplitCache&>(cache);
    if (&graph != &graph_) return compile_draft(graph, own_weights, own_cache, bucket);
    std::vector<std::vector<std::unique_ptr<Plan>>> plans;
    std::vector<const Plan*> on_device(devices_.size());  // stages run one after the other: their memory is shared
    for (const auto& stage : shards_->stages) {
      std::vector<std::unique_ptr<Plan>>& of_stage = plans.emplace_back(devices_.size());
      for (size_t d = 0; d < devices_.size(); ++d) {
        if (stage[d].graph.nodes().empty()) continue;
        Bucket own_bucket = bucket;
        own_bucket.shares_memory_with = on_device[d];
        ZINC_TRY(plan, devices_[d]->compile(stage[d].graph, own_weights.on(d), own_cache.on(d), own_bucket));
        if (!bucket.keep_values) on_device[d] = plan.get();
        of_stage[d] = std::move(plan);
      }
    }
    const std::vector<DeviceInfo> infos = this->devices();
    const auto host = std::ranges::find(infos, false, &DeviceInfo::has_dedicated_memory);
    std::optional<size_t> host_device;
    if (host != infos.end()) host_device = static_cast<size_t>(host - infos.begin());
    return std::unique_ptr<Plan>(
        std::make_unique<TensorPlan>(graph_, *shards_, own_cache, std::move(plans), bucket, host_device));
  }

  std::unique_ptr<Backend> without_memory() override {
    std::vector<std::shared_ptr<Backend>> devices;
    for (const auto& device : devices_) devices.push_back(device->without_memory());
    return std::make_unique<TensorBackend>(graph_, shards_, std::move(devices), /*has_memory=*/false);
  }

 private:
  size_t root() const { return shards_->layout.root(); }

  bool is_divided(int layer) const {
    const size_t i = static_cast<size_t>(layer);
    return i < graph_.caches().size() && graph_.caches()[i] != LayerCache{};
  }

  Result<std::unique_ptr<Plan>> compile_draft(const Graph& graph, TensorWeights& weights, SplitCache& cache,
                                              const Bucket& bucket) {
    for (const Node& node : graph.nodes()) {
      const int layer = cache_layer_of(node);
      if (layer < 0 || !is_divided(layer)) continue;
      return fail(
          ErrorCode::unsupported,
          "the draft graph reads the cache of layer {}, which is divided over the devices; use --split layers or "
          "--speculate ngram",
          layer);
    }
    ZINC_TRY(plan, devices_[root()]->compile(graph, weights.on(root()), cache.on(root()), bucket));
    return std::unique_ptr<Plan>(std::make_unique<DraftPlan>(cache, root(), std::move(plan)));
  }

  const Graph& graph_;
  std::shared_ptr<ShardedGraph> shards_;
  std::vector<std::shared_ptr<Backend>> devices_;
  bool has_memory_;
};

}  // namespace

std::unique_ptr<Backend> make_tensor_backend(const Graph& graph, std::shared_ptr<ShardedGraph> shards,
                                             std::vector<std::shared_ptr<Backend>> devices) {
  ZINC_CHECK(devices.size() == shards->layout.n_devices());
  return std::make_unique<TensorBackend>(graph, std::move(shards), std::move(devices), /*has_memory=*/true);
}

}  // namespace zinc::split
