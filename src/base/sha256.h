// SHA-256 (FIPS 180-4), fed in pieces. For checking that a file is the one we mean, not for secrets.
// One object per message; not shared between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace zinc {

class Sha256 {
 public:
  static constexpr size_t kBlockBytes = 64;
  using Digest = std::array<uint8_t, 32>;

  Sha256();
  void update(std::span<const std::byte> bytes);
  Digest finish();  // ends the message; no call may follow

 private:
  std::array<uint32_t, 8> state_;
  std::array<std::byte, kBlockBytes> pending_;  // the first n_bytes_ % kBlockBytes of it are waiting for a full block
  uint64_t n_bytes_ = 0;
};

std::string to_hex(const Sha256::Digest& digest);                       // 64 lower-case digits
Result<std::string> sha256_of_file(const std::filesystem::path& file);  // of a whole file
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace zinc
