#include "backend/split/split_backend.h"

#include <numeric>

#include "backend/split/draft_plan.h"
#include "backend/split/split_cache.h"
#include "backend/split/split_plan.h"
#include "graph/cost.h"

namespace zinc::split {
namespace {

class SplitWeights final : public DeviceWeights {
 public:
  // Per device; `streamed`: of the stages that are streamed to it, or nullptr.
  SplitWeights(std::vector<std::unique_ptr<DeviceWeights>> parts, std::vector<std::unique_ptr<DeviceWeights>> streamed,
               int streamed_tokens)
      : parts_(std::move(parts)), streamed_(std::move(streamed)), streamed_tokens_(streamed_tokens) {}
  size_t device_bytes() const override { return sum(&SplitWeights::device_bytes_on); }
  size_t upload_bytes() const override { return sum(&SplitWeights::upload_bytes_on); }
  size_t device_bytes_on(size_t device) const override {
    return parts_[device]->device_bytes() + (streamed_[device] ? streamed_[device]->device_bytes() : 0);
  }
  size_t upload_bytes_on(size_t device) const override { return parts_[device]->upload_bytes(); }
  DeviceWeights& on(size_t device) { return *parts_[device]; }
  DeviceWeights* streamed_to(size_t device) { return streamed_[device].get(); }
  int prompt_chunk_tokens() const override {
    const bool streams = std::ranges::any_of(streamed_, [](const auto& weights) { return weights != nullptr; });
    return streams ? streamed_tokens_ : 1;
  }

 private:
  size_t sum(size_t (SplitWeights::*n_bytes)(size_t) const) const {
    size_t n = 0;
    for (size_t d = 0; d < parts_.size(); ++d) n += (this->*n_bytes)(d);
    return n;
  }
  std::vector<std::unique_ptr<DeviceWeights>> parts_, streamed_;
  int streamed_tokens_;
};

class SplitBackend final : public Backend {
 public:
  SplitBackend(std::shared_ptr<const PlacedGraph> placed, std::vector<std::shared_ptr<Backend>> devices,
               bool streams_if_faster)
      : placed_(std::move(placed)), devices_(std::move(devices)), streams_if_faster_(streams_if_faster) {}

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
    std::vector<std::unique_ptr<DeviceWeights>> parts, streamed;
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
    for (size_t d = 0; d < devices_.size(); ++d) {
      ZINC_TRY(weights, stream_to(d));
      streamed.push_back(std::move(weights));
    }
    return std::unique_ptr<DeviceWeights>(
        std::make_unique<SplitWeights>(std::move(parts), std::move(streamed), placed_->streamed_tokens));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    std::vector<std::vector<LayerCache>> own(devices_.size(), std::vector<LayerCache>(layers.size()));
    for (size_t i = 0; i < layers.size(); ++i) own[placed_->cache_device(static_cast<int>(i))][i] = layers[i];
    ZINC_TRY(cache, SplitCache::allocate(own, devices_, layers, sizes));
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
    ZINC_TRY(streamed, compile_streamed(own_weights, own_cache, bucket, on_device));
    const std::vector<DeviceInfo> infos = this->devices();
    const auto host = std::ranges::find(infos, false, &DeviceInfo::has_dedicated_memory);
    std::optional<size_t> host_device;
    if (host != infos.end()) host_device = static_cast<size_t>(host - infos.begin());
    return std::unique_ptr<Plan>(
        std::make_unique<SplitPlan>(*placed_, own_cache, std::move(plans), std::move(streamed), bucket, host_device));
  }

  std::unique_ptr<Backend> without_memory() override {
    std::vector<std::shared_ptr<Backend>> devices;
    for (const auto& device : devices_) devices.push_back(device->without_memory());
    return std::make_unique<SplitBackend>(placed_, std::move(devices), /*streams_if_faster=*/false);
  }

 private:
  // The weights of the stages that are streamed to a device; nullptr: there are none, or the host is faster.
  Result<std::unique_ptr<DeviceWeights>> stream_to(size_t device) {
    std::vector<const Graph*> graphs;
    size_t host = 0;
    for (size_t s = 0; s < placed_->stages.size(); ++s) {
      if (!placed_->is_streamed(s) || placed_->streaming_device(s) != device) continue;
      graphs.push_back(&placed_->stages[s].graph);
      host = placed_->devices[s];
    }
    if (graphs.empty()) return std::unique_ptr<DeviceWeights>();
    ZINC_TRY(weights, devices_[device]->stream(graphs));
    if (!weights || !streams_if_faster_) return std::move(weights);
    ZINC_TRY(load_seconds, weights->measure_load_seconds(*graphs[0]));
    const double host_seconds = chunk_seconds(*graphs[0], devices_[host]->measure_peaks().flops_per_s);
    return load_seconds < host_seconds ? std::move(weights) : std::unique_ptr<DeviceWeights>();
  }

  // The time that the host needs for a chunk of a prompt.
  double chunk_seconds(const Graph& graph, double flops_per_s) const {
    constexpr double kShareOfPeak = 0.45;  // that the CPU's prompts reach: 42 to 48 % (docs/performance.md)
    const GraphCost cost = cost_graph(graph, {.n_tokens = placed_->streamed_tokens, .n_seqs = 1}, {});
    return cost.total.flops / (kShareOfPeak * flops_per_s);
  }

  // Plans that are used for whole chunks only. `on_device`: a plan of each device, whose memory they share.
  Result<std::vector<StreamedStage>> compile_streamed(SplitWeights& weights, SplitCache& cache, const Bucket& bucket,
                                                      std::span<const Plan* const> on_device) {
    std::vector<StreamedStage> streamed(placed_->stages.size());
    if (bucket.keep_values || bucket.max_tokens < placed_->streamed_tokens) return streamed;
    for (size_t s = 0; s < streamed.size(); ++s) {
      if (!placed_->is_streamed(s)) continue;
      const size_t d = placed_->streaming_device(s);
      streamed[s].weights = weights.streamed_to(d);
      if (!streamed[s].weights) continue;
      Bucket own_bucket = bucket;
      own_bucket.min_class_tokens = placed_->streamed_tokens;
      own_bucket.shares_memory_with = on_device[d];
      ZINC_TRY(plan, devices_[d]->compile(placed_->stages[s].graph, *streamed[s].weights, cache.on(d), own_bucket));
      streamed[s].plan = std::move(plan);
    }
    return streamed;
  }

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
  bool streams_if_faster_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_split_backend(const Graph& graph, const Stages& stages,
                                                    std::vector<std::shared_ptr<Backend>> devices) {
  ZINC_CHECK(stages.devices.size() == stages.cuts.size() + 1);
  for (size_t d = 0; d < devices.size(); ++d) {
    ZINC_CHECK(std::ranges::find(stages.devices, d) != stages.devices.end());
  }
  ZINC_TRY(cut, split_graph(graph, stages.cuts));
  auto placed = std::make_shared<PlacedGraph>(
      PlacedGraph{graph, std::move(cut), stages.devices, devices.size(), stages.streamed_tokens});
  return std::unique_ptr<Backend>(
      std::make_unique<SplitBackend>(std::move(placed), std::move(devices), stages.streams_if_faster));
}

}  // namespace zinc::split
