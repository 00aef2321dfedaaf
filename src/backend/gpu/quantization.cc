// Chooses where activations are quantized for q8 matmuls: by the kernel that produces them, by a kernel of its own
// before the first matmul, or inside the matmul.
#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

class QuantizationPass {
 public:
  explicit QuantizationPass(const Matcher& m, std::span<const FusedCall> calls) : m_(m) {
    for (const Node& n : m.nodes()) {
      if (!is_matmul(n) || !m.is_q8(n)) continue;
      if (const QuantizedActivation read = as_read_by(n, n.in[0]); !contains(read_, read)) read_.push_back(read);
    }
    for (const FusedCall& call : calls) {
      if (const MoeDownCall* moe = std::get_if<MoeDownCall>(&call.kind); moe && moe->shared) {
        shared_expert_inputs_.push_back(moe->shared->in[0]);
      }
    }
  }

  // Chooses the output of a producer.
  void visit(NormCall& call) { choose(call.out, call.width); }
  void visit(NormResidualCall& call) {
    if (call.next_norm) choose(call.normed, static_cast<int>(m_.width(call.normed.value)));
  }
  void visit(CombineCall& call) {
    if (call.norm) choose(call.normed, static_cast<int>(m_.width(call.normed.value)));
  }
  void visit(GatedActCall& call) {
    const auto same = [&](const QuantizedActivation& a) {
      return a.storage_root == m_.uses.storage_root(call.out.value);
    };
    if (const auto found = std::ranges::find_if(read_, same); found != read_.end()) {
      call.vectors_per_row = call.width / found->n_in;
      call.width = found->n_in;
    }
    choose(call.out, call.width);
  }
  void visit(AttentionCall& call) {
    if (m_.limits.quantizes_attention && m_.limits.quantizes_attention(*call.node))
      choose(call.out, static_cast<int>(m_.width(call.out.value)));
  }
  void visit(DeltaLayerCall& call) {
    if (call.gate) choose(call.out, static_cast<int>(m_.width(call.out.value)));
  }
  // Chooses the input of matmuls.
  void visit(MoeDownCall& call) {
    const Value x = call.down->in[0];
    const QuantizedActivation read = as_read_by(*call.down, x);
    if (contains(written_, read) && !is_read_as_floats(x)) call.q8 = read;
  }
  void visit(MatmulCall& call) {
    if (call.norm || !m_.is_q8(call.first())) return;
    const QuantizedActivation read = as_read_by(call.first(), call.x);
    const bool is_written = contains(written_, read);
    if (call.is_gemv && is_read_as_floats(call.x)) return;
    if (is_written || !(call.is_gemv || quantizes_inline(call))) call.q8 = read;
  }
  template <class Call>
  void visit(Call&) {}

  // The kernel that must run before the call; nothing if its input is already quantized.
  std::optional<QuantizeCall> missing_input(const FusedCall& call) {
    const MatmulCall* matmul = std::get_if<MatmulCall>(&call.kind);
    if (!matmul || !matmul->q8 || contains(written_, *matmul->q8)) return {};
    written_.push_back(*matmul->q8);
    return QuantizeCall{matmul->x, *matmul->q8};
  }

 private:
  static bool contains(const std::vector<QuantizedActivation>& all, const QuantizedActivation& a) {
    return std::ranges::find(all, a) != all.end();
  }
  QuantizedActivation as_read_by(const Node& matmul, Value x) const {
    const DeviceMatrix& matrix = m_.matrix(matmul);
    return {m_.uses.storage_root(x), matrix.format->q8_block, matrix.n_in};
  }
  bool quantizes_inline(const MatmulCall& call) const {
    const int n_in = m_.matrix(call.first()).n_in;
    const int64_t n_vectors = call.has_experts() ? 1 : m_.width(call.x) / n_in;
    return m_.max_rows(call.x) * n_vectors <= m_.limits.max_inline_q8_rows && n_in <= m_.limits.max_inline_q8_elems;
  }
  bool is_read_as_floats(Value v) const {
    const auto is_input = [&](Value x) { return m_.uses.is_same(x, v); };
    if (m_.uses.is_host_read(v) || std::ranges::any_of(shared_expert_inputs_, is_input)) return true;
    return !std::ranges::all_of(m_.uses.readers(v), [&](const Node* r) {
      return is_matmul(*r) && m_.is_q8(*r) && m_.uses.is_same(r->in[0], v);
    });
  }
  // Quantizes if all q8 matmuls read the value in the same way.
  void choose(Output& out, int n_in) {
    const int32_t root = m_.uses.storage_root(out.value);
    const auto same = [&](const QuantizedActivation& a) { return a.storage_root == root; };
    const auto found = std::ranges::find_if(read_, same);
    if (found == read_.end() || found->n_in != n_in || std::ranges::count_if(read_, same) > 1) return;
    const bool is_inline =
        m_.max_rows(out.value) <= m_.limits.max_inline_q8_rows && n_in <= m_.limits.max_inline_q8_elems;
    if (is_inline && !m_.limits.producers_always_quantize) return;
    out = {out.value, *found, is_read_as_floats(out.value)};
    written_.push_back(*found);
  }

  const Matcher& m_;
  std::vector<QuantizedActivation> read_, written_;
  std::vector<Value> shared_expert_inputs_;  // read as floats
};

}  // namespace

std::vector<FusedCall> place_quantization(const Matcher& m, std::vector<FusedCall> calls) {
  QuantizationPass pass(m, calls);
  std::vector<FusedCall> out;
  for (FusedCall& call : calls) {
    std::visit([&](auto& kind) { pass.visit(kind); }, call.kind);
    if (std::optional<QuantizeCall> quantize = pass.missing_input(call)) out.push_back({*quantize, {}, call.at});
    out.push_back(std::move(call));
  }
  return out;
}

}  // namespace zinc::gpu
