#include "engine/model_fingerprint.h"

#include <fmt/ranges.h>

#include "base/file_fingerprint.h"

namespace zinc {
namespace {

constexpr std::string_view kLayout = "2";  // of pages and states in memory; increase it if a backend changes the layout

void add(Sha256& hash, std::string_view text) {
  const uint64_t n = text.size();
  hash.update(std::as_bytes(std::span(&n, 1)));
  hash.update(std::as_bytes(std::span(text)));
}

// The number of threads does not change results: a saved cache is valid for any -t.
std::string without_threads(std::string device) {
  if (device.ends_with(" threads")) device.resize(device.rfind(','));
  return device;
}

}  // namespace

Result<Sha256::Digest> fingerprint_of(const ModelInstance& model, std::string_view program) {
  Sha256 hash;
  add(hash, program);
  add(hash, kLayout);
  add(hash, model.backend_name());
  if (model.devices().size() == 1) {
    add(hash, without_threads(model.backend().info().name));
  } else {  // a page is that of all devices
    add(hash, model.shards() ? "tensor parallel" : "layers");
    for (const ModelDevice& device : model.devices()) {
      add(hash, fmt::format("{} {} {}", without_threads(device.device.name), device.first_layer, device.n_layers));
    }
    const split::Stages& stages = model.stages();
    add(hash, fmt::format("{} {}", fmt::join(stages.cuts, " "), fmt::join(stages.devices, " ")));
    add(hash, fmt::format("{}", model.weights().prompt_chunk_tokens()));
  }
  add(hash, model.kv_format().name);
  if (Status s = add_file_samples(model.file().shard_names(), hash); !s.ok()) return s.error();
  return hash.finish();
}

Result<Sha256::Digest> fingerprint_of(const GgufFile& file) { return fingerprint_of_files(file.shard_names()); }

}  // namespace zinc
