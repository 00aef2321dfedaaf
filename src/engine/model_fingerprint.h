// What computed keys, values and states depend on, in one number: a cache saved under one fingerprint is never used
// under another.
#pragma once

#include "base/sha256.h"
#include "engine/model_instance.h"

namespace zinc {

// Of the program, whose arithmetic may change from one version to the next, the model file (its metadata, sizes and
// samples of its weights), the backend and the format of the cache. Reads a few megabytes of each shard, not all of it.
Result<Sha256::Digest> fingerprint_of(const ModelInstance& model, std::string_view program);

}  // namespace zinc
