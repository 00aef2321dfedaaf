// The files of a model reference, with name, URL, size and hash as far as known.
#pragma once

#include "hub/hugging_face.h"
#include "hub/pull.h"

namespace zinc {

// At least one file, in order of the parts. Asks the server if needed. For a package without a catalog entry: one file
// with empty fields.
Result<std::vector<PlannedFile>> plan_download(const HubSettings& settings, const ModelReference& reference,
                                               const DownloadHooks& hooks);

}  // namespace zinc
