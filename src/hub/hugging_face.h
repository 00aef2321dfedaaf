// Models on Hugging Face: which files of a repository are meant, where they are fetched from, and whether
// huggingface_hub's cache on this machine already holds them.
#pragma once

#include "hub/settings.h"
#include "hub/source.h"

namespace zinc {

struct RepoFile {
  std::string path;  // in the repository
  uint64_t n_bytes = 0;
  std::string sha256;  // of a large file; empty if the listing does not say
};

// A file to be fetched.
struct WantedFile {
  std::string name;  // as it will be called here
  std::string url;
  uint64_t n_bytes = 0;   // 0: unknown
  std::string sha256;     // empty: unknown
  std::string path = {};  // in its repository, where it comes from one
};

// What is taken of a repository where nothing is named: small enough for most machines, close to the full model.
inline constexpr std::string_view kUsualQuantization = "Q4_K_M";

// The files meant by `wanted` among those of a repository: a path, a quantization's name, or nothing, which takes the
// usual one or what comes closest. Of a split model all parts, in order. An error lists what there is.
Result<std::vector<RepoFile>> choose_model_files(std::string_view repo, std::span<const RepoFile> files,
                                                 std::string_view wanted);
// From the answer of the API's tree call.
Result<std::vector<RepoFile>> parse_repo_listing(std::string_view text);

// Asks the server where the source does not name a file exactly, and for the sizes and hashes of a split model's parts.
Result<std::vector<WantedFile>> find_hf_files(const Source& source, const HubSettings& settings,
                                              const DownloadHooks& hooks);
std::string hf_file_url(const Source& source, const HubSettings& settings, std::string_view path);

// The first file of the model in huggingface_hub's cache, whole; nothing if it is not there. With `sha256` given, a
// file stored under another hash is not it.
std::optional<std::filesystem::path> find_in_hf_cache(const std::filesystem::path& cache, const Source& source,
                                                      std::string_view sha256);
// Every model in that cache, as "hf:ORG/REPO:FILE" and its first file.
std::vector<std::pair<std::string, std::filesystem::path>> list_hf_cache(const std::filesystem::path& cache);

}  // namespace zinc
