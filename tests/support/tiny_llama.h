// A llama file of a few kilobytes with zero weights and configurable sizes: for tests of model files.
#pragma once

#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace zinc {

struct TinyLlama {
  uint32_t n_layers = 2, dim = 32, n_heads = 4, n_kv_heads = 2, ff_dim = 48, vocabulary = 40, context = 128;
  uint32_t n_experts = 0, n_used = 0;
  std::string architecture = "llama";
  std::string leave_out = "";  // a tensor to omit

  GgufWriter metadata() const {
    GgufWriter w;
    const std::string a = architecture + ".";
    w.add("general.architecture", architecture).add(a + "embedding_length", dim).add(a + "block_count", n_layers);
    w.add(a + "context_length", context).add(a + "feed_forward_length", ff_dim);
    w.add(a + "attention.head_count", n_heads).add(a + "attention.head_count_kv", n_kv_heads);
    w.add(a + "attention.layer_norm_rms_epsilon", 1e-5f);
    if (n_experts > 0) w.add(a + "expert_count", n_experts).add(a + "expert_used_count", n_used);
    return w;
  }

  GgufWriter file() const {
    GgufWriter w = metadata();
    const auto add = [&](const std::string& name, const Shape& shape) {
      if (name == leave_out) return;
      w.add_tensor(name, shape, k_f32, std::vector<float>(static_cast<size_t>(shape.elems())));
    };
    const int64_t d = dim, kv = int64_t{dim} / n_heads * n_kv_heads, ff = ff_dim, e = n_experts;
    add("token_embd.weight", {vocabulary, d});
    add("output_norm.weight", {d});
    for (uint32_t l = 0; l < n_layers; ++l) {
      const std::string p = fmt::format("blk.{}.", l);
      for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) add(p + norm, {d});
      add(p + "attn_q.weight", {d, d});
      add(p + "attn_k.weight", {kv, d});
      add(p + "attn_v.weight", {kv, d});
      add(p + "attn_output.weight", {d, d});
      if (e > 0) {
        add(p + "ffn_gate_inp.weight", {e, d});
        add(p + "ffn_gate_exps.weight", {e, ff, d});
        add(p + "ffn_up_exps.weight", {e, ff, d});
        add(p + "ffn_down_exps.weight", {e, d, ff});
      } else {
        add(p + "ffn_gate.weight", {ff, d});
        add(p + "ffn_up.weight", {ff, d});
        add(p + "ffn_down.weight", {d, ff});
      }
    }
    return w;
  }
};

}  // namespace zinc
