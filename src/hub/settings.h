// Folders and servers for models. The CLI fills this from the environment (cli/hub_settings.h); the hub does not read
// it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/download.h"

namespace zinc {

struct HubSettings {
  std::filesystem::path cache;                         // of zinc; models are in models/
  std::filesystem::path config;                        // of zinc; has the default model
  std::string hf_endpoint = "https://huggingface.co";  // without a trailing slash
  std::string hf_token;
  std::filesystem::path hf_cache;                    // huggingface_hub's; empty: none
  std::vector<std::filesystem::path> ollama_stores;  // folders with manifests/ and blobs/
  std::string python = "python3";                    // a name on PATH or a path
  std::string package_index;                         // URL of a simple index; empty: pip's default
  bool needs_pip = false;                            // pip is configured with more than an index
  bool offline = false;
  uint64_t memory_bytes = 0;  // of the device that models are loaded into; 0: host memory
  DownloadLimits limits;
};

}  // namespace zinc
