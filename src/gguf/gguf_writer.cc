#include "gguf/gguf_writer.h"

#include <bit>

#include "base/check.h"

namespace zinc {
namespace {

constexpr uint32_t kVersion = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";

}  // namespace

GgufHeader& GgufHeader::set_encoded(std::string_view key, GgufType type, std::string encoded) {
  ZINC_CHECK(!key.empty());
  if (key == kAlignmentKey) {
    ZINC_CHECK(type == GgufType::u32 && tensors_.empty());  // it decides their offsets
    std::memcpy(&alignment_, encoded.data(), sizeof(alignment_));
    ZINC_CHECK(std::has_single_bit(alignment_));
  }
  const auto [entry, is_new] = key_index_.emplace(key, keys_.size());
  if (is_new) {
    keys_.push_back({std::string(key), type, std::move(encoded)});
  } else {
    keys_[entry->second] = {std::string(key), type, std::move(encoded)};
  }
  return *this;
}

GgufHeader& GgufHeader::add_tensor(std::string_view name, const Shape& shape, const Format& format) {
  ZINC_CHECK(!name.empty() && format.gguf_id != kNoGgufType && shape.inner() % format.block_elems == 0);
  const bool is_new = tensor_index_.emplace(name, tensors_.size()).second;
  ZINC_CHECK(is_new);
  const uint64_t n_bytes = row_bytes(format, static_cast<size_t>(shape.elems()));
  tensors_.push_back({std::string(name), &format, shape, n_bytes, data_bytes()});
  return *this;
}

// Up to the end of the last tensor, padding included.
uint64_t GgufHeader::data_bytes() const {
  return tensors_.empty() ? 0 : aligned(tensors_.back().offset + tensors_.back().n_bytes);
}

uint64_t GgufHeader::file_bytes() const { return encode().size() + data_bytes(); }

std::string GgufHeader::encode() const {
  std::string out = "GGUF";
  append_gguf_number(out, kVersion);
  append_gguf_number(out, uint64_t{tensors_.size()});
  append_gguf_number(out, uint64_t{keys_.size()});
  for (const Key& key : keys_) {
    append_gguf_string(out, key.name);
    append_gguf_number(out, static_cast<uint32_t>(key.type));
    out += key.encoded;
  }
  for (const TensorInfo& tensor : tensors_) {
    append_gguf_string(out, tensor.name);
    append_gguf_number(out, static_cast<uint32_t>(tensor.shape.n_dims()));
    for (int i = tensor.shape.n_dims() - 1; i >= 0; --i) {
      append_gguf_number(out, static_cast<uint64_t>(tensor.shape[i]));
    }
    append_gguf_number(out, tensor.format->gguf_id);
    append_gguf_number(out, tensor.offset);
  }
  if (!tensors_.empty()) out.resize(aligned(out.size()), '\0');
  return out;
}

GgufFileWriter::GgufFileWriter(AtomicFile file, const GgufHeader& header)
    : file_(std::move(file)), tensors_(header.tensors()) {
  for (const GgufHeader::TensorInfo& tensor : tensors_) {
    padding_.push_back(header.aligned(tensor.n_bytes) - tensor.n_bytes);
  }
}

Result<GgufFileWriter> GgufFileWriter::create(const std::filesystem::path& path, const GgufHeader& header) {
  ZINC_TRY(file, AtomicFile::create(path));
  GgufFileWriter writer(std::move(file), header);
  const std::string encoded = header.encode();
  ZINC_TRY(written, writer.put(std::as_bytes(std::span(encoded))));
  return writer;
}

Status GgufFileWriter::put(std::span<const std::byte> bytes) {
  n_written_ += bytes.size();
  return file_.write(bytes);
}

Status GgufFileWriter::write(std::span<const std::byte> bytes) {
  ZINC_CHECK(!is_complete() && bytes.size() <= current().n_bytes - n_in_tensor_);
  ZINC_TRY(written, put(bytes));
  n_in_tensor_ += bytes.size();
  if (n_in_tensor_ < current().n_bytes) return ok_status();
  const std::string padding(padding_[tensor_idx_], '\0');
  n_in_tensor_ = 0;
  ++tensor_idx_;
  return put(std::as_bytes(std::span(padding)));
}

Status GgufFileWriter::commit() {
  ZINC_CHECK(is_complete());
  return file_.commit();
}

}  // namespace zinc
