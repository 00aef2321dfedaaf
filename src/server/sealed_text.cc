#include "server/sealed_text.h"

#include <openssl/evp.h>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr std::string_view kSealPrefix = "zinc1.";  // version of the form

}  // namespace

std::string seal_text(std::string_view text) {
  std::string coded(4 * ((text.size() + 2) / 3) + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(coded.data()),
                                reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  coded.resize(static_cast<size_t>(n));
  return std::string(kSealPrefix) + coded;
}

std::optional<std::string> unseal_text(std::string_view sealed) {
  if (!sealed.starts_with(kSealPrefix)) return {};
  sealed.remove_prefix(kSealPrefix.size());
  if (sealed.size() % 4 != 0) return {};
  std::string out(sealed.size() / 4 * 3, '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(sealed.data()), static_cast<int>(sealed.size()));
  if (n < 0) return {};
  const size_t n_padding = sealed.ends_with("==") ? 2 : sealed.ends_with("=") ? 1 : 0;
  out.resize(static_cast<size_t>(n) - n_padding);
  if (!is_valid_utf8(out)) return {};
  return out;
}

}  // namespace zinc
