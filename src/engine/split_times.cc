#include "engine/split_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "backend/split/measure_sum.h"
#include "graph/cost.h"

namespace zinc {
namespace {

constexpr BatchShape kOneToken{.n_tokens = 1, .n_seqs = 1, .depth = 0};

double stage_bytes(const GraphShard& shard) {
  return shard.graph.nodes().empty() ? 0 : cost_graph(shard.graph, kOneToken, {}).total.weight_and_cache_bytes();
}

}  // namespace

double bytes_per_token(const ShardedGraph& shards, size_t device) {
  double n = 0;
  for (const auto& stage : shards.stages) n += stage_bytes(stage[device]);
  return n;
}

SplitTimes estimate_split_times(const Graph& graph, const ShardedGraph& shards,
                                std::span<const double> read_bytes_per_s, double sum_s) {
  const double n_devices = static_cast<double>(read_bytes_per_s.size());
  const double n_bytes = cost_graph(graph, kOneToken, {}).total.weight_and_cache_bytes();
  SplitTimes times{.sum_s = sum_s, .n_sums = static_cast<int>(shards.stages.size()) - 1};
  // Layers in proportion to memory, as GPUs of one kind get them: each reads the same share.
  for (const double rate : read_bytes_per_s) times.layers_s += n_bytes / n_devices / rate;
  times.layers_s += (n_devices - 1) * sum_s;
  for (const auto& stage : shards.stages) {  // the slowest device of each stage
    double slowest = 0;
    for (size_t d = 0; d < stage.size(); ++d) slowest = std::max(slowest, stage_bytes(stage[d]) / read_bytes_per_s[d]);
    times.tensor_s += slowest;
  }
  times.tensor_s += times.n_sums * sum_s;
  return times;
}

Result<SplitTimes> measure_split_times(const Model& model, const ShardedGraph& shards,
                                       std::span<const ModelDevice> devices) {
  std::vector<double> rates;
  std::vector<std::shared_ptr<Backend>> backends;
  for (const ModelDevice& device : devices) {
    rates.push_back(device.backend->measure_peaks().read_bytes_per_s);
    backends.push_back(device.backend);
    if (rates.back() > 0) continue;
    return fail(ErrorCode::unavailable, "the speed of {}'s memory could not be measured", device.name);
  }
  ZINC_TRY(sum_s, split::measure_sum_seconds(backends, model.config.dim));
  return estimate_split_times(model.graph, shards, rates, sum_s);
}

std::string split_times_text(const SplitTimes& times) {
  const std::string tensor = fmt::format("tensor parallel {:.2f} ms ({} sums of {:.0f} us between the devices)",
                                         times.tensor_s * 1e3, times.n_sums, times.sum_s * 1e6);
  const std::string layers = fmt::format("whole layers {:.2f} ms", times.layers_s * 1e3);
  return times.is_tensor_faster()
             ? fmt::format("tensor parallel, because a token is estimated to take less time: {}, {}", tensor, layers)
             : fmt::format("whole layers, because a token is estimated to take less time: {}, {}", layers, tensor);
}

}  // namespace zinc
