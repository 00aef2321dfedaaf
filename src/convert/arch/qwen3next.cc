// Qwen3-Next.
#include <array>

#include "convert/family.h"
#include "convert/hybrid_family.h"

namespace zinc {
namespace {

void map(ModelMapping& m) {
  map_hybrid(m, {.cyclic_value_heads = false, .packed_projections = true, .has_experts = true});
}

constexpr std::array<std::string_view, 1> kClasses = {"Qwen3NextForCausalLM"};

}  // namespace

extern const Family k_family_qwen3next = {.gguf_name = "qwen3next", .class_names = kClasses, .map = map};

}  // namespace zinc
