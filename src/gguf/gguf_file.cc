#include "gguf/gguf_file.h"

#include <fmt/format.h>

#include <concepts>
#include <limits>
#include <optional>

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr int64_t kMaxShards = 65535;        // split.count is 16 bits wide
constexpr uint64_t kMaxElements = 1u << 26;  // of an array: far above any vocabulary, limits hostile files

// "-00001-of-00003.gguf", the end of a shard's file name; `shard` counts from 0.
std::string shard_suffix(int64_t shard, int64_t n_shards) {
  return fmt::format("-{:05}-of-{:05}.gguf", shard + 1, n_shards);
}

bool convert(const GgufValue& value, int64_t& out) {
  if (const uint64_t* wide = std::get_if<uint64_t>(&value.data)) {
    out = static_cast<int64_t>(*wide);
    return *wide <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  }
  const int64_t* number = std::get_if<int64_t>(&value.data);
  if (number) out = *number;
  return number;
}

bool convert(const GgufValue& value, double& out) {
  int64_t integer = 0;
  if (convert(value, integer)) {
    out = static_cast<double>(integer);
    return true;
  }
  const double* number = std::get_if<double>(&value.data);
  if (number) out = *number;
  return number;
}

bool convert(const GgufValue& value, bool& out) {
  const bool* flag = std::get_if<bool>(&value.data);
  if (flag) out = *flag;
  return flag;
}

bool convert(const GgufValue& value, std::string_view& out) {
  const std::string_view* text = std::get_if<std::string_view>(&value.data);
  if (text) out = *text;
  return text;
}

template <class T>
bool convert(const GgufValue& value, std::vector<T>& out) {
  const GgufArray* array = std::get_if<GgufArray>(&value.data);
  if (!array || array->size() > kMaxElements) return false;
  bool fits = true;
  array->for_each([&](const GgufValue& element) {
    T converted{};
    bool flag = false;
    if constexpr (std::same_as<T, int64_t>) {
      fits = convert(element, converted) || convert(element, flag);
      if (flag) converted = 1;
    } else {
      fits = convert(element, converted);
    }
    if (fits) out.push_back(converted);
    return fits;
  });
  return fits;
}

template <class T>
constexpr std::string_view kExpectedType = "";
template <>
constexpr std::string_view kExpectedType<int64_t> = "an integer below 2^63";
template <>
constexpr std::string_view kExpectedType<double> = "a number";
template <>
constexpr std::string_view kExpectedType<bool> = "a bool";
template <>
constexpr std::string_view kExpectedType<std::string_view> = "a string";
template <>
constexpr std::string_view kExpectedType<std::vector<int64_t>> = "an array of integers below 2^63";
template <>
constexpr std::string_view kExpectedType<std::vector<double>> = "an array of numbers";
template <>
constexpr std::string_view kExpectedType<std::vector<bool>> = "an array of bools";
template <>
constexpr std::string_view kExpectedType<std::vector<std::string_view>> = "an array of strings";

}  // namespace

Result<GgufFile> GgufFile::open(const std::filesystem::path& first_shard) {
  GgufFile file;
  file.name_ = first_shard.string();
  ZINC_TRY(first, file.map_shard(first_shard));
  if (!file.find("split.count")) return file;
  ZINC_TRY(n_shards, file.get<int64_t>("split.count"));
  if (n_shards == 0 || n_shards == 1) return file;
  ZINC_TRY(rest, file.map_other_shards(n_shards));
  return file;
}

Status GgufFile::map_other_shards(int64_t n_shards) {
  ZINC_TRY(prefix, path_prefix(n_shards));
  for (int64_t i = 1; i < n_shards; ++i) {
    ZINC_TRY(mapped, map_shard(prefix + shard_suffix(i, n_shards)));
  }
  if (!find("split.tensors.count")) return ok_status();
  ZINC_TRY(n_tensors, get<int64_t>("split.tensors.count"));
  if (std::cmp_equal(n_tensors, tensors_.size())) return ok_status();
  return fail(ErrorCode::invalid_input, "{}: split.tensors.count is {}, but the {} shards hold {} tensors", name_,
              n_tensors, n_shards, tensors_.size());
}

// The common path prefix of all shards; an error unless this is the first shard and named as one.
Result<std::string> GgufFile::path_prefix(int64_t n_shards) const {
  ZINC_TRY(shard, get<int64_t>("split.no"));
  if (n_shards < 0 || n_shards > kMaxShards || shard < 0 || shard >= n_shards) {
    return fail(ErrorCode::invalid_input, "{}: split.no is {} and split.count is {}; expected a shard of at most {}",
                name_, shard, n_shards, kMaxShards);
  }
  const std::string suffix = shard_suffix(shard, n_shards);
  if (!name_.ends_with(suffix)) {
    return fail(
        ErrorCode::invalid_input,
        "{}: this is shard {} of {} of a split model; its name must end in '{}' so that the other shards can be found",
        name_, shard + 1, n_shards, suffix);
  }
  const std::string prefix = name_.substr(0, name_.size() - suffix.size());
  if (shard == 0) return prefix;
  return fail(ErrorCode::invalid_input, "{}: this is shard {} of {}; pass the first one, {}{}", name_, shard + 1,
              n_shards, prefix, shard_suffix(0, n_shards));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.name_ = std::move(name);
  ZINC_TRY(added, file.add_shard(bytes, file.name_));
  return file;
}

Status GgufFile::map_shard(const std::filesystem::path& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok() && !shard_names_.empty()) {
    return fail(mapped.error().code, "{}: shard {} of the model cannot be read: {}", name_, shard_names_.size() + 1,
                mapped.error().message);
  }
  if (!mapped.ok()) return mapped.error();
  mapped_.push_back(std::move(mapped.value()));
  return add_shard(mapped_.back().bytes(), path.string());
}

// Metadata comes from the first shard; later shards must carry the expected split.no and split.count.
Status GgufFile::add_shard(std::span<const std::byte> bytes, const std::string& name) {
  ZINC_TRY(shard, parse_gguf_shard(bytes, name));
  const int number = static_cast<int>(shard_names_.size());
  if (number == 0) {
    metadata_ = std::move(shard.metadata);
    for (size_t i = 0; i < metadata_.size(); ++i) metadata_index_.emplace(metadata_[i].first, i);
  } else {
    ZINC_TRY(checked, check_next_shard(shard, name, number));
  }
  for (GgufTensor& tensor : shard.tensors) {
    tensor.shard = number;
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return fail(ErrorCode::invalid_input, "{}: tensor '{}' is also in an earlier shard", name,
                  sanitize_for_terminal(tensor.name));
    }
    tensors_.push_back(tensor);
  }
  shard_names_.push_back(name);
  file_bytes_ += bytes.size();
  return ok_status();
}

Status GgufFile::check_next_shard(const GgufShard& shard, std::string_view name, int number) const {
  const int64_t n_shards = get_or<int64_t>("split.count", 1);
  int64_t found_number = -1, found_count = -1;
  for (const auto& [key, value] : shard.metadata) {
    if (key == "split.no" && !convert(value, found_number)) found_number = -1;
    if (key == "split.count" && !convert(value, found_count)) found_count = -1;
  }
  if (found_number == number && found_count == n_shards) return ok_status();
  return fail(ErrorCode::invalid_input, "{}: expected split.no {} and split.count {}, found {} and {}", name, number,
              n_shards, found_number, found_count);
}

std::vector<std::span<const std::byte>> GgufFile::shard_bytes() const {
  std::vector<std::span<const std::byte>> all;
  for (const MappedFile& shard : mapped_) all.push_back(shard.bytes());
  return all;
}

void GgufFile::release_pages(std::span<const std::byte> part) const {
  for (const MappedFile& shard : mapped_) shard.release_pages(part);
}

void GgufFile::release_pages() const {
  for (const MappedFile& shard : mapped_) shard.release_pages(shard.bytes());
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto entry = metadata_index_.find(key);
  return entry == metadata_index_.end() ? nullptr : &metadata_[entry->second].second;
}

template <class T>
Result<T> GgufFile::get(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) {
    return fail(ErrorCode::not_found, "{}: missing metadata key '{}'; expected {}", name_, key, kExpectedType<T>);
  }
  T out{};
  if (convert(*value, out)) return out;
  return fail(ErrorCode::invalid_input, "{}: metadata key '{}' is of type {}; expected {}", name_, key,
              value->type_name(), kExpectedType<T>);
}

template <class T>
T GgufFile::get_or(std::string_view key, T fallback) const {
  const GgufValue* value = find(key);
  T out{};
  return value && convert(*value, out) ? out : fallback;
}

template Result<int64_t> GgufFile::get(std::string_view) const;
template Result<double> GgufFile::get(std::string_view) const;
template Result<bool> GgufFile::get(std::string_view) const;
template Result<std::string_view> GgufFile::get(std::string_view) const;
template Result<std::vector<int64_t>> GgufFile::get(std::string_view) const;
template Result<std::vector<double>> GgufFile::get(std::string_view) const;
template Result<std::vector<bool>> GgufFile::get(std::string_view) const;
template Result<std::vector<std::string_view>> GgufFile::get(std::string_view) const;
template int64_t GgufFile::get_or(std::string_view, int64_t) const;
template double GgufFile::get_or(std::string_view, double) const;
template bool GgufFile::get_or(std::string_view, bool) const;
template std::string_view GgufFile::get_or(std::string_view, std::string_view) const;
template std::vector<int64_t> GgufFile::get_or(std::string_view, std::vector<int64_t>) const;
template std::vector<double> GgufFile::get_or(std::string_view, std::vector<double>) const;
template std::vector<bool> GgufFile::get_or(std::string_view, std::vector<bool>) const;
template std::vector<std::string_view> GgufFile::get_or(std::string_view, std::vector<std::string_view>) const;

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto entry = tensor_index_.find(name);
  return entry == tensor_index_.end() ? nullptr : &tensors_[entry->second];
}

Result<TensorView> GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (found) return found->view;
  return fail(ErrorCode::not_found, "{}: missing tensor '{}'", name_, name);
}

}  // namespace zinc
