// Qwen3.5 MoE; the text model of multimodal checkpoints.
#include <array>

#include "convert/family.h"
#include "convert/hybrid_family.h"

namespace zinc {
namespace {

void map(ModelMapping& m) {
  set_mrope_sections(m);
  map_hybrid(m, {.cyclic_value_heads = true, .packed_projections = false, .has_experts = true});
}

constexpr std::array<std::string_view, 2> kClasses = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"};

}  // namespace

extern const Family k_family_qwen35moe = {.gguf_name = "qwen35moe", .class_names = kClasses, .map = map};

}  // namespace zinc
