// Which files a reference to a model stands for, and what is known of each before it is fetched.
#pragma once

#include "hub/hugging_face.h"
#include "hub/pull.h"

namespace zinc {

// At least one, the first of a split model first. Asks a server where the source does not say it all. Of a package
// without a catalog entry, one file of which nothing is known.
Result<std::vector<WantedFile>> find_wanted_files(const HubSettings& settings, const ModelReference& reference,
                                                  const DownloadHooks& hooks);

}  // namespace zinc
