#include "convert/checkpoint_config.h"

#include <cmath>
#include <limits>

#include "convert/read_file.h"

namespace zinc {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

std::optional<int64_t> to_count(const json::value& value) {
  const int64_t* const integer = value.if_int64();
  if (integer && *integer >= 0 && *integer <= kMaxCount) return *integer;
  return std::nullopt;
}

std::optional<double> to_real(const json::value& value) {
  if (const int64_t* const integer = value.if_int64()) return static_cast<double>(*integer);
  const double* const real = value.if_double();
  if (real && std::isfinite(*real)) return *real;
  return std::nullopt;
}

}  // namespace

Result<CheckpointConfig> CheckpointConfig::read(const std::filesystem::path& folder) {
  ZINC_TRY(root, read_json_object(folder / "config.json"));
  return CheckpointConfig(std::move(root), (folder / "config.json").string());
}

CheckpointConfig::CheckpointConfig(json::object root, std::string name)
    : root_(std::move(root)), name_(std::move(name)) {
  if (const json::value* const text = root_.if_contains("text_config"); text && text->is_object()) {
    text_ = text->get_object();
  }
}

const json::value* CheckpointConfig::find(std::string_view key) const {
  for (const json::object* object : {&text_, &root_}) {
    const json::value* const value = object->if_contains(key);
    if (value && !value->is_null()) return value;
  }
  return nullptr;
}

void CheckpointConfig::set_default(std::string_view key, json::value value) {
  if (!has(key)) root_[key] = std::move(value);
}

void CheckpointConfig::fail_with(Error error) {
  if (status_.ok()) status_ = std::move(error);
}

std::vector<std::string> CheckpointConfig::architectures() const {
  std::vector<std::string> names;
  const json::value* const list = root_.if_contains("architectures");
  if (!list || !list->is_array()) return names;
  for (const json::value& name : list->get_array()) {
    if (name.is_string()) names.emplace_back(name.get_string());
  }
  return names;
}

template <class T>
T CheckpointConfig::expect(std::string_view key, const std::optional<T>& value, std::string_view expected, T fallback) {
  if (value) return *value;
  fail_with(fail(ErrorCode::invalid_input, "{}: '{}' is not {}", name_, key, expected));
  return fallback;
}

int64_t CheckpointConfig::count(std::string_view key) {
  if (has(key)) return count_or(key, 1);
  fail_with(
      fail(ErrorCode::invalid_input, "{}: '{}' is missing; the model cannot be converted without it", name_, key));
  return 1;
}

int64_t CheckpointConfig::count_or(std::string_view key, int64_t fallback) {
  const json::value* const value = find(key);
  return value ? expect<int64_t>(key, to_count(*value), "a count", 1) : fallback;
}

double CheckpointConfig::real_or(std::string_view key, double fallback) {
  const json::value* const value = find(key);
  return value ? expect<double>(key, to_real(*value), "a number", 1) : fallback;
}

bool CheckpointConfig::flag_or(std::string_view key, bool fallback) {
  const json::value* const value = find(key);
  if (!value) return fallback;
  return expect<bool>(key, value->is_bool() ? std::optional(value->get_bool()) : std::nullopt, "true or false", false);
}

std::string CheckpointConfig::text_or(std::string_view key, std::string_view fallback) {
  const json::value* const value = find(key);
  if (!value) return std::string(fallback);
  std::optional<std::string> text;
  if (value->is_string()) text = std::string(value->get_string());
  return expect<std::string>(key, text, "a string", "");
}

std::vector<std::string> CheckpointConfig::texts(std::string_view key) {
  std::vector<std::string> out;
  const json::value* const list = find(key);
  if (!list) return out;
  const bool is_list = list->is_array();
  expect<bool>(key, is_list ? std::optional(true) : std::nullopt, "a list", false);
  if (!is_list) return out;
  for (const json::value& element : list->get_array()) {
    if (!element.is_string()) {
      fail_with(fail(ErrorCode::invalid_input, "{}: '{}' has an element that is not a string", name_, key));
      return {};
    }
    out.emplace_back(element.get_string());
  }
  return out;
}

CheckpointConfig CheckpointConfig::section(std::string_view key) const {
  const json::value* const value = find(key);
  return {value && value->is_object() ? value->get_object() : json::object(), name_ + ": " + std::string(key)};
}

CheckpointConfig CheckpointConfig::rope() const {
  CheckpointConfig rope = section(has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (rope.has("full_attention")) return rope.section("full_attention");
  for (const char* key : {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}) {
    if (const json::value* const value = find(key); value && !rope.has(key)) rope.root_[key] = *value;
  }
  if (const json::value* const type = rope.find("type"); type && !rope.has("rope_type")) {
    rope.root_["rope_type"] = json::value(*type);
  }
  return rope;
}

CheckpointConfig CheckpointConfig::sliding_rope() const {
  CheckpointConfig rope = section("rope_parameters").section("sliding_attention");
  if (const json::value* const theta = find("rope_local_base_freq"); theta && !rope.has("rope_theta")) {
    rope.root_["rope_theta"] = *theta;
  }
  return rope;
}

}  // namespace zinc
