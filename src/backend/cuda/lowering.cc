#include "backend/cuda/lowering.h"

#include <algorithm>
#include <array>

namespace zinc::cuda {
namespace {

constexpr int64_t kMaxGridY = 65535;
// Shared memory of a block. kThirdOfShared: two blocks fit on an SM, three do not. kOverHalfOfShared: a
// second block of the same launch does not fit, but a block of the previous or next launch does.
constexpr unsigned kThirdOfShared = 80 << 10, kOverHalfOfShared = (113 << 10) + 256;

}  // namespace

Lowering::Lower Lowering::find(Op op) {
  struct Row {
    Op op;
    Lower lower;
  };
  static constexpr std::array<Row, kOpCount> kRows = {{
      {Op::embed, &Lowering::lower_embed},
      {Op::hidden_in, &Lowering::lower_hidden_in},
      {Op::linear, &Lowering::lower_nothing},  // matmuls run in groups
      {Op::norm, &Lowering::lower_norm},
      {Op::rope, &Lowering::lower_rope},
      {Op::attention, &Lowering::lower_attention},
      {Op::gated_act, &Lowering::lower_gated_act},
      {Op::moe_route, &Lowering::lower_moe_route},
      {Op::moe_linear, &Lowering::lower_nothing},
      {Op::moe_combine, &Lowering::lower_moe_combine},
      {Op::short_conv, &Lowering::lower_short_conv},
      {Op::delta_net, &Lowering::lower_delta_net},
      {Op::add, &Lowering::lower_elementwise},
      {Op::mul, &Lowering::lower_elementwise},
      {Op::scale, &Lowering::lower_elementwise},
      {Op::softcap, &Lowering::lower_elementwise},
      {Op::view, &Lowering::lower_nothing},  // shares the memory of its input
      {Op::slice, &Lowering::lower_slice},
      {Op::concat, &Lowering::lower_concat},
      {Op::rows, &Lowering::lower_rows},
      {Op::sample, &Lowering::lower_sample},
  }};
  const auto* row = std::ranges::find(kRows, op, &Row::op);
  return row == kRows.end() ? nullptr : row->lower;
}

Status Lowering::add(const KernelProgram& program, const char* kernel, Launch launch, int64_t x, int64_t y, int64_t z,
                     size_t shared_bytes) {
  if (x <= 0 || y <= 0 || z <= 0) return ok_status();
  if (y > kMaxGridY || z > kMaxGridY || shared_bytes > static_cast<size_t>(device_.max_shared_bytes)) {
    return fail(ErrorCode::unsupported,
                "{}: a step of {} tokens exceeds the launch limits of kernel {} ({} x {} x {} blocks, {} bytes of "
                "shared memory)",
                device_.name, sizes_.max_tokens, kernel, x, y, z, shared_bytes);
  }
  late_trigger_.reset();
  launch.grid = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  launch.shared_bytes = static_cast<unsigned>(shared_bytes);
  calls_.push_back({program, kernel, launch, gpu::nodes_lowered_at(workspace_.fusion(), lowered_node_, is_decode())});
  return ok_status();
}

void place_shared_memory(std::span<KernelCall> calls, int n_sms) {
  bool previous_is_large = false;
  for (KernelCall& call : calls) {
    const bool is_large = call.launch.grid[0] >= static_cast<unsigned>(n_sms) && !previous_is_large;
    call.launch.shared_bytes = std::max(call.launch.shared_bytes, is_large ? kOverHalfOfShared : kThirdOfShared);
    previous_is_large = call.launch.shared_bytes == kOverHalfOfShared;
  }
}

Result<std::vector<KernelCall>> Lowering::run() {
  if (Status s = lower_all(); !s.ok()) return s.error();
  if (is_decode()) place_shared_memory(calls_, device_.n_sms);
  return std::move(calls_);
}

Status Lowering::lower_all() {
  if (Status s = lower_rope_tables(); !s.ok()) return s;
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    lowered_node_ = i;
    if (const MoeDownCombine* moe = is_decode() ? workspace_.fusion().moe_down_at(i) : nullptr) {
      if (Status s = lower_moe_down_combine(*moe); !s.ok()) return s;
      continue;
    }
    if (const MatmulGroup* group = workspace_.fusion().matmuls_at(i)) {
      if (is_decode() && (group->gate_up_act >= 0 || workspace_.fusion().is_moe_down(*group))) continue;
      if (group == joined_router_) continue;
      if (Status s = lower_matmuls(*group); !s.ok()) return s;
      continue;
    }
    if (const MatmulGroup* group = is_decode() ? workspace_.fusion().gate_up_at(i) : nullptr) {
      MatmulGroup gated = *group;
      gated.act = group->gate_up_act;
      if (Status s = lower_decode_matmuls(gated); !s.ok()) return s;
      continue;
    }
    if (const AttentionGroup* group = is_decode() ? workspace_.fusion().attention_at(i) : nullptr) {
      if (Status s = lower_attend_decode(*group); !s.ok()) return s;
      continue;
    }
    if (const DeltaGroup* group = is_decode() ? workspace_.fusion().delta_at(i) : nullptr) {
      if (Status s = lower_delta_decode(*group); !s.ok()) return s;
      continue;
    }
    if (const NormResidual* group = is_decode() ? workspace_.fusion().norm_residual_at(i) : nullptr) {
      if (group->in_matmul_at >= 0) continue;  // it is the prologue of their launch: fill_norm_residual
      if (Status s = lower_norm_residual(*group); !s.ok()) return s;
      continue;
    }
    if (const NormResidual* group = is_decode() ? nullptr : workspace_.fusion().norm_residual_with(i)) {
      if (Status s = i == group->at ? lower_norm_residual(*group) : ok_status(); !s.ok()) return s;
      continue;
    }
    if (workspace_.fusion().is_absorbed(i, is_decode())) continue;
    const Lower lower = find(node(i).op);
    if (!lower) return fail(ErrorCode::unsupported, "the cuda backend has no kernel for {}", op_name(node(i).op));
    if (Status s = (this->*lower)(i); !s.ok()) return s;
  }
  return ok_status();
}

Status Lowering::lower_nothing(int) { return ok_status(); }

}  // namespace zinc::cuda
