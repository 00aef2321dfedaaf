// An arbitrary prefix cache file with a valid key and checksum: loading fails, or the cache works with its content.
// Seeds are files without magic, key and checksum, which are added here.
#include <algorithm>
#include <cstring>
#include <string>

#include "cache/kv_cache.h"

namespace zinc {
namespace {

constexpr Sha256::Digest kKey = {};
constexpr std::string_view kMagic = "zinctre2";

// Full-attention, sliding-window and recurrent layers, one element each.
std::unique_ptr<KvCache> make_cache() {
  static const std::unique_ptr<Backend> backend = std::move(find_backend("reference").value()->open(1).value());
  const AttentionCache full{.kv_heads = 1, .k_dim = 1, .v_dim = 1, .window = 0};
  AttentionCache sliding = full;
  sliding.window = 40;
  const std::vector<LayerCache> layers = {
      {full, {}}, {sliding, {}}, {{}, {.conv_channels = 0, .conv_taps = 0, .heads = 1, .k_dim = 1, .v_dim = 1}}};
  const CacheSizes sizes{.n_pages = {9, 7}, .n_slots = 4, .kv_format = &k_f32};
  return std::move(KvCache::create(*backend, layers, {.sizes = sizes, .max_chunk_tokens = 20}).value());
}

void use(KvCache& cache, const std::vector<TokenId>& tokens) {
  const int n = static_cast<int>(tokens.size());
  std::optional<Admission> admission = cache.admit(tokens, n - 1);
  ZINC_CHECK(admission.has_value());
  SequenceCache& sequence = admission->sequence;
  while (sequence.n_tokens < n) {
    const int end = std::min(n, sequence.n_tokens + 20);
    ZINC_CHECK(cache.grow(sequence, sequence.n_tokens, end));
    sequence.n_tokens = end;
  }
  cache.finish(std::move(sequence), tokens);
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zinc;
  std::string file(kMagic);
  file.append(reinterpret_cast<const char*>(kKey.data()), kKey.size());
  file.append(reinterpret_cast<const char*>(data), size);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(file)));
  const Sha256::Digest digest = hash.finish();
  file.append(reinterpret_cast<const char*>(digest.data()), digest.size());

  const std::unique_ptr<KvCache> cache = make_cache();
  (void)cache->load(std::as_bytes(std::span(file)), "fuzz", kKey);
  for (const TokenId token : {1, 2, 1, 3}) use(*cache, std::vector<TokenId>(150, token));
  for (const PagePool& pool : cache->pools().pages) ZINC_CHECK(pool.n_pinned() == 0);
  ZINC_CHECK(cache->pools().states.n_pinned() == 0);
  return 0;
}
