// Small files of a checkpoint's folder.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

Result<std::string> read_text_file(const std::filesystem::path& path);
Result<json::object> read_json_object(const std::filesystem::path& path);
// An empty object if the file does not exist.
Result<json::object> read_optional_json_object(const std::filesystem::path& path);

}  // namespace zinc
