#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"
#include "base/mapped_file.h"

namespace zinc {

void Sha256::FreeContext::operator()(evp_md_ctx_st* context) const { ::EVP_MD_CTX_free(context); }

// OpenSSL fails here only if out of memory or if the library is broken.
Sha256::Sha256() : context_(::EVP_MD_CTX_new()) {
  ZINC_CHECK(context_ && ::EVP_DigestInit_ex(context_.get(), ::EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
  ZINC_CHECK(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

Sha256::Digest Sha256::finish() {
  Digest digest;
  ZINC_CHECK(::EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
  return digest;
}

std::string to_hex(const Sha256::Digest& digest) {
  std::string hex;
  for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return to_hex(hash.finish());
}

Result<std::string> sha256_of_file(const std::filesystem::path& file) {
  ZINC_TRY(mapped, MappedFile::open(file));
  return sha256_hex(mapped.bytes());
}

}  // namespace zinc
