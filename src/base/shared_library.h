// A library opened at run time, for what must not be needed to start the program. It is never closed: drivers keep
// threads of their own. Immutable; share freely.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace zinc {

class SharedLibrary {
 public:
  // A file name is looked for where the system keeps libraries; a path is taken as it is.
  static Result<SharedLibrary> open(const std::string& name);
  void* find(const char* symbol) const;                       // nullptr: it has none of that name
  std::filesystem::path folder_of(const void* symbol) const;  // where the library with this symbol lies; empty: unknown

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace zinc
