#include "hub/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr uint32_t kEndSignature = 0x06054b50, kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr size_t kMaxComment = 65535;
constexpr uint16_t kStored = 0, kDeflated = 8, kEncryptedFlag = 1;
constexpr size_t kBlockBytes = size_t{1} << 18;

Error zip_error(std::string_view what) { return fail(ErrorCode::invalid_input, "cannot read the zip file: {}", what); }

// Little-endian number at `offset`. REQUIRES: it lies inside.
template <class T>
T number_at(std::span<const std::byte> bytes, size_t offset) {
  T number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    number = static_cast<T>(number | static_cast<T>(std::to_integer<T>(bytes[offset + i])) << (8 * i));
  }
  return number;
}

Result<size_t> find_end(std::span<const std::byte> zip) {
  if (zip.size() < kEndBytes) return zip_error("too short");
  const size_t last = zip.size() - kEndBytes;
  for (size_t n_comment = 0; n_comment <= std::min(last, kMaxComment); ++n_comment) {
    if (number_at<uint32_t>(zip, last - n_comment) == kEndSignature) return last - n_comment;
  }
  return zip_error("the central directory is missing; the file may be truncated");
}

Result<std::span<const std::byte>> packed_bytes(std::span<const std::byte> zip, const ZipMember& member) {
  const uint64_t at = member.header_offset;
  if (at > zip.size() || zip.size() - at < kLocalBytes || number_at<uint32_t>(zip, at) != kLocalSignature) {
    return zip_error("a member header is not at the offset in the directory");
  }
  const uint64_t begin = at + kLocalBytes + number_at<uint16_t>(zip, at + 26) + number_at<uint16_t>(zip, at + 28);
  if (begin > zip.size() || zip.size() - begin < member.n_packed_bytes)
    return zip_error("a member extends past the end of the file");
  return zip.subspan(begin, member.n_packed_bytes);
}

// Owns a zlib stream.
struct Inflater {
  z_stream stream{};
  bool is_ready = false;
  Inflater() : is_ready(inflateInit2(&stream, -MAX_WBITS) == Z_OK) {}
  ~Inflater() {
    if (is_ready) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

Status inflate_all(std::span<const std::byte> packed, const std::function<Status(std::span<const std::byte>)>& sink) {
  Inflater inflater;
  if (!inflater.is_ready) return fail(ErrorCode::out_of_memory, "out of memory while unpacking");
  std::vector<std::byte> block(kBlockBytes);
  z_stream& stream = inflater.stream;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    if (stream.avail_in == 0) {
      const size_t n = std::min(packed.size(), kBlockBytes);
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
      stream.avail_in = static_cast<uInt>(n);
      packed = packed.subspan(n);
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    state = inflate(&stream, Z_NO_FLUSH);
    const size_t n_inflated = block.size() - stream.avail_out;
    if (state != Z_OK && state != Z_STREAM_END) return zip_error("corrupt member data");
    if (n_inflated == 0 && state == Z_OK && stream.avail_in == 0 && packed.empty())
      return zip_error("a member is truncated");
    if (Status consumed = sink(std::span(block).first(n_inflated)); !consumed.ok()) return consumed;
  }
  return ok_status();
}

}  // namespace

Result<std::vector<ZipMember>> list_zip(std::span<const std::byte> zip) {
  ZINC_TRY(end, find_end(zip));
  const size_t n_members = number_at<uint16_t>(zip, end + 10);
  uint64_t at = number_at<uint32_t>(zip, end + 16);
  if (n_members == 0xFFFF || at == 0xFFFFFFFF) return zip_error("zip64 is not supported");
  std::vector<ZipMember> members;
  for (size_t i = 0; i < n_members; ++i) {
    if (at > end || end - at < kEntryBytes || number_at<uint32_t>(zip, at) != kEntrySignature) {
      return zip_error("the central directory is corrupt");
    }
    const size_t n_name = number_at<uint16_t>(zip, at + 28);
    const size_t n_entry = kEntryBytes + n_name + number_at<uint16_t>(zip, at + 30) + number_at<uint16_t>(zip, at + 32);
    if (end - at < n_entry) return zip_error("the central directory is corrupt");
    ZipMember member;
    member.method = number_at<uint16_t>(zip, at + 10);
    if (number_at<uint16_t>(zip, at + 8) & kEncryptedFlag) member.method = 0xFFFF;
    member.crc = number_at<uint32_t>(zip, at + 16);
    member.n_packed_bytes = number_at<uint32_t>(zip, at + 20);
    member.n_bytes = number_at<uint32_t>(zip, at + 24);
    member.header_offset = number_at<uint32_t>(zip, at + 42);
    const uint64_t largest = std::max({member.n_packed_bytes, member.n_bytes, member.header_offset});
    if (largest == 0xFFFFFFFF) return zip_error("zip64 is not supported (a member of 4 GiB or more)");
    member.name.assign(reinterpret_cast<const char*>(zip.data()) + at + kEntryBytes, n_name);
    members.push_back(std::move(member));
    at += n_entry;
  }
  return members;
}

Status unpack_member(std::span<const std::byte> zip, const ZipMember& member,
                     const std::function<Status(std::span<const std::byte>)>& sink) {
  ZINC_TRY(packed, packed_bytes(zip, member));
  uint64_t n_bytes = 0;
  uLong crc = crc32(0, nullptr, 0);
  const auto checked_sink = [&](std::span<const std::byte> bytes) -> Status {
    n_bytes += bytes.size();
    if (n_bytes > member.n_bytes) return zip_error("a member is longer than the directory says");
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    return sink(bytes);
  };
  if (member.method == kDeflated) {
    if (Status done = inflate_all(packed, checked_sink); !done.ok()) return done;
  } else if (member.method == kStored) {
    for (size_t at = 0; at < packed.size(); at += kBlockBytes) {
      if (Status done = checked_sink(packed.subspan(at, std::min(kBlockBytes, packed.size() - at))); !done.ok())
        return done;
    }
  } else {
    return zip_error(fmt::format("{} uses an unsupported compression method", sanitize_for_terminal(member.name)));
  }
  if (n_bytes != member.n_bytes || crc != member.crc)
    return zip_error(fmt::format("{} is corrupt", sanitize_for_terminal(member.name)));
  return ok_status();
}

}  // namespace zinc
