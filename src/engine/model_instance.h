// A model file on a backend: file, graph, weights. Opened, it takes no memory of the device, and its memory can be
// measured (model_memory.h); uploaded, it can run. Movable; must outlive everything created from it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/mpi/remote_rank.h"
#include "backend/split/split_backend.h"
#include "backend/split/tensor_backend.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc {

struct EngineOptions;

// How several devices divide a model: whole layers each, or a part of every layer (tensor parallelism).
enum class SplitMode : uint8_t { automatic, layers, tensor };

// What a user wants of a placement (engine/placement.h); the rest is chosen.
struct PlacementOptions {
  static constexpr int kAllLayers = 1 << 20;
  int gpu_layers = 0;              // the last ones, on GPUs; the CPU runs the others. 0: as many as fit
  int cpu_experts = 0;             // layers on GPUs, the first ones, whose routed experts the CPU runs
  std::vector<double> split = {};  // layers of each device as ratios, in the order of LoadOptions::backend
  SplitMode split_mode = SplitMode::automatic;
  size_t gpu_memory = 0;  // bytes of each GPU, at most; 0: all that is free
  // split::Stages::streamed_tokens, a multiple of the scan chunk; none: kStreamedTokens if that is faster.
  std::optional<int> streamed_tokens = {};
  static constexpr int kStreamedTokens = 512;
  auto operator<=>(const PlacementOptions&) const = default;
};

struct LoadOptions {
  // Empty: the default backend, and the CPU for layers that do not fit a GPU. A list, "cuda:0,cuda:1,cpu", splits the
  // model over these devices.
  std::string backend;
  int n_threads = 0;                  // 0: one per core
  size_t memory_limit = 0;            // bytes the model may use in total; 0: all free memory
  const Format* kv_format = nullptr;  // nullptr: the backend's default
  Draft draft = Draft::skip;
  std::string chat_template = {};  // replaces the file's chat template; empty: the file's own
  PlacementOptions placement = {};
  // Splits the model over all ranks, one device each. nullptr: it runs on this machine.
  mpi::World* world = nullptr;
  const EngineOptions* engine = nullptr;  // room for it is left on each device of a split; nullptr: for one request
};

// Bytes that a model may use on each of its devices: the same on all if only one number is given.
class MemoryLimits {
 public:
  MemoryLimits(size_t n_bytes) : bytes_{n_bytes} {}
  MemoryLimits(std::vector<size_t> bytes) : bytes_(std::move(bytes)) {}
  size_t operator[](size_t device) const { return bytes_[std::min(device, bytes_.size() - 1)]; }
  size_t sum(size_t n_devices) const {
    size_t n = 0;
    for (size_t d = 0; d < n_devices; ++d) n += (*this)[d];
    return n;
  }

 private:
  std::vector<size_t> bytes_;
};

// A device that a model runs on.
struct ModelDevice {
  std::string name;  // as for open_backend
  const BackendInfo* info = nullptr;
  std::shared_ptr<Backend> backend;
  DeviceInfo device;
  std::string host = {};  // mpi::Host::boot_id of a model that is split over hosts
  size_t memory_limit = 0;
  int n_expert_layers = 0;            // of other devices, whose routed experts run on it
  int first_layer = 0, n_layers = 0;  // that run on it; the first device also embeds, the last one has the output head

  bool is_gpu() const { return info->devices != nullptr; }
  // " on NVIDIA H200", for messages about memory; empty: in the host's memory.
  std::string memory_text() const { return device.has_dedicated_memory ? " on " + device.name : ""; }
};

// The model on Backend::without_memory.
struct ModelLayout {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceWeights> weights;
};

// The BackendInfo of several devices as one: what all of them can do.
struct MergedBackendInfo {
  explicit MergedBackendInfo(std::span<const ModelDevice> devices);
  std::string name;  // "cpu+cuda"
  std::vector<std::string_view> kv_formats;
  BackendInfo info;
};

class ModelInstance {
 public:
  // Fails if the weights alone do not fit the memory limit.
  static Result<ModelInstance> open(const std::filesystem::path& path, const LoadOptions& options);
  // A further model on the backend of `other`, with its KV cache format and memory limit: a draft model.
  static Result<ModelInstance> open_beside(const ModelInstance& other, const std::filesystem::path& path);
  // Adds the draft graph of a separate MTP file, which is uploaded with the model. REQUIRES: not uploaded.
  Status add_mtp_file(const std::filesystem::path& path);
  Status upload();  // no effect if it is uploaded
  // Both.
  static Result<ModelInstance> load(const std::filesystem::path& path, const LoadOptions& options);

  const std::filesystem::path& path() const { return path_; }
  const GgufFile& file() const { return *file_; }
  const GgufFile* mtp_file() const { return mtp_file_.get(); }  // nullptr: none was added
  const Model& model() const { return *model_; }
  Backend& backend() const { return *backend_; }
  std::string_view backend_name() const { return backend_info_->name; }
  const BackendInfo& backend_info() const { return *backend_info_; }
  // Steps of up to `step_tokens` prompt tokens must not divide a prompt's chunks of so many: the scan chunks of
  // recurrent layers, or the chunks for which experts are copied to a GPU. 1: the model has neither. REQUIRES:
  // uploaded.
  int scan_chunk_tokens(int step_tokens) const;
  // The same for the tokens of a prompt behind its last whole one of those chunks, which may have scan chunks that are
  // shorter.
  int tail_chunk_tokens(int step_tokens) const;
  bool is_uploaded() const { return weights_ != nullptr; }
  DeviceWeights& weights() const { return *weights_; }  // REQUIRES: uploaded
  const ModelLayout& layout() const { return layout_; }
  const Format& kv_format() const { return *kv_format_; }
  std::span<const ModelDevice> devices() const { return devices_; }  // several: the model is split over them
  bool is_placed_automatically() const { return is_placed_automatically_; }
  MemoryLimits memory_limits() const;
  size_t memory_limit() const { return memory_limits()[0]; }    // of the first device
  const split::Stages& stages() const { return stages_; }       // of whole layers and experts
  const ShardedGraph* shards() const { return shards_.get(); }  // nullptr: layers are not divided over the devices
  // Why several GPUs got whole layers or parts of them: lines of text; empty: the user said which.
  const std::string& split_reason() const { return split_reason_; }
  const std::string& chat_template() const { return chat_template_; }  // replaces the file's; empty: the file's own

 private:
  friend class Placer;
  ModelInstance() = default;
  Status read(const std::filesystem::path& path, Draft draft);
  Result<std::unique_ptr<mpi::RemoteFile>> share(const GgufFile& file) const;
  Status use(std::vector<ModelDevice> devices, split::Stages stages);
  Status use_tensor_parallel(std::vector<ModelDevice> devices, std::shared_ptr<ShardedGraph> shards);
  void merge_devices();
  Status lay_out();
  Status check_weights() const;
  int recurrent_chunk_tokens(int step_tokens) const;
  std::vector<const Graph*> graphs() const;
  void release_file_pages() const;
  std::unique_ptr<GgufFile> file_, mtp_file_;  // pointers, because graphs and plans refer to them across moves
  mpi::World* world_ = nullptr;
  std::unique_ptr<mpi::RemoteFile> shared_file_, shared_mtp_file_;  // the same with the other hosts
  std::unique_ptr<Model> model_;
  std::shared_ptr<Backend> backend_;  // of this model, and of those opened beside it
  const BackendInfo* backend_info_ = nullptr;
  ModelLayout layout_;
  std::unique_ptr<DeviceWeights> weights_;
  const Format* kv_format_ = nullptr;
  std::vector<ModelDevice> devices_;
  bool is_placed_automatically_ = false;
  split::Stages stages_;
  std::shared_ptr<ShardedGraph> shards_;
  std::string split_reason_;
  std::shared_ptr<const MergedBackendInfo> merged_info_;  // of several devices
  std::filesystem::path path_;
  std::string chat_template_;
};

}  // namespace zinc
