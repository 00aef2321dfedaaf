#include "engine/model_fingerprint.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/mapped_file.h"

namespace zinc {
namespace {

constexpr std::string_view kLayout = "2";  // of pages and states in memory; increase it if a backend changes the layout
constexpr size_t kHeadBytes = size_t{8} << 20;  // covers metadata, tokenizer and tensor list of every published model
constexpr size_t kSamples = 512, kSampleBytes = 4096;

void add(Sha256& hash, std::string_view text) {
  const uint64_t n = text.size();
  hash.update(std::as_bytes(std::span(&n, 1)));
  hash.update(std::as_bytes(std::span(text)));
}

Status add_shards(const GgufFile& model, Sha256& hash) {
  for (const std::string& shard : model.shard_names()) {
    ZINC_TRY(file, MappedFile::open(shard));
    const std::span<const std::byte> bytes = file.bytes();
    add(hash, fmt::format("{}", bytes.size()));
    hash.update(bytes.first(std::min(bytes.size(), kHeadBytes)));
    for (size_t i = 0; i < kSamples && bytes.size() > kHeadBytes; ++i) {
      const size_t at = (bytes.size() - kSampleBytes) / kSamples * i;
      hash.update(bytes.subspan(at, kSampleBytes));
    }
  }
  return ok_status();
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
  if (Status s = add_shards(model.file(), hash); !s.ok()) return s.error();
  return hash.finish();
}

Result<Sha256::Digest> fingerprint_of(const GgufFile& file) {
  Sha256 hash;
  if (Status s = add_shards(file, hash); !s.ok()) return s.error();
  return hash.finish();
}

}  // namespace zinc
