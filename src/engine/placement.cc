#include "engine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "backend/mpi/remote_backend.h"
#include "base/format_memory.h"
#include "engine/engine_memory.h"
#include "engine/split_times.h"
#include "graph/cost.h"

namespace zinc {
namespace {

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    names.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

// The layers of the graph's nodes: 0 .. n - 1.
int count_layers(const Graph& graph) {
  int n = 0;
  for (const Node& node : graph.nodes()) n = std::max(n, node.layer + 1);
  return n;
}

// "layers 0-11", "layers 0-11 and the experts of 4", "the experts of 40 layers", "a part of layers 0-11".
std::string layers_text(const ModelInstance& model, const ModelDevice& device) {
  std::string text;
  if (device.n_layers > 0) {
    text = fmt::format("{}layers {}-{}", model.shards() ? "a part of " : "", device.first_layer,
                       device.first_layer + device.n_layers - 1);
  }
  if (device.n_expert_layers == 0) return text;
  return text.empty() ? fmt::format("the experts of {} layers", device.n_expert_layers)
                      : fmt::format("{} and the experts of {}", text, device.n_expert_layers);
}

}  // namespace

Status Placer::open_device(const std::string& name) {
  for (const ModelDevice& other : devices_) {
    if (other.name == name) return fail(ErrorCode::invalid_input, "--device names {} twice", name);
  }
  ModelDevice device;
  device.name = name;
  ZINC_TRY(info, find_backend(name));
  device.info = info;
  ZINC_TRY(backend, open_backend(name, options_.n_threads));
  device.backend = std::move(backend);
  device.device = device.backend->info();
  set_memory_limit(device, available_bytes(device.device));
  devices_.push_back(std::move(device));
  return ok_status();
}

void Placer::set_memory_limit(ModelDevice& device, size_t available) const {
  device.memory_limit = options_.memory_limit > 0 ? options_.memory_limit : available;
  if (device.is_gpu() && options_.placement.gpu_memory > 0) {
    device.memory_limit = std::min(device.memory_limit, options_.placement.gpu_memory);
  }
}

// `name`: empty, the fastest there.
Result<ModelDevice> Placer::open_rank(int rank, std::string_view name) const {
  mpi::World& world = *options_.world;
  ModelDevice device;
  size_t available = 0;
  if (rank == 0) {
    device.name = mpi::device_of_rank(name, world.local_rank(0), world.n_local_ranks(0));
    ZINC_TRY(backend, open_backend(device.name, options_.n_threads));
    device.backend = std::move(backend);
    available = available_bytes(device.backend->info());
  } else {
    mpi::RemoteRank& remote = *mpi::remote_ranks(world)[static_cast<size_t>(rank - 1)];
    ZINC_TRY(opened, mpi::open_remote_device(remote, name, options_.n_threads));
    device.name = opened.name;
    device.backend = std::move(opened.backend);
    available = opened.available_bytes;
  }
  ZINC_TRY(info, find_backend(device.name));
  device.info = info;
  device.name += fmt::format("@{}", rank);
  device.device = device.backend->info();
  device.host = world.host(rank).boot_id;
  set_memory_limit(device, available);
  return device;
}

// One device of each rank. Rank 0 has the last layers, if its device is as good as the others: logits and draft graphs
// are then where the engine is.
Status Placer::open_ranks() {
  const int n_ranks = options_.world->size();
  const PlacementOptions& wanted = options_.placement;
  const std::vector<std::string> names = split_names(options_.backend);
  if (names.size() > 1 && std::ssize(names) != n_ranks) {
    return fail(ErrorCode::invalid_input,
                "--device lists {} devices, but --split-hosts has {} processes; name one device for all of them, or "
                "one for each",
                names.size(), n_ranks);
  }
  if (!wanted.split.empty() && std::ssize(wanted.split) != n_ranks) {
    return fail(ErrorCode::invalid_input, "--split has {} ratios for {} processes; give one for each",
                wanted.split.size(), n_ranks);
  }
  if (wanted.gpu_layers > 0 || wanted.cpu_experts > 0) {
    return fail(ErrorCode::unsupported, "--split-hosts does not support {}; use --split for the layers of each process",
                wanted.gpu_layers > 0 ? "--gpu-layers" : "--cpu-experts");
  }
  std::vector<std::pair<ModelDevice, double>> opened;
  for (int i = 0; i < n_ranks; ++i) {
    const int rank = (i + 1) % n_ranks;
    const size_t r = static_cast<size_t>(rank);
    ZINC_TRY(device, open_rank(rank, names.empty() ? "" : names.size() == 1 ? names[0] : names[r]));
    // All of a host's memory: what is free changes from start to start, and a saved prefix cache is for one placement.
    const bool is_dedicated = device.device.has_dedicated_memory;
    const size_t n_bytes = is_dedicated ? device.memory_limit : device.device.memory_bytes;
    const double memory = static_cast<double>(std::max<size_t>(1, n_bytes));
    opened.emplace_back(std::move(device), wanted.split.empty() ? memory : wanted.split[r]);
  }
  std::stable_partition(opened.begin(), opened.end(), [](const auto& device) { return !device.first.is_gpu(); });
  for (auto& [device, ratio] : opened) {
    devices_.push_back(std::move(device));
    ratios_.push_back(ratio);
  }
  return ok_status();
}

Status Placer::open_devices() {
  const PlacementOptions& wanted = options_.placement;
  std::vector<std::string> names = split_names(options_.backend);
  if (names.empty()) {
    names.emplace_back(default_backend().name);
    is_automatic_ = default_backend().devices != nullptr;
  }
  const bool has_cpu = std::ranges::find(names, "cpu") != names.end();
  if ((wanted.gpu_layers > 0 || wanted.cpu_experts > 0) && !has_cpu) names.emplace_back("cpu");
  for (const std::string& name : names) {
    if (Status s = open_device(name); !s.ok()) return s;
  }
  const bool has_gpu = std::ranges::any_of(devices_, &ModelDevice::is_gpu);
  const std::string_view for_gpus = wanted.gpu_layers > 0    ? "--gpu-layers"
                                    : wanted.gpu_memory > 0  ? "--gpu-memory"
                                    : wanted.cpu_experts > 0 ? "--cpu-experts"
                                                             : "";
  if (!has_gpu && !for_gpus.empty()) {
    return fail(ErrorCode::invalid_input,
                "{} is for GPUs, but the model runs on {}; leave it out or choose a GPU with --device", for_gpus,
                devices_[0].name);
  }
  if (!wanted.split.empty() && wanted.split.size() != devices_.size()) {
    return fail(ErrorCode::invalid_input, "--split has {} ratios for {} devices; give one for each of --device",
                wanted.split.size(), devices_.size());
  }
  std::vector<size_t> order(devices_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](size_t d) { return !devices_[d].is_gpu(); });
  std::vector<ModelDevice> ordered;
  for (const size_t d : order) {
    ordered.push_back(devices_[d]);
    if (!wanted.split.empty()) ratios_.push_back(wanted.split[d]);
  }
  devices_ = std::move(ordered);
  return ok_status();
}

// The other GPUs of the first one's backend, and the CPU.
Status Placer::open_other_devices() {
  const ModelDevice first = devices_[0];
  const std::vector<DeviceInfo> all = first.info->devices();
  const auto opened = std::ranges::find(all, first.device.name, &DeviceInfo::name);
  for (auto device = all.begin(); device != all.end(); ++device) {
    if (device == opened || !device->unavailable_reason.empty() || !device->has_dedicated_memory) continue;
    if (Status s = open_device(fmt::format("{}:{}", first.info->name, device - all.begin())); !s.ok()) return s;
  }
  if (Status s = open_device("cpu"); !s.ok()) return s;
  std::rotate(devices_.begin(), devices_.end() - 1, devices_.end());
  return ok_status();
}

Status Placer::choose_kv_format() {
  const MergedBackendInfo all(devices_);
  const Format* format = options_.kv_format;
  if (!format) {
    format = find_format(has_kv_format(all.info, all.info.default_kv_format) || all.kv_formats.empty()
                             ? all.info.default_kv_format
                             : all.kv_formats.front());
  }
  model_.kv_format_ = format;
  if (has_kv_format(all.info, format->name)) return check_kv_blocks(*format, model_.model_->caches);
  return fail(ErrorCode::unsupported, "the {} backend does not support the KV cache format '{}'; use {}",
              devices_.size() == 1 ? devices_[0].info->name : all.info.name, format->name, kv_format_names(all.info));
}

// The node where the layers of each device begin; the number of nodes: it has none.
Result<std::vector<int>> Placer::device_cuts(const Choice& choice) const {
  const Graph& graph = model_.model_->graph;
  const std::vector<int> cuts = layer_cuts(graph);
  const auto layer_of = [&](int node) { return static_cast<int>(graph.nodes()[static_cast<size_t>(node)].layer); };
  const int n_nodes = static_cast<int>(graph.nodes().size());
  std::vector<int> begins;
  int layer = 0;
  for (const int n : choice.n_layers) {
    const auto cut = std::ranges::find_if(cuts, [&](int node) { return layer_of(node) >= layer; });
    if (n > 0 && layer > 0 && cut == cuts.end()) {
      return fail(ErrorCode::invalid_input,
                  "the layers from {} on share a KV cache and cannot be split; leave all {} of them together",
                  layer_of(cuts.back()), count_layers(graph) - layer_of(cuts.back()));
    }
    begins.push_back(layer == 0 ? 0 : cut == cuts.end() ? n_nodes : *cut);
    layer += n;
  }
  begins.push_back(n_nodes);
  for (size_t d = begins.size() - 1; d-- > 0;) {
    if (choice.n_layers[d] == 0) begins[d] = begins[d + 1];
  }
  return begins;
}

// Lays the model out. Devices without a part of it are left out.
Status Placer::use(const Choice& choice) {
  ZINC_TRY(begins, device_cuts(choice));
  const Graph& graph = model_.model_->graph;
  const auto layer_of = [&](int node) { return std::max(0, int{graph.nodes()[static_cast<size_t>(node)].layer}); };
  const int n_nodes = static_cast<int>(graph.nodes().size());
  std::map<int, size_t> device_from;  // by node: the device of the nodes from there on
  std::vector<ModelDevice> devices = devices_;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (begins[d] == begins[d + 1]) continue;
    device_from[begins[d]] = d;
    const int end = begins[d + 1] == n_nodes ? count_layers(graph) : layer_of(begins[d + 1]);
    devices[d].first_layer = begins[d] == 0 ? 0 : layer_of(begins[d]);
    devices[d].n_layers = end - devices[d].first_layer;
  }
  int n_left = choice.n_cpu_experts;
  for (const ExpertNodes& experts : expert_nodes(graph)) {
    const size_t d = std::prev(device_from.upper_bound(experts.begin))->second;
    if (!devices[d].is_gpu() || n_left-- <= 0) continue;
    device_from[experts.begin] = 0;
    device_from.try_emplace(experts.end, d);
    ++devices[0].n_expert_layers;
  }
  std::vector<size_t> index(devices.size());
  std::vector<ModelDevice> used;
  for (size_t d = 0; d < devices.size(); ++d) {
    index[d] = used.size();
    if (devices[d].n_layers + devices[d].n_expert_layers > 0) used.push_back(devices[d]);
  }
  split::Stages stages;
  for (const auto& [node, d] : device_from) {
    if (node > 0) stages.cuts.push_back(node);
    stages.devices.push_back(index[d]);
  }
  if (used.size() == 1) stages = {};
  if (devices[0].n_expert_layers > 0) set_streaming(stages);
  return model_.use(std::move(used), std::move(stages));
}

// Whole chunks of prompts are worth copying the experts to a GPU with memory of its own.
void Placer::set_streaming(split::Stages& stages) const {
  const std::optional<int> wanted = options_.placement.streamed_tokens;
  const bool has_memory =
      std::ranges::any_of(devices_, [](const ModelDevice& d) { return d.is_gpu() && d.device.has_dedicated_memory; });
  stages.streamed_tokens = wanted.value_or(has_memory ? PlacementOptions::kStreamedTokens : 0);
  stages.streams_if_faster = !wanted;
  const bool is_set = options_.engine && options_.engine->step_tokens > 0;
  const int step_tokens = is_set ? options_.engine->step_tokens : devices_.back().info->step_tokens;
  if (stages.streamed_tokens > step_tokens) stages.streamed_tokens = 0;  // no step has a whole chunk
}

int Placer::count_expert_layers() const { return static_cast<int>(expert_nodes(model_.model_->graph).size()); }

Result<std::vector<ModelMemory>> Placer::least_memory() const {
  EngineOptions engine{.max_sequences = 1};
  if (options_.engine) engine = *options_.engine;
  if (engine.step_tokens == 0) engine.step_tokens = model_.backend_info().step_tokens;
  return least_engine_memory(model_, engine);
}

// A cache whose size is not given gets half of what the model leaves.
size_t Placer::needed_bytes(const ModelMemory& memory) const {
  return options_.engine && options_.engine->cache_bytes > 0 ? memory.bytes() : least_limit(memory);
}

Result<bool> Placer::fits(bool only_gpus) const {
  ZINC_TRY(memory, least_memory());
  for (size_t d = 0; d < memory.size(); ++d) {
    const ModelDevice& device = model_.devices_[d];
    if ((device.is_gpu() || !only_gpus) && needed_bytes(memory[d]) > device.memory_limit) return false;
  }
  return true;
}

// `n_layers` in these ratios.
std::vector<int> Placer::shares(int n_layers, std::span<const double> ratios) const {
  const double total = std::accumulate(ratios.begin(), ratios.end(), 0.0);
  std::vector<int> out;
  double sum = 0;
  int given = 0;
  for (const double ratio : ratios) {
    sum += ratio;
    const int end = static_cast<int>(std::lround(n_layers * sum / total));
    out.push_back(end - given);
    given = end;
  }
  return out;
}

// The last n layers on the GPUs, in proportion to their memory.
Placer::Choice Placer::with_gpu_layers(int n_layers, int n_cpu_experts) const {
  std::vector<double> ratios;
  for (const ModelDevice& device : devices_) {
    if (device.is_gpu()) ratios.push_back(static_cast<double>(std::max<size_t>(1, device.memory_limit)));
  }
  const std::vector<int> on_gpus = shares(n_layers, ratios);
  Choice choice{std::vector<int>(devices_.size(), 0), n_cpu_experts};
  size_t gpu = 0;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].is_gpu()) choice.n_layers[d] = on_gpus[gpu++];
  }
  if (!devices_[0].is_gpu()) choice.n_layers[0] = count_layers(model_.model_->graph) - n_layers;
  return choice;
}

Status Placer::check_fit() const {
  ZINC_TRY(memory, least_memory());
  const std::vector<ModelMemory> parts = with_shared_host(model_, memory);
  const MemoryLimits limits = with_shared_host(model_, model_.memory_limits());
  for (size_t d = 0; d < parts.size(); ++d) {
    if (needed_bytes(parts[d]) <= limits[d]) continue;
    if (d >= memory.size()) {
      return fail(ErrorCode::out_of_memory,
                  "{} does not fit {}: {}, of {} available; use a smaller quantization, a shorter context (-c) or --kv "
                  "q8_0",
                  model_.path_.string(), shared_host_text(model_, d - memory.size()), zinc::memory_text(parts[d]),
                  format_memory(limits[d]));
    }
    const ModelDevice& device = model_.devices_[d];
    return fail(ErrorCode::out_of_memory,
                "{}: {} do not fit {}: {}, of {} available; use {}a smaller quantization, a shorter context (-c) or "
                "--kv q8_0",
                model_.path_.string(), layers_text(model_, device), device.name, zinc::memory_text(memory[d]),
                format_memory(device.memory_limit),
                device.is_gpu() ? "fewer --gpu-layers, --cpu-experts, " : "more --gpu-layers, ");
  }
  return ok_status();
}

// The largest n with which the GPUs have room for a request; low if none does. More of n needs more memory.
Result<int> Placer::largest_fitting(int low, int high, const std::function<Choice(int)>& choice) {
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    const Status used = use(choice(middle));
    bool fit = true;  // if so few layers cannot be cut off, more are needed
    if (used.ok()) {
      ZINC_TRY(counted, fits(/*only_gpus=*/true));
      fit = counted;
    } else if (used.error().code != ErrorCode::invalid_input) {
      return used.error();
    }
    low = fit ? middle : low;
    high = fit ? high : middle - 1;
  }
  return low;
}

// As much on the GPUs as they have room for. Experts leave them first: each token uses few of them. Then whole layers.
Status Placer::search() {
  const int n_layers = count_layers(model_.model_->graph), n_expert_layers = count_expert_layers();
  const auto keep_experts = [&](int n) { return with_gpu_layers(n_layers, n_expert_layers - n); };
  ZINC_TRY(n_kept, largest_fitting(-1, n_expert_layers, keep_experts));
  if (n_kept >= 0) return use(keep_experts(n_kept));
  const auto all_experts = [&](int n) { return with_gpu_layers(n, n_expert_layers); };
  ZINC_TRY(n, largest_fitting(0, n_layers, all_experts));
  if (n > 0) return use(all_experts(n));
  return fail(ErrorCode::out_of_memory,
              "{}: not one layer fits the GPU's {} beside the output head and the cache of one request; use a shorter "
              "context (-c), --kv q8_0 or --device cpu",
              model_.path_.string(), format_memory(devices_.back().memory_limit));
}

Status Placer::choose_layers() {
  const PlacementOptions& wanted = options_.placement;
  const int n_layers = count_layers(model_.model_->graph);
  const bool has_host = !devices_[0].is_gpu(), has_gpu = devices_.back().is_gpu();
  if (wanted.cpu_experts > 0 && count_expert_layers() == 0) {
    return fail(ErrorCode::invalid_input, "--cpu-experts: {} has no routed experts; use --gpu-layers",
                model_.path_.string());
  }
  if (!ratios_.empty()) return use({shares(n_layers, ratios_), wanted.cpu_experts});
  if (wanted.gpu_layers > 0 || wanted.cpu_experts > 0) {
    const int n_gpu_layers = wanted.gpu_layers > 0 ? std::min(wanted.gpu_layers, n_layers) : n_layers;
    return use(with_gpu_layers(n_gpu_layers, wanted.cpu_experts));
  }
  if (has_host && has_gpu) return search();
  std::vector<double> ratios;
  for (const ModelDevice& device : devices_) ratios.push_back(has_gpu ? static_cast<double>(device.memory_limit) : 1.0);
  return use({shares(n_layers, ratios)});
}

// ---- tensor parallelism ----

Status Placer::check_tensor_parallel() const {
  const PlacementOptions& wanted = options_.placement;
  if (options_.world) {
    return fail(ErrorCode::unsupported, "--split-hosts gives each process whole layers; leave out --split tensor");
  }
  if (devices_.size() < 2) {
    return fail(
        ErrorCode::invalid_input,
        "--split tensor divides every layer over at least 2 devices; list them, such as --device cuda:0,cuda:1");
  }
  if (devices_.size() > kMaxShards) {
    return fail(ErrorCode::invalid_input,
                "--split tensor divides every layer over at most {} devices, but --device "
                "lists {}",
                kMaxShards, devices_.size());
  }
  if (wanted.gpu_layers > 0 || wanted.cpu_experts > 0) {
    return fail(ErrorCode::invalid_input, "--split tensor divides every layer; leave out {}",
                wanted.gpu_layers > 0 ? "--gpu-layers" : "--cpu-experts");
  }
  for (const ModelDevice& device : devices_) {
    const ModelDevice& first = devices_[0];
    if (device.is_gpu() == first.is_gpu() && (!device.is_gpu() || device.info == first.info)) continue;
    return fail(
        ErrorCode::invalid_input,
        "--split tensor needs devices of one kind, because the slowest computes as much as the others: {} and {} "
        "differ; use --split layers",
        first.name, device.name);
  }
  return ok_status();
}

Status Placer::use_tensor_parallel() {
  if (Status s = check_tensor_parallel(); !s.ok()) return s;
  ZINC_TRY(shards, shard_graph(model_.model_->graph, devices_.size()));
  std::vector<ModelDevice> devices = devices_;
  for (ModelDevice& device : devices) device.n_layers = count_layers(model_.model_->graph);
  return model_.use_tensor_parallel(std::move(devices), std::move(shards));
}

// Only for what generates: measuring takes a second.
bool Placer::may_be_tensor_parallel() const {
  return options_.placement.split_mode == SplitMode::automatic && options_.engine && check_tensor_parallel().ok() &&
         std::ranges::all_of(devices_,
                             [](const ModelDevice& d) { return d.is_gpu() && d.device.has_dedicated_memory; });
}

// If it is, the model is laid out so. Whatever stands against it becomes the reason for whole layers.
Result<bool> Placer::is_tensor_parallel_faster() {
  const auto refuse = [&](const Error& error) {
    model_.split_reason_ = "whole layers, because tensor parallelism is not possible: " + error.message;
    return false;
  };
  const Result<std::unique_ptr<ShardedGraph>> shards = shard_graph(model_.model_->graph, devices_.size());
  if (!shards.ok()) return refuse(shards.error());
  const Result<SplitTimes> times = measure_split_times(*model_.model_, *shards.value(), devices_);
  if (!times.ok()) return refuse(times.error());
  model_.split_reason_ = split_times_text(times.value());
  if (!times.value().is_tensor_faster()) return false;
  if (Status s = use_tensor_parallel(); !s.ok()) return refuse(s.error());
  const Status fit = check_fit();
  if (fit.ok()) return true;
  if (fit.error().code != ErrorCode::out_of_memory) return fit.error();
  return refuse(fit.error());
}

Status Placer::place() {
  if (Status s = options_.world ? open_ranks() : open_devices(); !s.ok()) return s;
  if (Status s = choose_kv_format(); !s.ok()) return s;
  if (options_.placement.split_mode == SplitMode::tensor) {
    if (Status s = use_tensor_parallel(); !s.ok()) return s;
    return check_fit();
  }
  if (devices_.size() == 1) {
    if (Status s = use({{count_layers(model_.model_->graph)}}); !s.ok()) return s;
    const Status weights = model_.check_weights();
    if (!is_automatic_) return weights;
    if (weights.ok()) {
      ZINC_TRY(fit, fits(false));
      if (fit) return ok_status();
    }
    if (Status s = open_other_devices(); !s.ok()) return s;
    if (Status s = choose_kv_format(); !s.ok()) return s;
    model_.is_placed_automatically_ = true;
  }
  if (may_be_tensor_parallel()) {
    ZINC_TRY(is_faster, is_tensor_parallel_faster());
    if (is_faster) return ok_status();
  }
  if (Status s = choose_layers(); !s.ok()) return s;
  return check_fit();
}

std::string split_hint(const ModelInstance& model) {
  const std::span<const ModelDevice> devices = model.devices();
  if (devices.size() != 1 || !devices[0].is_gpu()) return "";
  return fmt::format("; `--device {},cpu` runs the layers that do not fit on the CPU", devices[0].name);
}

namespace {

// That a device of the model reads for a token.
double bytes_per_token(const ModelInstance& model, const GraphCost& cost, size_t device) {
  if (model.shards()) return bytes_per_token(*model.shards(), device);
  double n_bytes = 0;
  const std::vector<int>& cuts = model.stages().cuts;
  for (size_t s = 0; s <= cuts.size(); ++s) {
    if (model.devices().size() > 1 && model.stages().devices[s] != device) continue;
    const size_t begin = s == 0 ? 0 : static_cast<size_t>(cuts[s - 1]);
    const size_t end = s < cuts.size() ? static_cast<size_t>(cuts[s]) : cost.nodes.size();
    for (size_t i = begin; i < end; ++i) n_bytes += cost.nodes[i].cost.weight_and_cache_bytes();
  }
  return n_bytes;
}

// How GPUs divide the model, why, and what is not divided evenly.
std::string tensor_text(const ModelInstance& model) {
  std::string text;
  if (!model.split_reason().empty()) text = fmt::format("split: {}\n", model.split_reason());
  if (!model.shards()) return text;
  if (text.empty())
    text = fmt::format("split: tensor parallel, with {} sums per step\n", model.shards()->stages.size() - 1);
  for (const std::string& note : model.shards()->layout.notes()) text += fmt::format("not divided evenly: {}\n", note);
  return text;
}

// How prompts use experts in host memory; empty: on the CPU.
std::string streaming_text(const ModelInstance& model) {
  const split::Stages& stages = model.stages();
  if (stages.streamed_tokens == 0) return "";
  const std::string text = fmt::format(
      "prompts of {} tokens or more: the GPU computes these experts too, with weights copied layer by layer",
      stages.streamed_tokens);
  if (!model.is_uploaded()) return text + (stages.streams_if_faster ? ", if that is faster\n" : "\n");
  return model.weights().prompt_chunk_tokens() > 1 ? text + "\n" : "";
}

}  // namespace

std::string placement_table(const ModelInstance& model, std::span<const ModelMemory> memory,
                            std::span<const double> read_bytes_per_s) {
  const std::span<const ModelDevice> devices = model.devices();
  const Graph& graph = model.model().graph;
  const GraphCost cost = cost_graph(graph, {.n_tokens = 1, .n_seqs = 1, .depth = 0}, {});
  size_t name_width = 6, part_width = 6;
  for (const ModelDevice& device : devices) {
    name_width = std::max(name_width, device.name.size());
    part_width = std::max(part_width, layers_text(model, device).size());
  }
  const auto line = [&](const auto&... cells) {
    return fmt::format("{:<{}}  {:<{}} {:>9} {:>9} {:>11} {:>9}", cells...);
  };
  std::string out = line("device", name_width, "runs", part_width, "weights", "KV cache", "activations", "available");
  out += read_bytes_per_s.empty() ? "\n" : "   per token\n";
  for (size_t d = 0; d < devices.size(); ++d) {
    const ModelDevice& device = devices[d];
    out += line(device.name, name_width, layers_text(model, device), part_width, format_memory(memory[d].weight_bytes),
                format_memory(memory[d].cache_bytes), format_memory(memory[d].plan_bytes),
                format_memory(device.memory_limit));
    if (!read_bytes_per_s.empty()) {
      const double n_bytes = bytes_per_token(model, cost, d);
      out +=
          read_bytes_per_s[d] > 0 ? fmt::format(" {:>8.2f} ms", n_bytes / read_bytes_per_s[d] * 1e3) : "           ?";
    }
    out += "\n";
  }
  return out + streaming_text(model) + tensor_text(model);
}

}  // namespace zinc
