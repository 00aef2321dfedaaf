#include "cli/hub_settings.h"

#include <algorithm>
#include <cstdlib>

#include "base/mapped_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The XDG base directory specification ignores relative paths; we do so for the other variables too.
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

// The same variables and order as huggingface_hub.
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

void read_pip_settings(HubSettings& settings, const fs::path& home) {
  settings.package_index = without_slashes(variable("PIP_INDEX_URL"));
  for (const char* name : {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"}) {
    if (!variable(name).empty()) settings.needs_pip = true;
  }
  const fs::path config = folder_in("XDG_CONFIG_HOME").empty() ? home / ".config" : folder_in("XDG_CONFIG_HOME");
  // In the order of pip: the first file that names an index wins.
  for (const fs::path& path :
       {folder_in("PIP_CONFIG_FILE"), folder_in("VIRTUAL_ENV") / "pip.conf", config / "pip" / "pip.conf",
        home / ".pip" / "pip.conf", fs::path("/etc/xdg/pip/pip.conf"), fs::path("/etc/pip.conf")}) {
    if (!path.is_absolute()) continue;
    const PipConf conf = read_pip_conf(read_small(path));
    if (settings.package_index.empty()) settings.package_index = conf.index_url;
    if (conf.needs_pip) settings.needs_pip = true;
  }
}

}  // namespace

Result<fs::path> cache_folder() {
  if (const fs::path cache = folder_in("XDG_CACHE_HOME"); !cache.empty()) return cache / "zinc";
  if (const fs::path home = folder_in("HOME"); !home.empty()) return home / ".cache" / "zinc";
  return fail(ErrorCode::not_found,
              "no folder for models: HOME is not set; set HOME or XDG_CACHE_HOME to an absolute path, or use a model "
              "file: zinc run MODEL.gguf PROMPT");
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
  read_pip_settings(settings, home);
  return settings;
}

PipConf read_pip_conf(std::string_view text) {
  PipConf out;
  bool counts = false, is_download = false, was_download = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with('[')) {
      is_download = line == "[download]";
      counts = is_download || line == "[global]";
    }
    const size_t equals = line.find('=');
    if (!counts || equals == std::string_view::npos) continue;
    std::string key(trim(line.substr(0, equals)));
    std::ranges::replace(key, '_', '-');
    if (key == "index-url" && (is_download || !was_download)) {  // [download] takes precedence over [global]
      out.index_url = without_slashes(std::string(trim(line.substr(equals + 1))));
      was_download = is_download;
    }
    if (key == "find-links" || key == "extra-index-url" || key == "no-index") out.needs_pip = true;
  }
  return out;
}

}  // namespace zinc
