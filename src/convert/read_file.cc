#include "convert/read_file.h"

#include "base/mapped_file.h"

namespace zinc {

Result<std::string> read_text_file(const std::filesystem::path& path) {
  ZINC_TRY(file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Result<json::object> read_json_object(const std::filesystem::path& path) {
  ZINC_TRY(file, MappedFile::open(path));
  const Result<json::value> value =
      parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  if (!value.ok()) return fail(value.error().code, "{}: {}", path.string(), value.error().message);
  if (value.value().is_object()) return value.value().get_object();
  return fail(ErrorCode::invalid_input, "{}: is not a JSON object", path.string());
}

Result<json::object> read_optional_json_object(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return json::object();
  return read_json_object(path);
}

}  // namespace zinc
