#include <dlfcn.h>

#include "base/shared_library.h"

namespace zinc {

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle) return SharedLibrary(handle);
  const char* const why = dlerror();
  return fail(ErrorCode::not_found, "cannot load the library {}: {}", name, why ? why : "unknown error");
}

void* SharedLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

std::filesystem::path SharedLibrary::folder_of(const void* symbol) const {
  Dl_info info{};
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace zinc
