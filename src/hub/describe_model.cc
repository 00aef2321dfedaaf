#include "hub/describe_model.h"

#include <algorithm>
#include <map>

#include "base/sanitize_for_terminal.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc {
namespace {

std::string dominant_format(const GgufFile& file) {
  std::map<std::string_view, uint64_t> n_bytes;
  for (const GgufTensor& tensor : file.tensors()) n_bytes[tensor.view.format->name] += tensor.view.bytes.size();
  const auto largest = std::ranges::max_element(n_bytes, {}, [](const auto& entry) { return entry.second; });
  std::string name(largest == n_bytes.end() ? "" : largest->first);
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return name;
}

void report_not_runnable(const Error& why, const DownloadHooks& hooks) {
  hooks.on_message(fmt::format("the model is installed, but this version of zinc cannot run it: {}", why.message));
}

}  // namespace

Status describe_model(InstalledModel& model, const CatalogModel* catalog, const DownloadHooks& hooks) {
  const Result<GgufFile> opened = GgufFile::open(model.path());
  if (!opened.ok() && opened.error().code == ErrorCode::unsupported) {
    report_not_runnable(opened.error(), hooks);
    return ok_status();
  }
  if (!opened.ok()) return opened.error();
  const GgufFile& file = opened.value();
  model.name = sanitize_for_terminal(file.get_or<std::string_view>("general.name", ""));
  model.architecture = sanitize_for_terminal(file.get_or<std::string_view>("general.architecture", ""));
  model.quantization = catalog ? std::string(catalog->quantization) : dominant_format(file);
  for (const GgufTensor& tensor : file.tensors()) {
    model.n_parameters += static_cast<uint64_t>(tensor.view.shape.elems());
  }
  model.max_context =
      static_cast<uint64_t>(std::max<int64_t>(0, file.get_or<int64_t>(model.architecture + ".context_length", 0)));
  if (const Result<Model> runnable = read_model(file); !runnable.ok()) report_not_runnable(runnable.error(), hooks);
  return ok_status();
}

}  // namespace zinc
