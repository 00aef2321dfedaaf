#include "convert/safetensors.h"

#include <fmt/ranges.h>

#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "base/json.h"
#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxDims = 8;                     // published tensors have at most 5
constexpr std::string_view kMetadata = "__metadata__";

// Finds a name that the header has twice. json::value keeps the last of two equal keys, so the tensor of the first
// would be lost without a message.
struct DuplicateKeyFinder {
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();
  using ErrorCode = boost::system::error_code;

  int depth = 0;
  std::string key;
  std::unordered_set<std::string> keys, inner_keys;
  std::string duplicate;

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode&) {
    if (++depth == 2) inner_keys.clear();
    return true;
  }
  bool on_object_end(size_t, ErrorCode&) { return --depth, true; }
  bool on_array_begin(ErrorCode&) { return true; }
  bool on_array_end(size_t, ErrorCode&) { return true; }
  bool on_key_part(json::string_view text, size_t, ErrorCode&) { return key += text, true; }
  bool on_key(json::string_view text, size_t, ErrorCode&) {
    key += text;
    if (depth <= 2 && !(depth == 1 ? keys : inner_keys).insert(key).second) duplicate = key;
    return key.clear(), true;
  }
  bool on_string_part(json::string_view, size_t, ErrorCode&) { return true; }
  bool on_string(json::string_view, size_t, ErrorCode&) { return true; }
  bool on_number_part(json::string_view, ErrorCode&) { return true; }
  bool on_int64(int64_t, json::string_view, ErrorCode&) { return true; }
  bool on_uint64(uint64_t, json::string_view, ErrorCode&) { return true; }
  bool on_double(double, json::string_view, ErrorCode&) { return true; }
  bool on_bool(bool, ErrorCode&) { return true; }
  bool on_null(ErrorCode&) { return true; }
  bool on_comment_part(json::string_view, ErrorCode&) { return true; }
  bool on_comment(json::string_view, ErrorCode&) { return true; }
};

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  Result<std::vector<SafetensorsTensor>> read() {
    ZINC_TRY(header, read_header());
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [key, value] : header) {
      if (key == kMetadata) continue;
      ZINC_TRY(tensor, read_tensor(key, value));
      tensors.push_back(std::move(tensor));
    }
    ZINC_TRY(checked, check_layout(tensors));
    return tensors;
  }

 private:
  template <class... Args>
  Error invalid(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::invalid_input, "{}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  Error bad_tensor(std::string_view tensor, fmt::format_string<Args...> format, Args&&... args) const {
    return invalid("tensor '{}' {}", sanitize_for_terminal(tensor), fmt::format(format, std::forward<Args>(args)...));
  }

  Result<json::object> read_header() {
    uint64_t n_header = 0;
    if (bytes_.size() < sizeof(n_header)) {
      return invalid("has {} bytes, too few for a safetensors file; download it again", bytes_.size());
    }
    std::memcpy(&n_header, bytes_.data(), sizeof(n_header));
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + sizeof(n_header),
                                bytes_.size() - sizeof(n_header));
    if (n_header > kMaxHeaderBytes) {
      return invalid(
          "is not a safetensors file: its header would have {} bytes, at most {} are allowed; if it is a Git "
          "LFS pointer, get the file itself with 'git lfs pull'",
          n_header, kMaxHeaderBytes);
    }
    if (n_header > rest.size()) {
      return invalid("the header has {} bytes, but only {} follow; the file is cut short, download it again", n_header,
                     rest.size());
    }
    const std::string_view text = rest.substr(0, n_header);
    if (!text.starts_with('{')) return invalid("is not a safetensors file: the header does not begin with '{{'");
    data_ = bytes_.subspan(sizeof(n_header) + n_header);
    ZINC_TRY(checked, check_keys(text));
    Result<json::value> header = parse_json(text);
    if (!header.ok()) return invalid("the header is not valid: {}", header.error().message);
    if (!header.value().is_object()) return invalid("the header is not a JSON object");
    return std::move(header.value().get_object());
  }

  // Malformed JSON is left to parse_json().
  Status check_keys(std::string_view text) const {
    json::parse_options options;
    options.max_depth = 8;
    json::basic_parser<DuplicateKeyFinder> parser(options);
    boost::system::error_code error;
    parser.write_some(false, text.data(), text.size(), error);
    const std::string& duplicate = parser.handler().duplicate;
    if (!duplicate.empty()) return invalid("the header has '{}' twice", sanitize_for_terminal(duplicate));
    return ok_status();
  }

  Result<SafetensorsTensor> read_tensor(std::string_view name, const json::value& value) const {
    const json::object* const object = value.if_object();
    const json::value* const type = object ? object->if_contains("dtype") : nullptr;
    const json::value* const shape = object ? object->if_contains("shape") : nullptr;
    const json::value* const offsets = object ? object->if_contains("data_offsets") : nullptr;
    if (name.empty() || !type || !type->is_string() || !shape || !shape->is_array() || !offsets ||
        !offsets->is_array()) {
      return bad_tensor(name, "needs a dtype, a shape and data_offsets");
    }
    SafetensorsTensor tensor{.name = std::string(name), .type = nullptr, .shape = {}, .bytes = {}};
    const std::string_view type_name = type->get_string();
    tensor.type = find_element_type(type_name);
    if (!tensor.type) {
      return fail(ErrorCode::unsupported, "{}: tensor '{}' has elements of type '{}'; supported are: {}", name_,
                  sanitize_for_terminal(name), sanitize_for_terminal(type_name), element_type_names());
    }
    ZINC_TRY(n_bytes, read_shape(shape->get_array(), tensor));
    ZINC_TRY(located, locate(offsets->get_array(), n_bytes, tensor));
    return tensor;
  }

  static bool read_count(const json::value& value, int64_t& out) {
    const int64_t* const count = value.if_int64();
    if (count) out = *count;
    return count && *count >= 0;
  }

  // Returns the bytes of the tensor.
  Result<uint64_t> read_shape(const json::array& dims, SafetensorsTensor& tensor) const {
    if (dims.size() > kMaxDims) {
      return bad_tensor(tensor.name, "has {} dimensions, at most {} are supported", dims.size(), kMaxDims);
    }
    int64_t n_bytes = static_cast<int64_t>(tensor.type->n_bytes);
    for (const json::value& dim : dims) {
      int64_t length = 0;
      if (!read_count(dim, length)) return bad_tensor(tensor.name, "has a dimension that is not a length");
      tensor.shape.push_back(length);
      if (__builtin_mul_overflow(n_bytes, length, &n_bytes)) {
        return bad_tensor(tensor.name, "has a size that does not fit 63 bits");
      }
    }
    return static_cast<uint64_t>(n_bytes);
  }

  Status locate(const json::array& offsets, uint64_t n_bytes, SafetensorsTensor& tensor) const {
    int64_t begin = 0, end = 0;
    if (offsets.size() != 2 || !read_count(offsets[0], begin) || !read_count(offsets[1], end) || begin > end) {
      return bad_tensor(tensor.name, "has invalid data_offsets; expected the begin and the end of its data");
    }
    if (static_cast<uint64_t>(end) > data_.size()) {
      return bad_tensor(tensor.name,
                        "ends at byte {}, but the file has only {} bytes of data; it is cut short, download "
                        "it again",
                        end, data_.size());
    }
    if (static_cast<uint64_t>(end - begin) != n_bytes) {
      return bad_tensor(tensor.name, "{} of {} needs {} bytes, but its data_offsets span {}", shape_text(tensor.shape),
                        tensor.type->name, n_bytes, end - begin);
    }
    tensor.bytes = data_.subspan(static_cast<size_t>(begin), n_bytes);
    return ok_status();
  }

  // Sorts the tensors by their data, which must be without overlaps and holes.
  Status check_layout(std::vector<SafetensorsTensor>& tensors) const {
    const auto begin_of = [this](const SafetensorsTensor& tensor) {
      return static_cast<size_t>(tensor.bytes.data() - data_.data());
    };
    std::ranges::stable_sort(tensors, [&](const SafetensorsTensor& a, const SafetensorsTensor& b) {
      return std::pair(begin_of(a), a.bytes.size()) < std::pair(begin_of(b), b.bytes.size());
    });
    size_t end = 0;
    for (const SafetensorsTensor& tensor : tensors) {
      const size_t begin = begin_of(tensor);
      if (begin < end) return bad_tensor(tensor.name, "begins at byte {}, inside of another tensor", begin);
      if (begin > end)
        return bad_tensor(tensor.name, "begins at byte {}, expected {}: the data has a hole", begin, end);
      end += tensor.bytes.size();
    }
    if (end == data_.size()) return ok_status();
    return invalid("has {} bytes of data, but its tensors end at byte {}", data_.size(), end);
  }

  std::span<const std::byte> bytes_, data_;
  std::string_view name_;
};

}  // namespace

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  return HeaderReader(bytes, name).read();
}

}  // namespace zinc
