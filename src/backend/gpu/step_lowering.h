// The lowering of a step as far as all GPU backends share it: the base of a backend's Lowering class (CRTP). It lowers
// the calls whose kernels differ only in name and grid, and fills the parameters that kernels of the other calls have
// in common. The parameter structs of the backends have the same field names; an address is a pointer in CUDA C++ and
// an integer in GLSL.
//
// `Kernels` names the workspace of a backend, its parameter structs and the conversion of a matrix. `Self` lowers the
// other calls, and has:
//   device_name()                                      for errors
//   n_rows(Value)                                      the number of rows of a value, as its kernels read it
//   fill_q8(QuantizedActivation, Value, params)        addresses of a quantized activation
//   fill_rope(const Node&, params)                     a RoPE table
//   emit_norm(NormKind, params, n_vectors, accesses)
//   emit_copy(const RowCopy&, params, n_elems, accesses)
//   emit_threads(kernel, params, n_threads, accesses)  one thread per work item
//   emit_warps(kernel, params, n_warps, accesses)      one warp per work item
#pragma once

#include <vector>

#include "backend/gpu/workspace.h"
#include "base/ceil_div.h"

namespace zinc::gpu {

// An address as a field of kernel parameters.
class ParamAddress {
 public:
  ParamAddress(Address address) : address_(address) {}
  operator Address() const { return address_; }
  template <class T>
  operator T*() const {  // the host must not dereference it
    return reinterpret_cast<T*>(address_);
  }

 private:
  Address address_;
};

// Memory that a kernel reads or writes.
struct MemoryRange {
  Address begin = 0;
  size_t n_bytes = 0;
};
struct Accesses {  // for backends that put barriers between kernels
  std::vector<MemoryRange> reads, writes;
};

template <class Self, class Kernels>
class StepLowering {
 protected:
  StepLowering(const Graph& graph, const Weights& weights, const Cache& cache,
               const typename Kernels::Workspace& workspace)
      : graph_(graph), weights_(weights), cache_(cache), workspace_(workspace), sizes_(workspace.sizes()) {}

  Status lower_calls() {
    for (const FusedCall& call : workspace_.calls()) {
      current_ = &call;
      const Status lowered = std::visit([&](const auto& kind) { return self().lower(kind); }, call.kind);
      if (!lowered.ok()) return lowered;
    }
    return ok_status();
  }

  // ---- calls ----

  Status lower(const NormCall& call) {
    const Node& n = *call.node;
    typename Kernels::Norm params{};
    params.x = at(n.in[0]);
    params.weight = vector(n.in[1]);
    params.n_rows = self().n_rows(n.in[0]);
    params.width = call.width;
    params.vectors_per_row = call.vectors_per_row;
    params.eps = n.as<NormParams>().eps;
    Accesses accesses{{range_of(n.in[0])}, {}};
    fill_output(call.out, params, accesses);
    return self().emit_norm(n.as<NormParams>().kind, params, int64_t{max_rows(n.in[0])} * call.vectors_per_row,
                            accesses);
  }

  Status lower(const RopeCall& call) {
    const Node& n = *call.node;
    typename Kernels::Rope params{};
    params.x = at(n.in[0]);
    params.out = at(n.out[0]);
    params.n_rows = self().n_rows(n.in[0]);
    params.head_dim = static_cast<int>(inner(n.in[0]));
    params.n_heads = static_cast<int>(width(n.in[0])) / params.head_dim;
    self().fill_rope(n, params);
    const size_t n_pairs = workspace_.rope_rotations()[workspace_.rope_index(n)][0].frequencies.size();
    const int64_t n_threads_per_head = params.head_dim - static_cast<int64_t>(n_pairs);
    return self().emit_threads("rope", params, int64_t{sizes_.max_tokens} * params.n_heads * n_threads_per_head,
                               {{range_of(n.in[0])}, {range_of(n.out[0])}});
  }

  Status lower(const GatedActCall& call) {
    Accesses accesses;
    const typename Kernels::GatedAct params = gated_act_params(call, accesses);
    return self().emit_warps("gated_act", params, n_gated_act_warps(call), accesses);
  }
  Status lower(const GatedActPairCall& call) {  // KernelLimits::pairs_gated_acts
    for (const GatedActCall& act : call.acts) {
      if (Status s = self().lower(act); !s.ok()) return s;
    }
    return ok_status();
  }

  Status lower(const ElementwiseCall& call) {
    const Node& n = *call.node;
    typename Kernels::Elementwise params{};
    params.a = at(n.in[0]);
    params.out = at(n.out[0]);
    params.n_rows = self().n_rows(n.out[0]);
    params.width = static_cast<int>(width(n.out[0]));
    Accesses accesses{{range_of(n.in[0])}, {range_of(n.out[0])}};
    params.op = call.op;
    params.factor = unary_factor(n.params);
    if (call.op == kAdd) {
      params.b = at(n.in[1]);
      accesses.reads.push_back(range_of(n.in[1]));
    } else if (call.op == kMul) {
      params.b = vector(n.in[1]);
      params.b_width = static_cast<int>(width(n.in[1]));
    }
    return self().emit_threads("elementwise", params, int64_t{max_rows(n.out[0])} * params.width, accesses);
  }

  // Hidden states are copied, because they are uploaded before the step starts, when their memory may still hold
  // another value.
  Status lower(const CopyCall& call) {
    for (const RowCopy& copy : call.copies) {
      typename Kernels::Copy params{};
      params.to = at(copy.to);
      params.n_rows = self().n_rows(copy.to);
      params.vectors_per_row = copy.vectors_per_row;
      params.from_width = copy.from_width;
      params.from_begin = copy.from_begin;
      params.to_width = copy.to_width;
      params.to_begin = copy.to_begin;
      Accesses accesses{{}, {range_of(copy.to)}};
      if (copy.from) accesses.reads.push_back(range_of(copy.from));
      const int64_t n_elems = int64_t{max_rows(copy.to)} * copy.vectors_per_row * copy.length;
      if (Status s = self().emit_copy(copy, params, n_elems, accesses); !s.ok()) return s;
    }
    return ok_status();
  }

  // ---- parameters of other calls ----

  // Where a producer writes its result.
  template <class Params>
  void fill_output(const Output& out, Params& params, Accesses& accesses) const {
    params.out = at(out.has_floats ? out.value : Value());
    if (out.has_floats) accesses.writes.push_back(range_of(out.value));
    if (!out.q8) return;
    self().fill_q8(*out.q8, out.value, params);
    accesses.writes.push_back(range_of(*out.q8));
  }

  typename Kernels::GatedAct gated_act_params(const GatedActCall& call, Accesses& accesses) const {
    const Node& n = *call.node;
    typename Kernels::GatedAct params{};
    params.gate = at(n.in[0]);
    params.up = at(n.in[1]);
    params.n_rows = self().n_rows(n.out[0]);
    params.act = act_of(n);
    params.scalar_gate = width(n.in[0]) == 1 && width(n.out[0]) > 1 ? 1 : 0;
    params.width = call.width;
    params.vectors_per_row = call.vectors_per_row;
    accesses = {{range_of(n.in[0]), range_of(n.in[1])}, {}};
    fill_output(call.out, params, accesses);
    return params;
  }
  int64_t n_gated_act_warps(const GatedActCall& call) const {  // one per segment
    return int64_t{max_rows(call.out.value)} * call.vectors_per_row * ceil_div(call.width, kSegmentElems);
  }

  // The weighted sum of experts and the residual add.
  typename Kernels::Combine combine_params(const CombineCall& call, Accesses& accesses) const {
    const Node& n = *call.node;
    const Value out = call.out();
    typename Kernels::Combine params{};
    params.x = at(n.in[0]);
    params.weights = at(n.in[1]);
    params.residual = at(call.addend);
    params.out = at(out);
    params.n_rows = self().n_rows(out);
    params.n_experts_used = static_cast<int>(width(n.in[1]));
    params.dim = static_cast<int>(width(out));
    accesses = {{range_of(n.in[0]), range_of(n.in[1])}, {range_of(out)}};
    if (call.add) accesses.reads.push_back(range_of(call.addend));
    return params;
  }

  // The input of a matmul with its norm, its experts, its matrices and its epilogue.
  template <class Params>
  void fill_matmul(const MatmulCall& call, Params& params, Accesses& accesses) const {
    const Node& first = call.first();
    params.vectors_per_row = call.has_experts() ? 1 : static_cast<int>(width(first.in[0]) / matrix_of(first).n_in);
    params.x = at(call.x);
    if (call.q8) self().fill_q8(*call.q8, call.x, params);
    accesses.reads.push_back(call.q8 ? range_of(*call.q8) : range_of(call.x));
    if (call.norm) {
      params.norm_weight = vector(call.norm->in[1]);
      params.norm_eps = call.norm->as<NormParams>().eps;
    }
    if (call.has_experts()) {
      params.expert_ids = at(first.in[2]);
      params.n_experts_used = static_cast<int>(width(first.in[2]));
      params.x_per_expert = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
    }
    for (const MatmulPart& part : call.parts) {
      const Node& n = *part.node;
      const int i = params.n_parts++;
      params.parts[i] = Kernels::matrix(matrix_of(n));
      params.outs[i] = at(n.out[0]);
      params.biases[i] = vector(n.in[call.has_experts() ? 3 : 2]);
      params.expert_scales[i] = vector(call.has_experts() ? n.in[4] : Value());
    }
    fill_epilogue(call, params, accesses);
  }

  // What attention has in all step sizes, but for its output.
  template <class Params>
  void fill_attention(const Node& n, Params& params) const {
    const AttentionParams& attention = n.as<AttentionParams>();
    params.q = at(n.in[0]);
    params.sinks = vector(n.in[3]);
    params.n_heads = static_cast<int>(info(n.in[0]).shape[0]);
    params.scale = attention.scale;
    params.softcap = attention.softcap;
    params.window = static_cast<int>(attention.window);
    params.n_chunks = workspace_.n_chunks(attention.cache_layer);
  }

  // Norm and RoPE of the heads of q, k and v.
  template <class HeadInput>
  void fill_heads(const Node& attention, const AttentionInputs& inputs, HeadInput (&parts)[3],
                  Accesses& accesses) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const AttentionInput& input = inputs[i];
      HeadInput& part = parts[i];
      if (!input.x) continue;
      part.x = slice_of(input);
      if (input.norm) {
        part.is_normed = 1;
        part.norm_weight = vector(input.norm->in[1]);
        part.eps = input.norm->as<NormParams>().eps;
      }
      if (input.rope) self().fill_rope(*input.rope, part);
      part.dim = static_cast<int>(inner(attention.in[i]));
      part.n_heads = static_cast<int>(width(attention.in[i])) / part.dim;
      part.stride = static_cast<int>(width(input.x) / part.n_heads);
      accesses.reads.push_back(range_of(input.x));
    }
  }
  ParamAddress slice_of(const AttentionInput& input) const {
    const int64_t begin = input.slice ? input.slice->as<SliceParams>().begin : 0;
    return workspace_.address(input.x) + static_cast<size_t>(begin) * sizeof(float);
  }

  template <class Params>
  void fill_conv(const Node& n, Params& params) const {
    params.x = at(n.in[0]);
    params.weight = vector(n.in[1]);
    params.out = at(n.out[0]);
    params.states = ParamAddress(cache_.conv_states(n.as<ShortConvParams>().cache_layer));
    params.n_channels = static_cast<int>(width(n.in[0]));
    params.n_taps = static_cast<int>(width(n.in[1]) / width(n.in[0]));
  }
  template <class Params>
  Status check_conv(const Params& params) const {
    if (params.n_taps <= kMaxTaps) return ok_status();
    return fail(ErrorCode::unsupported, "{}: {} supports up to {} taps; this model has {}", self().device_name(),
                op_name(Op::short_conv), kMaxTaps, params.n_taps);
  }

  template <class Params>
  void fill_delta(const Node& n, Params& params) const {
    const DeltaNetParams& delta = n.as<DeltaNetParams>();
    const Shape &k = info(n.in[1]).shape, &v = info(n.in[2]).shape;
    params.q = at(n.in[0]);
    params.k = at(n.in[1]);
    params.v = at(n.in[2]);
    params.alpha = at(n.in[3]);
    params.beta = at(n.in[4]);
    params.dt_bias = vector(n.in[5]);
    params.a = vector(n.in[6]);
    params.out = at(n.out[0]);
    params.states = ParamAddress(cache_.delta_states(delta.cache_layer));
    params.k_heads = static_cast<int>(k[0]);
    params.k_dim = static_cast<int>(k[1]);
    params.v_heads = static_cast<int>(v[0]);
    params.v_dim = static_cast<int>(v[1]);
    params.is_cyclic = delta.sharing == HeadSharing::cyclic ? 1 : 0;
    params.q_scale = delta.q_scale;
  }
  template <class Params>
  Status check_delta(const Params& params) const {
    constexpr int kMaxKeyDim = 256;
    if (params.k_dim <= kMaxKeyDim) return ok_status();
    return fail(ErrorCode::unsupported, "{}: {} supports key dimensions up to {}; this model has {}",
                self().device_name(), op_name(Op::delta_net), kMaxKeyDim, params.k_dim);
  }

  // ---- the step ----

  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  const DeviceMatrix& matrix_of(const Node& n) const { return *weights_.matrix(info(n.in[1]).name); }
  // 0 for a value that is absent.
  ParamAddress at(Value v) const { return v ? workspace_.address(v) : 0; }
  ParamAddress vector(Value v) const { return v ? weights_.vector(info(v).name) : 0; }
  MemoryRange range_of(Value v) const {
    return {workspace_.address(v), static_cast<size_t>(max_rows(v)) * static_cast<size_t>(width(v)) * sizeof(float)};
  }
  MemoryRange range_of(const QuantizedActivation& activation) const {
    const Q8Buffers buffers = workspace_.q8_buffers(activation);
    return {buffers.q, buffers.n_bytes};
  }
  static int act_of(const Node& n) { return static_cast<int>(n.as<GatedActParams>().act); }
  static int is_adjacent(const Node& rope) { return rope.as<RopeParams>().pairs == RopePairs::adjacent ? 1 : 0; }

  const Graph& graph_;
  const Weights& weights_;
  const Cache& cache_;
  const typename Kernels::Workspace& workspace_;
  StepClass sizes_;
  const FusedCall* current_ = nullptr;  // being lowered

 private:
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }

  // The activation or the add writes part 0, else each part its own output.
  template <class Params>
  void fill_epilogue(const MatmulCall& call, Params& params, Accesses& accesses) const {
    const Node* epilogue = call.act ? call.act : call.add;
    if (call.act) params.act = act_of(*call.act);
    if (epilogue) {
      params.outs[0] = at(epilogue->out[0]);
      accesses.writes.push_back(range_of(epilogue->out[0]));
    } else {
      for (const MatmulPart& part : call.parts) accesses.writes.push_back(range_of(part.node->out[0]));
    }
    params.residual = at(call.addend);
    if (call.addend) accesses.reads.push_back(range_of(call.addend));
  }
};

}  // namespace zinc::gpu
