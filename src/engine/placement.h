// Chooses which layers of a model run on which device, before anything is uploaded (docs/adr/0043): layouts are counted
// until one fits, the CPU's layers first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/model_memory.h"

namespace zinc {

// Opens the devices of LoadOptions and chooses the layers of each. REQUIRES: the model is read; options.placement fits
// options.backend (check_placement).
class Placer {
 public:
  Placer(ModelInstance& model, const LoadOptions& options) : model_(model), options_(options) {}
  Status place();

 private:
  Status open_devices();
  Status open_device(const std::string& name);
  Status open_other_devices();
  Status open_ranks();
  Result<ModelDevice> open_rank(int rank, std::string_view name) const;
  void set_memory_limit(ModelDevice& device, size_t available) const;
  Status choose_kv_format();
  struct Choice {
    std::vector<int> n_layers;  // of each device
    int n_cpu_experts = 0;      // PlacementOptions::cpu_experts
  };
  Status use(const Choice& choice);
  Result<std::vector<int>> device_cuts(const Choice& choice) const;
  int count_expert_layers() const;
  void set_streaming(split::Stages& stages) const;
  Result<std::vector<ModelMemory>> least_memory() const;
  size_t needed_bytes(const ModelMemory& memory) const;
  Result<bool> fits(bool only_gpus) const;
  Status check_fit() const;
  std::vector<int> shares(int n_layers, std::span<const double> ratios) const;
  Choice with_gpu_layers(int n_layers, int n_cpu_experts = 0) const;
  Result<int> largest_fitting(int low, int high, const std::function<Choice(int)>& choice);
  Status search();
  Status choose_layers();
  Status check_tensor_parallel() const;
  Status use_tensor_parallel();
  bool may_be_tensor_parallel() const;
  Result<bool> is_tensor_parallel_faster();

  ModelInstance& model_;
  const LoadOptions& options_;
  std::vector<ModelDevice> devices_;  // the CPU first
  std::vector<double> ratios_;        // PlacementOptions::split, in the order of devices_
  bool is_automatic_ = false;         // may use more devices than the first
};

// "; `--device cuda,cpu` ...": for the error of a model that does not fit one GPU; empty: it would not help.
std::string split_hint(const ModelInstance& model);

// One line per device: layers, weights, KV cache, activations, what is available.
// `read_bytes_per_s`, if any: measured, per device, for the time of a token's weights.
std::string placement_table(const ModelInstance& model, std::span<const ModelMemory> memory,
                            std::span<const double> read_bytes_per_s = {});

}  // namespace zinc
