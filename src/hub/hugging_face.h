// Models on Hugging Face: which files of a repository to use, their URLs, and lookup in huggingface_hub's cache on this
// machine.
#pragma once

#include "hub/settings.h"
#include "hub/source.h"

namespace zinc {

struct RepoFile {
  std::string path;  // in the repository
  uint64_t n_bytes = 0;
  std::string sha256;  // of an LFS file; empty: not in the listing
};

// A file to be downloaded.
struct PlannedFile {
  std::string name;  // local name
  std::string url;
  uint64_t n_bytes = 0;   // 0: unknown
  std::string sha256;     // empty: unknown
  std::string path = {};  // in its repository, if any
};

// Used if no quantization is named: small enough for most machines, close to the full model.
inline constexpr std::string_view kDefaultQuantization = "Q4_K_M";

// Selects the files of a repository for `wanted`: a path, a quantization, or empty for the default quantization or the
// closest one. For a split model all parts, in order. The error lists the available files.
Result<std::vector<RepoFile>> choose_model_files(std::string_view repo, std::span<const RepoFile> files,
                                                 std::string_view wanted);
// Parses the response of the API's tree call.
Result<std::vector<RepoFile>> parse_repo_listing(std::string_view text);

// Asks the server if the source does not name a file exactly, and for sizes and hashes of the parts of a split model.
Result<std::vector<PlannedFile>> find_hf_files(const Source& source, const HubSettings& settings,
                                               const DownloadHooks& hooks);
std::string hf_file_url(const Source& source, const HubSettings& settings, std::string_view path);

// The first file of the model in huggingface_hub's cache; nullopt: not there or incomplete. If `sha256` is given, a
// file stored under another hash does not match.
std::optional<std::filesystem::path> find_in_hf_cache(const std::filesystem::path& cache, const Source& source,
                                                      std::string_view sha256);
// Every model in that cache, as "hf:ORG/REPO:FILE" and its first file.
std::vector<std::pair<std::string, std::filesystem::path>> list_hf_cache(const std::filesystem::path& cache);

}  // namespace zinc
