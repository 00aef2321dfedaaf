// Qwen3 dense.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

void map(ModelMapping& m) {
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c);
  set_rope_keys(m, m.config().rope(), c.head_dim);
  warn_of_sliding_window(m, "use_sliding_window");
  for (int l = 0; l < c.n_layers; ++l) add_dense_layer(m, l, c);
  add_ends(m);
}

constexpr std::array<std::string_view, 1> kClasses = {"Qwen3ForCausalLM"};

}  // namespace

extern const Family k_family_qwen3 = {.gguf_name = "qwen3", .class_names = kClasses, .map = map};

}  // namespace zinc
