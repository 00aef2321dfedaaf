// A hash of everything that cached keys, values and states depend on: a cache saved under one fingerprint is never used
// under another.
#pragma once

#include "base/sha256.h"
#include "engine/model_instance.h"

namespace zinc {

// Identifies a model file: a hash of the size, the first megabytes (metadata) and samples of the weights of each shard.
// Reads a few megabytes per shard, not all of it.
Result<Sha256::Digest> fingerprint_of(const GgufFile& file);

// Hashes the program version (its arithmetic may change), the model file as above, the backend, the KV cache format,
// and which device computes what. REQUIRES: the model is uploaded.
Result<Sha256::Digest> fingerprint_of(const ModelInstance& model, std::string_view program);

}  // namespace zinc
