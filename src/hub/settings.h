// Where models are kept and fetched from. The program fills this from the environment (cli/hub_settings.h); the hub
// itself reads none.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/download.h"

namespace zinc {

struct HubSettings {
  std::filesystem::path cache;                         // of zinc; models lie in its folder models/
  std::filesystem::path config;                        // of zinc; holds which model is the default
  std::string hf_endpoint = "https://huggingface.co";  // without a slash at the end
  std::string hf_token;
  std::filesystem::path hf_cache;                    // huggingface_hub's; empty: there is none
  std::vector<std::filesystem::path> ollama_stores;  // folders with manifests/ and blobs/
  std::string python = "python3";                    // a name on PATH or a path
  std::string package_index;    // a simple index; empty: none was named, and pip's own is asked for
  bool only_pip_knows = false;  // where packages are: pip is told more than an index
  bool offline = false;
  uint64_t memory_bytes = 0;  // of what models go into; 0: the machine's
  DownloadLimits limits;
};

}  // namespace zinc
