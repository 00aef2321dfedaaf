#include "engine/model_instance.h"

#include <array>

#include "base/format_memory.h"

namespace zinc {

Result<ModelInstance> ModelInstance::load(const std::filesystem::path& path, const LoadOptions& options) {
  ModelInstance instance;
  instance.chat_template_ = options.chat_template;
  ZINC_TRY(file, GgufFile::open(path));
  instance.file_ = std::make_unique<GgufFile>(std::move(file));
  ZINC_TRY(model, read_model(*instance.file_, options.draft));
  instance.model_ = std::make_unique<Model>(std::move(model));
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
  instance.memory_limit_ = options.memory_limit > 0 ? options.memory_limit : available_bytes(device);
  if (instance.file_->file_bytes() > instance.memory_limit_) {
    return fail(ErrorCode::out_of_memory,
                "{}: the model's {} do not fit in the {} of memory available{}; use a smaller model or a smaller "
                "quantization",
                path.string(), format_memory(instance.file_->file_bytes()), format_memory(instance.memory_limit_),
                device.has_dedicated_memory ? fmt::format(" on {}", device.name) : "");
  }
  std::vector<const Graph*> graphs = {&instance.model_->graph};
  if (instance.model_->draft) graphs.push_back(&*instance.model_->draft);
  const GgufFile* mapped = instance.file_.get();
  ZINC_TRY(weights, instance.backend_->upload(
                        graphs, [mapped](std::span<const std::byte> bytes) { mapped->release_pages(bytes); }));
  instance.weights_ = std::move(weights);
  instance.file_->release_pages();
  return instance;
}

}  // namespace zinc
