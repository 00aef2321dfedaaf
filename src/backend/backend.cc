#include "backend/backend.h"

#include <algorithm>

#include "base/memory_info.h"

namespace zinc {

size_t available_bytes(const DeviceInfo& device) {
  const size_t on_device = device.free_bytes > 0 ? device.free_bytes : device.memory_bytes;
  if (device.has_dedicated_memory) return on_device;
  const size_t on_machine = available_memory_bytes();
  return on_device > 0 ? std::min(on_device, on_machine) : on_machine;
}

std::string backend_names() {
  std::string names;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    names += (names.empty() ? "" : ", ") + std::string((*b)->name);
  }
  return names;
}

bool has_kv_format(const BackendInfo& backend, std::string_view format) {
  return std::ranges::find(backend.kv_formats, format) != backend.kv_formats.end();
}

std::string kv_format_names(const BackendInfo& backend) {
  const std::span<const std::string_view> names = backend.kv_formats;
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::vector<std::string_view> all_kv_formats() {
  std::vector<std::string_view> all;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    for (const std::string_view format : (*b)->kv_formats) {
      if (std::ranges::find(all, format) == all.end()) all.push_back(format);
    }
  }
  return all;
}

const BackendInfo& default_backend() {
  const BackendInfo* best = nullptr;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((!best || (*b)->priority > best->priority) && (*b)->is_available()) best = *b;
  }
  ZINC_CHECK(best != nullptr);  // the reference backend is always available
  return *best;
}

Result<const BackendInfo*> find_backend(std::string_view full_name) {
  const std::string_view name = full_name.substr(0, full_name.find(':'));
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->name == name) return *b;
  }
  return fail(ErrorCode::not_found, "unknown backend '{}'; this build has: {}", name, backend_names());
}

Result<std::unique_ptr<Backend>> open_backend(std::string_view name, int n_threads) {
  ZINC_TRY(info, find_backend(name));
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return info->open(n_threads);
  if (!info->open_device) {
    return fail(ErrorCode::invalid_input, "'{}' names a device, but the {} backend has only one; use '{}'", name,
                info->name, info->name);
  }
  return info->open_device(name.substr(colon + 1), n_threads);
}

}  // namespace zinc
