#include "hub/hugging_face.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/nearest_name.h"
#include "base/sanitize_for_terminal.h"
#include "hub/journal.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGguf = ".gguf";
constexpr int kMaxPages = 20;
constexpr std::array<std::string_view, 7> kPreferred = {
    kDefaultQuantization, "UD-Q4_K_XL", "MXFP4", "Q4_K_S", "Q4_0", "Q5_K_M", "Q8_0"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Vision towers, draft models and importance matrices are GGUF files too, but not stand-alone models.
bool is_model(std::string_view path) {
  const std::string name = lower(name_of(path));
  if (!name.ends_with(kGguf) || name.starts_with("mmproj") || name.starts_with("mtp-")) return false;
  return name.find("imatrix") == std::string::npos && name.find("mmproj") == std::string::npos;
}

bool is_first_part(std::string_view path) {
  const auto split = parse_split_name(name_of(path));
  return !split || split->number == 1;
}

// "...-Q4_K_M.gguf", "...-q4_k_m-00001-of-00002.gguf" or ".Q4_K_M.gguf" is of quantization Q4_K_M.
bool has_quantization(std::string_view path, std::string_view quantization) {
  const auto split = parse_split_name(name_of(path));
  std::string stem = lower(split ? split->stem : std::string(name_of(path)));
  if (stem.ends_with(kGguf)) stem.resize(stem.size() - kGguf.size());
  const std::string wanted = lower(quantization);
  if (!stem.ends_with(wanted) || stem.size() == wanted.size()) return stem == wanted;
  const char before = stem[stem.size() - wanted.size() - 1];
  return before == '-' || before == '.' || before == '_';
}

std::vector<std::string> parts_of(std::string_view path) {
  const auto split = parse_split_name(name_of(path));
  if (!split) return {std::string(path)};
  const std::string folder(path.substr(0, path.size() - name_of(path).size()));
  std::vector<std::string> parts;
  for (int n = 1; n <= split->count; ++n) parts.push_back(folder + split->file(n));
  return parts;
}

Result<std::vector<RepoFile>> all_parts(std::string_view repo, std::span<const RepoFile> files, std::string_view path) {
  std::vector<RepoFile> parts;
  for (const std::string& part : parts_of(path)) {
    const auto found = std::ranges::find(files, part, &RepoFile::path);
    if (found == files.end()) {
      return fail(ErrorCode::not_found,
                  "hf:{}: shard {} is missing from the repository; the upload may be incomplete: choose another file "
                  "or repository",
                  repo, sanitize_for_terminal(part));
    }
    parts.push_back(*found);
  }
  return parts;
}

std::string list_of(std::span<const std::string> names) {
  constexpr size_t kShown = 12;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    list += (i > 0 ? ", " : "") + sanitize_for_terminal(names[i]);
  return names.size() > kShown ? fmt::format("{} and {} more", list, names.size() - kShown) : list;
}

// Percent-encodes all bytes except letters, digits and `plain`.
std::string quoted(std::string_view text, std::string_view plain) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          plain.find(c) != std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}
std::string url_path(std::string_view path) { return quoted(path, "-._~/"); }
std::string url_word(std::string_view word) { return quoted(word, "-._~"); }  // "refs/pr/1" is one

std::string revision_of(const Source& source) { return source.revision.empty() ? "main" : source.revision; }

Result<std::vector<RepoFile>> list_repo(const Source& source, const HubSettings& settings, const DownloadHooks& hooks) {
  std::vector<RepoFile> files;
  std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", settings.hf_endpoint, source.name,
                                url_word(revision_of(source)));
  for (int page = 0; page < kMaxPages; ++page) {
    ZINC_TRY(reply, get_text({url, settings.hf_token, {}}, settings.limits.transfer, hooks.cancelled));
    ZINC_TRY(more, parse_repo_listing(reply.body));
    files.insert(files.end(), more.begin(), more.end());
    url = reply.next_page;
    if (url.empty()) return files;
    if (!is_same_origin(url, settings.hf_endpoint)) break;  // it would receive the token
  }
  hooks.on_message(fmt::format("hf:{}: only the first {} files could be listed; name a file exactly: hf:{}:FILE.gguf",
                               source.name, files.size(), source.name));
  return files;
}

std::string read_line(const fs::path& path) {
  const Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok() || mapped.value().bytes().size() > 200) return {};
  const std::string text(reinterpret_cast<const char*>(mapped.value().bytes().data()), mapped.value().bytes().size());
  return text.substr(0, text.find_first_of("\r\n"));
}

fs::path repo_folder(const fs::path& cache, std::string_view repo) {
  std::string name = "models--" + std::string(repo);
  name.replace(name.find('/'), 1, "--");
  return cache / name;
}

// A finished file: huggingface_hub links it from the snapshot to a blob named by its hash.
bool is_whole(const fs::path& file, std::string_view sha256) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  if (sha256.empty()) return true;
  const std::string blob = fs::canonical(file, error).filename().string();
  return !parse_sha256(blob) || blob == sha256;
}

std::vector<RepoFile> files_below(const fs::path& snapshot) {
  std::vector<RepoFile> files;
  std::error_code error;
  fs::recursive_directory_iterator it(snapshot, fs::directory_options::skip_permission_denied, error), end;
  for (; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (it->is_regular_file(unreadable))
      files.push_back({it->path().lexically_relative(snapshot).generic_string(), 0, ""});
  }
  std::ranges::sort(files, {}, &RepoFile::path);
  return files;
}

std::optional<fs::path> snapshot_of(const fs::path& cache, const Source& source) {
  const fs::path folder = repo_folder(cache, source.name);
  const std::string commit = read_line(folder / "refs" / revision_of(source));
  const std::string name = commit.empty() ? revision_of(source) : commit;
  std::error_code error;
  const fs::path snapshot = folder / "snapshots" / name;
  if (!is_plain_file_name(name) || !fs::is_directory(snapshot, error)) return std::nullopt;
  return snapshot;
}

}  // namespace

Result<std::vector<RepoFile>> choose_model_files(std::string_view repo, std::span<const RepoFile> files,
                                                 std::string_view wanted) {
  std::vector<std::string> models;
  for (const RepoFile& file : files) {
    if (file.path == wanted && lower(wanted).ends_with(kGguf)) {
      return all_parts(repo, files, parts_of(file.path).front());
    }
    if (is_model(file.path) && is_first_part(file.path)) models.push_back(file.path);
  }
  if (models.empty()) {
    return fail(ErrorCode::not_found,
                "hf:{}: no GGUF models in this repository; look for a repository with a name ending in -GGUF", repo);
  }
  const auto with = [&](std::string_view quantization) {
    return std::ranges::find_if(models, [&](const std::string& path) { return has_quantization(path, quantization); });
  };
  if (!wanted.empty()) {
    if (const auto found = with(wanted); found != models.end()) return all_parts(repo, files, *found);
    const std::optional<std::string> nearest = nearest_name(wanted, models);
    return fail(ErrorCode::not_found, "hf:{}: no model '{}'; {}available: {}", repo, sanitize_for_terminal(wanted),
                nearest ? fmt::format("did you mean {}? ", sanitize_for_terminal(*nearest)) : "", list_of(models));
  }
  if (models.size() == 1) return all_parts(repo, files, models.front());
  for (const std::string_view quantization : kPreferred) {
    if (const auto found = with(quantization); found != models.end()) return all_parts(repo, files, *found);
  }
  return fail(ErrorCode::invalid_input,
              "hf:{}: the repository has several models; choose one with hf:{}:FILE; available: {}", repo, repo,
              list_of(models));
}

Result<std::vector<RepoFile>> parse_repo_listing(std::string_view text) {
  const Result<json::value> parsed = parse_json(text);
  const json::array* entries = parsed.ok() ? parsed.value().if_array() : nullptr;
  if (!entries) return fail(ErrorCode::invalid_input, "the server's file list is not the expected JSON");
  std::vector<RepoFile> files;
  for (const json::value& entry : *entries) {
    const json::object* object = entry.if_object();
    const json::value* path = object ? object->if_contains("path") : nullptr;
    const json::value* type = object ? object->if_contains("type") : nullptr;
    if (!path || !path->is_string() || !type || !type->is_string() || type->as_string() != "file") continue;
    RepoFile file{std::string(path->as_string()), 0, ""};
    if (const json::value* size = object->if_contains("size"); size && size->is_int64() && size->as_int64() > 0) {
      file.n_bytes = static_cast<uint64_t>(size->as_int64());
    }
    if (const json::value* lfs = object->if_contains("lfs"); lfs && lfs->is_object()) {
      const json::value* oid = lfs->as_object().if_contains("oid");
      if (oid && oid->is_string() && parse_sha256(std::string_view(oid->as_string()))) file.sha256 = oid->as_string();
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::string hf_file_url(const Source& source, const HubSettings& settings, std::string_view path) {
  return fmt::format("{}/{}/resolve/{}/{}", settings.hf_endpoint, source.name, url_word(revision_of(source)),
                     url_path(path));
}

Result<std::vector<PlannedFile>> find_hf_files(const Source& source, const HubSettings& settings,
                                               const DownloadHooks& hooks) {
  std::vector<RepoFile> files;
  if (lower(source.file).ends_with(kGguf)) {
    for (const std::string& part : parts_of(source.file)) files.push_back({part, 0, ""});
  }
  const bool names_are_known = !files.empty();
  if (files.size() != 1) {  // a split model, or one to be chosen
    const Result<std::vector<RepoFile>> listed = list_repo(source, settings, hooks);
    // A mirror without a listing may still have the shards.
    const bool was_cancelled = !listed.ok() && listed.error().code == ErrorCode::cancelled;
    if (!listed.ok() && (!names_are_known || was_cancelled)) return listed.error();
    if (listed.ok()) {
      ZINC_TRY(chosen, choose_model_files(source.name, listed.value(), source.file));
      files = std::move(chosen);
    }
  }
  std::vector<PlannedFile> wanted;
  for (const RepoFile& file : files) {
    const std::string name(name_of(file.path));
    if (!is_plain_file_name(name)) {
      return fail(ErrorCode::invalid_input, "hf:{}: '{}' is not a valid file name", source.name,
                  sanitize_for_terminal(file.path));
    }
    wanted.push_back({name, hf_file_url(source, settings, file.path), file.n_bytes, file.sha256, file.path});
  }
  return wanted;
}

std::optional<fs::path> find_in_hf_cache(const fs::path& cache, const Source& source, std::string_view sha256) {
  if (cache.empty()) return std::nullopt;
  const std::optional<fs::path> snapshot = snapshot_of(cache, source);
  if (!snapshot) return std::nullopt;
  const Result<std::vector<RepoFile>> chosen = choose_model_files(source.name, files_below(*snapshot), source.file);
  if (!chosen.ok()) return std::nullopt;
  for (const RepoFile& part : chosen.value()) {
    if (!is_whole(*snapshot / part.path, chosen.value().size() == 1 ? sha256 : "")) return std::nullopt;
  }
  return *snapshot / chosen.value().front().path;
}

std::vector<std::pair<std::string, fs::path>> list_hf_cache(const fs::path& cache) {
  std::vector<std::pair<std::string, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator it(cache, fs::directory_options::skip_permission_denied, error), end; !error && it != end;
       it.increment(error)) {
    constexpr std::string_view kPrefix = "models--";
    std::string repo = it->path().filename().string();
    const size_t dashes = repo.find("--", kPrefix.size());
    if (!repo.starts_with(kPrefix) || dashes == std::string::npos) continue;
    repo = repo.substr(kPrefix.size(), dashes - kPrefix.size()) + "/" + repo.substr(dashes + 2);
    const Result<Source> source = parse_source("hf:" + repo);
    const std::optional<fs::path> snapshot = source.ok() ? snapshot_of(cache, source.value()) : std::nullopt;
    if (!snapshot) continue;
    for (const RepoFile& file : files_below(*snapshot)) {
      if (is_model(file.path) && is_first_part(file.path)) {
        found.emplace_back(fmt::format("hf:{}:{}", repo, file.path), *snapshot / file.path);
      }
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace zinc
