// Where this system keeps the certificates that TLS connections are verified with. A program that runs on every Linux
// must look for them: each distribution has its own path, and a libcurl built for one knows only that one.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace zinc {

// The file that SSL_CERT_FILE names, otherwise the system's bundle; empty if there is neither.
std::string certificate_bundle();

// The first of `paths` that is a file; empty if none is.
std::string first_file_of(std::span<const std::filesystem::path> paths);

}  // namespace zinc
