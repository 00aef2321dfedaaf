#include "engine/model_instance.h"

#include <array>

#include "base/format_memory.h"

namespace zinc {

Status ModelInstance::read(const std::filesystem::path& path, Draft draft) {
  ZINC_TRY(file, GgufFile::open(path));
  file_ = std::make_unique<GgufFile>(std::move(file));
  ZINC_TRY(model, read_model(*file_, draft));
  model_ = std::make_unique<Model>(std::move(model));
  return ok_status();
}

int ModelInstance::scan_chunk_tokens() const {
  return zinc::state_bytes(model_->caches) > 0 ? backend_info_->scan_chunk_tokens : 1;
}

Result<ModelInstance> ModelInstance::open(const std::filesystem::path& path, const LoadOptions& options) {
  ModelInstance instance;
  instance.chat_template_ = options.chat_template;
  if (Status s = instance.read(path, options.draft); !s.ok()) return s.error();
  const std::string_view name = options.backend.empty() ? default_backend().name : std::string_view(options.backend);
  ZINC_TRY(info, find_backend(name));
  instance.backend_info_ = info;
  instance.kv_format_ = options.kv_format ? options.kv_format : find_format(info->default_kv_format);
  if (!has_kv_format(*info, instance.kv_format_->name)) {
    return fail(ErrorCode::unsupported, "the {} backend does not support the KV cache format '{}'; use {}", info->name,
                instance.kv_format_->name, kv_format_names(*info));
  }
  if (Status fits = check_kv_blocks(*instance.kv_format_, instance.model_->caches); !fits.ok()) return fits.error();
  ZINC_TRY(backend, open_backend(name, options.n_threads));
  instance.backend_ = std::move(backend);
  const DeviceInfo device = instance.backend_->info();
  if (device.has_dedicated_memory) instance.device_text_ = " on " + device.name;
  instance.memory_limit_ = options.memory_limit > 0 ? options.memory_limit : available_bytes(device);
  if (Status s = instance.lay_out(path); !s.ok()) return s.error();
  return instance;
}

Result<ModelInstance> ModelInstance::open_beside(const ModelInstance& other, const std::filesystem::path& path) {
  ModelInstance instance;
  if (Status s = instance.read(path, Draft::skip); !s.ok()) return s.error();
  instance.backend_info_ = other.backend_info_;
  instance.kv_format_ = other.kv_format_;
  if (Status fits = check_kv_blocks(*instance.kv_format_, instance.model_->caches); !fits.ok()) return fits.error();
  instance.backend_ = other.backend_;
  instance.device_text_ = other.device_text_;
  instance.memory_limit_ = other.memory_limit_;
  if (Status s = instance.lay_out(path); !s.ok()) return s.error();
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
  ZINC_TRY(draft, read_mtp_file(*mtp_file_, *model_));
  model_->draft = std::move(draft);
  return lay_out(path);
}

std::vector<const Graph*> ModelInstance::graphs() const {
  std::vector<const Graph*> graphs = {&model_->graph};
  if (model_->draft) graphs.push_back(&*model_->draft);
  return graphs;
}

Status ModelInstance::lay_out(const std::filesystem::path& path) {
  layout_.backend = backend_->without_memory();
  ZINC_TRY(weights, layout_.backend->upload(graphs(), [](auto) {}));
  layout_.weights = std::move(weights);
  release_file_pages();
  const size_t n_needed = layout_.weights->device_bytes() + layout_.weights->upload_bytes();
  if (n_needed <= memory_limit_) return ok_status();
  const size_t n_file = file_->file_bytes() + (mtp_file_ ? mtp_file_->file_bytes() : 0);
  return fail(ErrorCode::out_of_memory,
              "{}: the model's weights take {} ({} in the file), which do not fit in the {} of memory available{}; use "
              "a smaller model or a smaller quantization",
              path.string(), format_memory(n_needed), format_memory(n_file), format_memory(memory_limit_),
              device_text_);
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
