#include "gguf/gguf_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <unordered_set>

#include "base/sanitize_for_terminal.h"
#include "gguf/byte_reader.h"

namespace zinc {
namespace {

constexpr int kMaxArrayDepth = 8;         // real files nest at most once; bounds the recursion
constexpr uint64_t kMaxKeyBytes = 65535;  // of the GGUF specification
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;    // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // name length, name, dimensions, type, offset

bool multiply(uint64_t a, uint64_t b, uint64_t& out) { return !__builtin_mul_overflow(a, b, &out); }
bool add(uint64_t a, uint64_t b, uint64_t& out) { return !__builtin_add_overflow(a, b, &out); }

// Files that are not GGUF, recognized by their first bytes.
struct OtherMagic {
  std::string_view magic;
  std::string_view hint;
};
constexpr std::array<OtherMagic, 8> kOtherMagics = {{
    {"FUGG", "it is a big-endian GGUF, which is not supported; convert it to little-endian"},
    {"version https://git-lfs", "it is a Git LFS pointer: download the file itself with 'git lfs pull'"},
    {"tjgg", "it is in the GGJT format, which GGUF replaced: convert the model to GGUF"},
    {"fmgg", "it is in the GGMF format, which GGUF replaced: convert the model to GGUF"},
    {"lmgg", "it is in the GGML format, which GGUF replaced: convert the model to GGUF"},
    {"PK\x03\x04", "it is a zip or PyTorch file: convert the model to GGUF"},
    {"<!DOCTYPE", "it is an HTML page, probably an error page saved instead of the model: download it again"},
    {"<html", "it is an HTML page, probably an error page saved instead of the model: download it again"},
}};

class ShardParser {
 public:
  ShardParser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), reader_(bytes), name_(name) {}

  Result<GgufShard> parse() {
    ZINC_TRY(counts, read_header());
    for (uint64_t i = 0; i < counts.n_metadata; ++i) {
      ZINC_TRY(read, read_metadata(i));
    }
    ZINC_TRY(alignment, read_alignment());
    alignment_ = alignment;
    for (uint64_t i = 0; i < counts.n_tensors; ++i) {
      ZINC_TRY(read, read_tensor(i));
    }
    ZINC_TRY(located, locate_tensors());
    return std::move(shard_);
  }

 private:
  struct Counts {
    uint64_t n_tensors, n_metadata;
  };

  template <class... Args>
  Error invalid(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::invalid_input, "{}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Error for the read that just failed; `what` names the field.
  Error truncated(std::string_view what) const {
    return invalid("{} at byte {} needs {} bytes, but the file has only {} more; it is truncated or damaged", what,
                   reader_.offset(), reader_.requested(), reader_.remaining());
  }

  Error bad_magic() const {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    for (const OtherMagic& other : kOtherMagics) {
      if (text.starts_with(other.magic)) return invalid("is not a GGUF file: {}", other.hint);
    }
    return invalid("is not a GGUF file: expected it to begin with 'GGUF', found '{}'",
                   sanitize_for_terminal(text.substr(0, 4)));
  }

  Result<Counts> read_header() {
    if (bytes_.empty()) return invalid("is empty; expected a GGUF file");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    if (!text.starts_with("GGUF")) return bad_magic();
    uint32_t magic = 0, version = 0;
    Counts counts{};
    if (!reader_.read(magic) || !reader_.read(version)) return truncated("the GGUF version");
    if (version != 0 && (version & 0xFFFF) == 0) {
      return fail(ErrorCode::unsupported, "{}: big-endian GGUF is not supported; convert it to little-endian", name_);
    }
    if (version != 2 && version != 3) {
      return fail(ErrorCode::unsupported, "{}: GGUF version {} is not supported; expected 2 or 3", name_, version);
    }
    if (!reader_.read(counts.n_tensors) || !reader_.read(counts.n_metadata)) return truncated("the GGUF header");
    if (counts.n_metadata > reader_.remaining() / kMinKeyValueBytes) {
      return invalid("claims {} metadata keys, but only {} bytes follow the header", counts.n_metadata,
                     reader_.remaining());
    }
    if (counts.n_tensors > reader_.remaining() / kMinTensorBytes) {
      return invalid("claims {} tensors, but only {} bytes follow the header", counts.n_tensors, reader_.remaining());
    }
    return counts;
  }

  Status read_metadata(uint64_t index) {
    const size_t begin = reader_.offset();
    std::string_view key;
    if (!reader_.read(key)) return truncated(fmt::format("metadata key {}", index));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return invalid("metadata key {} at byte {} has {} bytes; expected 1 to {}", index, begin, key.size(),
                     kMaxKeyBytes);
    }
    if (!keys_.insert(key).second) return invalid("metadata key '{}' appears twice", sanitize_for_terminal(key));
    ZINC_TRY(type, read_type(key));
    const size_t value_at = reader_.offset();
    ZINC_TRY(checked, check_value(key, type, 0));
    shard_.metadata.emplace_back(key, make_gguf_value(type, reader_.bytes_from(value_at)));
    return ok_status();
  }

  Result<GgufType> read_type(std::string_view key) {
    uint32_t type = 0;
    if (!reader_.read(type)) return truncated(fmt::format("the type of metadata key '{}'", sanitize_for_terminal(key)));
    if (type < kGgufTypes) return GgufType{type};
    return invalid("metadata key '{}' has the unknown type {}; expected 0 to {}", sanitize_for_terminal(key), type,
                   kGgufTypes - 1);
  }

  // Skips one value after checking that it is inside the file.
  Status check_value(std::string_view key, GgufType type, int depth) {
    if (type == GgufType::array) return check_array(key, depth + 1);
    std::string_view text;
    const bool fits = type == GgufType::string ? reader_.read(text) : reader_.skip(fixed_bytes(type));
    if (!fits) return truncated(fmt::format("the value of metadata key '{}'", sanitize_for_terminal(key)));
    return ok_status();
  }

  Status check_array(std::string_view key, int depth) {
    if (depth > kMaxArrayDepth) {
      return invalid("metadata key '{}' nests arrays more than {} deep", sanitize_for_terminal(key), kMaxArrayDepth);
    }
    ZINC_TRY(type, read_type(key));
    uint64_t size = 0;
    if (!reader_.read(size))
      return truncated(fmt::format("the array length of metadata key '{}'", sanitize_for_terminal(key)));
    const size_t element_bytes = fixed_bytes(type);
    if (size > reader_.remaining() / std::max<size_t>(element_bytes, 1)) {
      return invalid("metadata key '{}' claims an array of {} elements, but only {} bytes follow",
                     sanitize_for_terminal(key), size, reader_.remaining());
    }
    if (element_bytes != 0) {
      reader_.skip(size * element_bytes);
      return ok_status();
    }
    std::string_view text;
    for (uint64_t i = 0; i < size; ++i) {
      if (type == GgufType::string && reader_.read(text)) continue;  // a vocabulary has 256k of them
      ZINC_TRY(checked, check_value(key, type, depth));
    }
    return ok_status();
  }

  Result<uint64_t> read_alignment() const {
    const auto entry = std::find_if(shard_.metadata.begin(), shard_.metadata.end(),
                                    [](const auto& pair) { return pair.first == "general.alignment"; });
    if (entry == shard_.metadata.end()) return uint64_t{kDefaultAlignment};
    const GgufValue& value = entry->second;
    if (value.type != GgufType::u32) {
      return invalid("general.alignment is of type {}; expected u32", value.type_name());
    }
    const uint64_t alignment = static_cast<uint64_t>(std::get<int64_t>(value.data));
    if (!std::has_single_bit(alignment)) return invalid("general.alignment is {}; expected a power of two", alignment);
    return alignment;
  }

  Status read_tensor(uint64_t index) {
    const size_t begin = reader_.offset();
    GgufTensor tensor;
    if (!reader_.read(tensor.name)) return truncated(fmt::format("the name of tensor {}", index));
    if (tensor.name.empty() || tensor.name.size() > kMaxKeyBytes) {
      return invalid("the name of tensor {} at byte {} has {} bytes; expected 1 to {}", index, begin,
                     tensor.name.size(), kMaxKeyBytes);
    }
    if (!names_.insert(tensor.name).second)
      return invalid("tensor '{}' appears twice", sanitize_for_terminal(tensor.name));
    ZINC_TRY(shape, read_shape(tensor.name));
    uint32_t type = 0;
    if (!reader_.read(type) || !reader_.read(tensor.offset)) {
      return truncated(fmt::format("the type and offset of tensor '{}'", sanitize_for_terminal(tensor.name)));
    }
    tensor.view.shape = shape;
    tensor.view.format = find_format(type);
    if (!tensor.view.format) {
      return fail(ErrorCode::unsupported, "{}: tensor '{}' has type {}, which is not supported", name_,
                  sanitize_for_terminal(tensor.name), type);
    }
    shard_.tensors.push_back(tensor);
    return ok_status();
  }

  Result<Shape> read_shape(std::string_view tensor) {
    uint32_t n_dims = 0;
    if (!reader_.read(n_dims)) return truncated(fmt::format("the shape of tensor '{}'", sanitize_for_terminal(tensor)));
    if (n_dims > Shape::kMaxDims) {
      return invalid("tensor '{}' has {} dimensions; expected at most {}", sanitize_for_terminal(tensor), n_dims,
                     Shape::kMaxDims);
    }
    std::array<int64_t, Shape::kMaxDims> dims{};
    uint64_t elems = 1;
    for (size_t i = 0; i < n_dims; ++i) {
      uint64_t dim = 0;
      if (!reader_.read(dim)) return truncated(fmt::format("the shape of tensor '{}'", sanitize_for_terminal(tensor)));
      if (dim == 0) return invalid("tensor '{}' has a dimension of length 0", sanitize_for_terminal(tensor));
      if (!multiply(elems, dim, elems) || elems > std::numeric_limits<int64_t>::max()) {
        return invalid("tensor '{}' has more elements than fit in 63 bits", sanitize_for_terminal(tensor));
      }
      dims[n_dims - 1 - i] = static_cast<int64_t>(dim);  // innermost first on disk
    }
    return Shape(std::span(dims).first(n_dims));
  }

  // The tensors' data begins at the next multiple of the alignment.
  Status locate_tensors() {
    const uint64_t data_at = (reader_.offset() + alignment_ - 1) & ~(alignment_ - 1);
    for (GgufTensor& tensor : shard_.tensors) {
      ZINC_TRY(located, locate(tensor, data_at));
    }
    return check_overlap();
  }

  Status locate(GgufTensor& tensor, uint64_t data_at) const {
    const Format& format = *tensor.view.format;
    const uint64_t row_elems = static_cast<uint64_t>(tensor.view.shape.inner());
    const uint64_t n_elems = static_cast<uint64_t>(tensor.view.shape.elems());
    if (row_elems % format.block_elems != 0) {
      return invalid("tensor '{}' {} is of type {}, whose row length must be a multiple of {} elements",
                     sanitize_for_terminal(tensor.name), tensor.view.shape.to_string(), format.name,
                     format.block_elems);
    }
    if (tensor.offset % alignment_ != 0) {
      return invalid("tensor '{}' has offset {}, which is not a multiple of the alignment {}",
                     sanitize_for_terminal(tensor.name), tensor.offset, alignment_);
    }
    uint64_t n_bytes = 0, begin = 0, end = 0;
    if (!multiply(n_elems / format.block_elems, format.block_bytes, n_bytes) || !add(data_at, tensor.offset, begin) ||
        !add(begin, n_bytes, end) || end > bytes_.size()) {
      return invalid(
          "tensor '{}' {} {} at data offset {} does not fit: the data begins at byte {} and the file has {}; "
          "it is truncated or damaged",
          sanitize_for_terminal(tensor.name), format.name, tensor.view.shape.to_string(), tensor.offset, data_at,
          bytes_.size());
    }
    tensor.view.bytes = bytes_.subspan(begin, n_bytes);
    tensor.offset = begin;
    return ok_status();
  }

  // Overlapping tensors would let a small file request any amount of memory.
  Status check_overlap() const {
    std::vector<const GgufTensor*> by_offset;
    for (const GgufTensor& tensor : shard_.tensors) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const GgufTensor& before = *by_offset[i - 1];
      if (before.offset + before.view.bytes.size() > by_offset[i]->offset) {
        return invalid("tensors '{}' and '{}' overlap at byte {}", sanitize_for_terminal(before.name),
                       sanitize_for_terminal(by_offset[i]->name), by_offset[i]->offset);
      }
    }
    return ok_status();
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  std::string_view name_;
  uint64_t alignment_ = kDefaultAlignment;
  std::unordered_set<std::string_view> keys_, names_;
  GgufShard shard_;
};

}  // namespace

Result<GgufShard> parse_gguf_shard(std::span<const std::byte> bytes, std::string_view name) {
  return ShardParser(bytes, name).parse();
}

}  // namespace zinc
