#include "engine/model_instance.h"

#include <array>

#include "base/format_memory.h"
#include "engine/placement.h"

namespace zinc {

Status ModelInstance::read(const std::filesystem::path& path, Draft draft) {
  path_ = path;
  ZINC_TRY(file, GgufFile::open(path));
  file_ = std::make_unique<GgufFile>(std::move(file));
  ZINC_TRY(shared, share(*file_));
  shared_file_ = std::move(shared);
  ZINC_TRY(model, read_model(*file_, draft));
  model_ = std::make_unique<Model>(std::move(model));
  return ok_status();
}

// nullptr: the model runs on this host alone.
Result<std::unique_ptr<mpi::RemoteFile>> ModelInstance::share(const GgufFile& file) const {
  if (!world_) return std::unique_ptr<mpi::RemoteFile>();
  return mpi::RemoteFile::open(*world_, file.shard_names(), file.shard_bytes());
}

int ModelInstance::scan_chunk_tokens(int step_tokens) const {
  const int streamed = weights_->prompt_chunk_tokens();
  return streamed > 1 && streamed <= step_tokens ? streamed : recurrent_chunk_tokens(step_tokens);
}

int ModelInstance::tail_chunk_tokens(int step_tokens) const {
  const int scanned = recurrent_chunk_tokens(step_tokens);
  return scanned > 1 ? scanned : scan_chunk_tokens(step_tokens);
}

// Of the recurrent scan.
int ModelInstance::recurrent_chunk_tokens(int step_tokens) const {
  const int scanned = zinc::state_bytes(model_->caches) > 0 ? backend_info_->scan_chunk_tokens : 1;
  return scanned <= step_tokens ? scanned : 1;  // smaller steps have no whole scan chunk
}

MemoryLimits ModelInstance::memory_limits() const {
  std::vector<size_t> bytes;
  for (const ModelDevice& device : devices_) bytes.push_back(device.memory_limit);
  return bytes;
}

MergedBackendInfo::MergedBackendInfo(std::span<const ModelDevice> devices) : info(*devices.back().info) {
  for (const std::string_view format : info.kv_formats) {
    if (std::ranges::all_of(devices, [&](const ModelDevice& d) { return has_kv_format(*d.info, format); })) {
      kv_formats.push_back(format);
    }
  }
  for (const ModelDevice& device : devices) {
    name += (name.empty() ? "" : "+") + device.name;
    info.matmul_activation_bits = std::min(info.matmul_activation_bits, device.info->matmul_activation_bits);
    info.attention_activation_bits = std::min(info.attention_activation_bits, device.info->attention_activation_bits);
    info.scan_chunk_tokens = std::max(info.scan_chunk_tokens, device.info->scan_chunk_tokens);
  }
  info.name = name;
  info.kv_formats = kv_formats;
}

namespace {

std::vector<std::shared_ptr<Backend>> backends_of(std::span<const ModelDevice> devices) {
  std::vector<std::shared_ptr<Backend>> backends;
  for (const ModelDevice& device : devices) backends.push_back(device.backend);
  return backends;
}

}  // namespace

// Lays the model out on these devices, in stages if there are several.
Status ModelInstance::use(std::vector<ModelDevice> devices, split::Stages stages) {
  devices_ = std::move(devices);
  stages_ = std::move(stages);
  layout_ = {};
  merged_info_ = nullptr;
  shards_ = nullptr;
  if (devices_.size() == 1) {
    backend_ = devices_[0].backend;
    backend_info_ = devices_[0].info;
    return lay_out();
  }
  merge_devices();
  ZINC_TRY(backend, split::make_split_backend(model_->graph, stages_, backends_of(devices_)));
  backend_ = std::move(backend);
  return lay_out();
}

// A part of every layer on each of the devices.
Status ModelInstance::use_tensor_parallel(std::vector<ModelDevice> devices, std::shared_ptr<ShardedGraph> shards) {
  devices_ = std::move(devices);
  stages_ = {};
  layout_ = {};
  shards_ = std::move(shards);
  merge_devices();
  backend_ = split::make_tensor_backend(model_->graph, shards_, backends_of(devices_));
  return lay_out();
}

void ModelInstance::merge_devices() {
  merged_info_ = std::make_shared<const MergedBackendInfo>(devices_);
  backend_info_ = &merged_info_->info;
}

Result<ModelInstance> ModelInstance::open(const std::filesystem::path& path, const LoadOptions& options) {
  ModelInstance instance;
  instance.chat_template_ = options.chat_template;
  instance.world_ = options.world;
  if (Status s = instance.read(path, options.draft); !s.ok()) return s.error();
  if (Status s = Placer(instance, options).place(); !s.ok()) return s.error();
  return instance;
}

Result<ModelInstance> ModelInstance::open_beside(const ModelInstance& other, const std::filesystem::path& path) {
  ModelInstance instance;
  instance.world_ = other.world_;
  if (Status s = instance.read(path, Draft::skip); !s.ok()) return s.error();
  instance.kv_format_ = other.kv_format_;
  if (Status fits = check_kv_blocks(*instance.kv_format_, instance.model_->caches); !fits.ok()) return fits.error();
  if (Status s = instance.use({other.devices_.back()}, {}); !s.ok()) return s.error();
  if (Status s = instance.check_weights(); !s.ok()) return s.error();
  return instance;
}

Result<ModelInstance> ModelInstance::load(const std::filesystem::path& path, const LoadOptions& options) {
  ZINC_TRY(instance, open(path, options));
  if (Status s = instance.upload(); !s.ok()) return s.error();
  return std::move(instance);
}

Status ModelInstance::add_mtp_file(const std::filesystem::path& path) {
  ZINC_CHECK(!weights_);
  ZINC_TRY(file, GgufFile::open(path));
  mtp_file_ = std::make_unique<GgufFile>(std::move(file));
  ZINC_TRY(shared, share(*mtp_file_));
  shared_mtp_file_ = std::move(shared);
  ZINC_TRY(draft, read_mtp_file(*mtp_file_, *model_));
  model_->draft = std::move(draft);
  if (Status s = lay_out(); !s.ok()) return s;
  return check_weights();
}

std::vector<const Graph*> ModelInstance::graphs() const {
  std::vector<const Graph*> graphs = {&model_->graph};
  if (model_->draft) graphs.push_back(&*model_->draft);
  return graphs;
}

Status ModelInstance::lay_out() {
  layout_.weights = nullptr;
  layout_.backend = backend_->without_memory();
  ZINC_TRY(weights, layout_.backend->upload(graphs(), [](auto) {}));
  layout_.weights = std::move(weights);
  release_file_pages();
  return ok_status();
}

Status ModelInstance::check_weights() const {
  for (size_t d = 0; d < devices_.size(); ++d) {
    const ModelDevice& device = devices_[d];
    const size_t n_needed = layout_.weights->device_bytes_on(d) + layout_.weights->upload_bytes_on(d);
    if (n_needed <= device.memory_limit) continue;
    const size_t n_file = file_->file_bytes() + (mtp_file_ ? mtp_file_->file_bytes() : 0);
    return fail(
        ErrorCode::out_of_memory,
        "{}: {} take {} ({} in the file), which do not fit in the {} of memory available{}; use a smaller model or "
        "a smaller quantization{}",
        path_.string(), devices_.size() == 1 ? "the model's weights" : "the weights of layers on " + device.name,
        format_memory(n_needed), format_memory(n_file), format_memory(device.memory_limit), device.memory_text(),
        split_hint(*this));
  }
  return ok_status();
}

Status ModelInstance::upload() {
  if (weights_) return ok_status();
  const auto release = [file = file_.get(), mtp_file = mtp_file_.get()](std::span<const std::byte> bytes) {
    file->release_pages(bytes);
    if (mtp_file) mtp_file->release_pages(bytes);
  };
  ZINC_TRY(weights, backend_->upload(graphs(), release));
  weights_ = std::move(weights);
  release_file_pages();
  return ok_status();
}

void ModelInstance::release_file_pages() const {
  file_->release_pages();
  if (mtp_file_) mtp_file_->release_pages();
}

}  // namespace zinc
