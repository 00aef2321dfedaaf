// SmolLM3: the tensors of Llama; every fourth layer is not rotated, which GGUF files do not say.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

constexpr int kNopePeriod = 4;

void check_layers(ModelMapping& m, int64_t n_layers) {
  const json::value* const layers = m.config().find("no_rope_layers");
  if (!layers) return;
  bool is_usual = layers->is_array() && layers->get_array().size() == static_cast<size_t>(n_layers);
  for (int64_t l = 0; is_usual && l < n_layers; ++l) {
    const json::value& rotated = layers->get_array()[static_cast<size_t>(l)];
    is_usual = rotated.is_int64() && (rotated.get_int64() == 0) == ((l + 1) % kNopePeriod == 0);
  }
  if (!is_usual) m.unsupported("'no_rope_layers' must be every {}th layer, as in published SmolLM3", kNopePeriod);
}

void map(ModelMapping& m) {
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c);
  set_llama_keys(m, c, /*rope_factors=*/false);
  check_layers(m, c.n_layers);
  // Unrotated layers are reordered too: q and k alike, so that their products stay the same.
  for (int l = 0; l < c.n_layers; ++l) add_dense_layer(m, l, c, {.interleaved_rope = true});
  add_ends(m);
}

constexpr std::array<std::string_view, 1> kClasses = {"SmolLM3ForCausalLM"};

}  // namespace

extern const Family k_family_smollm3 = {.gguf_name = "smollm3", .class_names = kClasses, .map = map};

}  // namespace zinc
