#include "cli/hub_settings.h"

#include <cstdlib>

#include "base/mapped_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Relative paths are to be ignored, says the XDG base directory specification; for the others we do the same.
fs::path folder_in(const char* name) {
  const fs::path path = variable(name);
  return path.is_absolute() ? path : fs::path();
}

std::string without_slashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

std::string read_small(const fs::path& path) {
  constexpr size_t kMaxBytes = 64 << 10;
  const Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok() || mapped.value().bytes().size() > kMaxBytes) return {};
  return std::string(reinterpret_cast<const char*>(mapped.value().bytes().data()), mapped.value().bytes().size());
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// As huggingface_hub looks for them.
void read_hugging_face(HubSettings& settings, const fs::path& home) {
  const fs::path cache = folder_in("XDG_CACHE_HOME").empty() ? home / ".cache" : folder_in("XDG_CACHE_HOME");
  const fs::path hf_home = folder_in("HF_HOME").empty() ? cache / "huggingface" : folder_in("HF_HOME");
  settings.hf_cache = folder_in("HF_HUB_CACHE").empty() ? hf_home / "hub" : folder_in("HF_HUB_CACHE");
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    settings.hf_endpoint = without_slashes(endpoint);
  }
  settings.hf_token = trim(variable("HF_TOKEN"));
  if (settings.hf_token.empty()) {
    const fs::path path = folder_in("HF_TOKEN_PATH").empty() ? hf_home / "token" : folder_in("HF_TOKEN_PATH");
    settings.hf_token = trim(read_small(path));
  }
  const std::string offline = variable("HF_HUB_OFFLINE");
  settings.offline = offline == "1" || offline == "true" || offline == "TRUE" || offline == "yes" || offline == "on";
}

std::string find_package_index(const fs::path& home) {
  if (const std::string url = variable("PIP_INDEX_URL"); !url.empty()) return without_slashes(url);
  const fs::path config = folder_in("XDG_CONFIG_HOME").empty() ? home / ".config" : folder_in("XDG_CONFIG_HOME");
  for (const fs::path& path : {config / "pip" / "pip.conf", home / ".pip" / "pip.conf", fs::path("/etc/pip.conf")}) {
    if (const std::string url = index_url_of(read_small(path)); !url.empty()) return url;
  }
  return {};
}

}  // namespace

Result<fs::path> cache_folder() {
  if (const fs::path cache = folder_in("XDG_CACHE_HOME"); !cache.empty()) return cache / "zinc";
  if (const fs::path home = folder_in("HOME"); !home.empty()) return home / ".cache" / "zinc";
  return fail(ErrorCode::not_found,
              "no folder to keep models in: HOME is not set; set HOME or XDG_CACHE_HOME to an absolute path, or name a "
              "model file: zinc run MODEL.gguf PROMPT");
}

Result<fs::path> state_folder() {
  if (const fs::path state = folder_in("XDG_STATE_HOME"); !state.empty()) return state / "zinc";
  if (const fs::path home = folder_in("HOME"); !home.empty()) return home / ".local" / "state" / "zinc";
  return fail(ErrorCode::not_found, "neither HOME nor XDG_STATE_HOME is set to an absolute path");
}

Result<HubSettings> hub_settings() {
  HubSettings settings;
  ZINC_TRY(cache, cache_folder());
  settings.cache = cache;
  const fs::path home = folder_in("HOME").empty() ? cache : folder_in("HOME");
  const fs::path config = folder_in("XDG_CONFIG_HOME");
  settings.config = (config.empty() ? home / ".config" : config) / "zinc";
  read_hugging_face(settings, home);
  if (const fs::path store = folder_in("OLLAMA_MODELS"); !store.empty()) {
    settings.ollama_stores = {store};
  } else {
    settings.ollama_stores = {home / ".ollama" / "models", "/usr/share/ollama/.ollama/models"};
  }
  settings.package_index = find_package_index(home);
  return settings;
}

std::string index_url_of(std::string_view pip_conf) {
  bool is_global = false;
  while (!pip_conf.empty()) {
    const size_t end = pip_conf.find('\n');
    const std::string_view line = trim(pip_conf.substr(0, end));
    pip_conf.remove_prefix(end == std::string_view::npos ? pip_conf.size() : end + 1);
    if (line.starts_with('[')) is_global = line == "[global]";
    const size_t equals = line.find('=');
    if (!is_global || equals == std::string_view::npos) continue;
    const std::string_view key = trim(line.substr(0, equals));
    if (key == "index-url" || key == "index_url") return without_slashes(std::string(trim(line.substr(equals + 1))));
  }
  return {};
}

}  // namespace zinc
