// Incremental SHA-256 (FIPS 180-4) by OpenSSL, which uses the CPU's SHA instructions. For file integrity, not for
// secrets. One object per message; not shared between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace zinc {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256();
  void update(std::span<const std::byte> bytes);
  Digest finish();  // ends the message; no call may follow

 private:
  struct FreeContext {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, FreeContext> context_;
};

std::string to_hex(const Sha256::Digest& digest);                       // 64 lower-case digits
Result<std::string> sha256_of_file(const std::filesystem::path& file);  // of a whole file
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace zinc
