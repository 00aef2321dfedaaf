// Extracts a member of a zip file (a Python wheel), stored or deflated. Offsets, sizes and CRC are checked; zip64 and
// encryption are not supported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace zinc {

struct ZipMember {
  std::string name;
  uint64_t n_bytes = 0;         // unpacked
  uint64_t n_packed_bytes = 0;  // in the zip file
  uint64_t header_offset = 0;
  uint32_t crc = 0;
  uint16_t method = 0;
};

Result<std::vector<ZipMember>> list_zip(std::span<const std::byte> zip);

// Calls `sink` with the member's bytes in order; an error of the sink ends it.
Status unpack_member(std::span<const std::byte> zip, const ZipMember& member,
                     const std::function<Status(std::span<const std::byte>)>& sink);

}  // namespace zinc
