// A shared library loaded at run time (dlopen), for optional dependencies such as GPU drivers. Never closed, because
// drivers keep threads running. Immutable; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace zinc {

class SharedLibrary {
 public:
  // A bare file name is searched in the system's library path; a path is used as is.
  static Result<SharedLibrary> open(const std::string& name);
  void* find(const char* symbol) const;                       // nullptr: no such symbol
  std::filesystem::path folder_of(const void* symbol) const;  // folder of the library that defines it; empty: unknown

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace zinc
