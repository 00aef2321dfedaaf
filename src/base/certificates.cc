#include "base/certificates.h"

#include <cstdlib>

namespace zinc {

std::string first_file_of(std::span<const std::filesystem::path> paths) {
  for (const std::filesystem::path& path : paths) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path.string();
  }
  return {};
}

std::string certificate_bundle() {
  if (const char* const named = std::getenv("SSL_CERT_FILE"); named && *named) return named;
  const std::filesystem::path bundles[] = {
      "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Alpine, Gentoo, NixOS
      "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL
      "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, RHEL: what the former links to
      "/etc/ssl/ca-bundle.pem",                             // openSUSE
      "/etc/ssl/cert.pem",                                  // Alpine, Void
  };
  return first_file_of(bundles);
}

}  // namespace zinc
