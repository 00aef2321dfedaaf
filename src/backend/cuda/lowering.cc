#include "backend/cuda/lowering.h"

#include <algorithm>
#include <array>

namespace zinc::cuda {
namespace {

constexpr int64_t kMaxGridY = 65535;
// Of a multiprocessor's shared memory: two blocks fit, three do not; and a block beside which one of its own kind has
// no room, but one of the launches before and behind it has.
constexpr size_t kThirdOfShared = 80 << 10, kOverHalfOfShared = (113 << 10) + 256;

}  // namespace

Lowering::Lower Lowering::find(Op op) {
  struct Row {
    Op op;
    Lower lower;
  };
  static constexpr std::array<Row, kOpCount> kRows = {{
      {Op::embed, &Lowering::lower_embed},
      {Op::hidden_in, &Lowering::lower_hidden_in},
      {Op::linear, &Lowering::lower_nothing},  // products run in groups
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
      {Op::view, &Lowering::lower_nothing},  // the memory plan puts it where its input is
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
  if (y > kMaxGridY || z > kMaxGridY || shared_bytes > static_cast<size_t>(device_.max_shared_bytes())) {
    return fail(ErrorCode::unsupported,
                "{}: a step of {} tokens is too large for kernel {} ({} x {} x {} blocks, {} bytes)", device_.name(),
                sizes_.max_tokens, kernel, x, y, z, shared_bytes);
  }
  late_start_.reset();
  if (is_listing_) {
    programs_.push_back(program);
    return ok_status();
  }
  if (is_one_row()) {
    const bool is_beside_large = !launches_.empty() && launches_.back().shared_bytes == kOverHalfOfShared;
    const bool is_large = x >= device_.n_multiprocessors() && !is_beside_large;
    shared_bytes = std::max(shared_bytes, is_large ? kOverHalfOfShared : kThirdOfShared);
  }
  ZINC_TRY(function, device_.kernel(program, kernel));
  if (Status s = device_.allow_shared(function, shared_bytes); !s.ok()) return s;
  launch.function = function;
  launch.grid = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  launch.shared_bytes = static_cast<unsigned>(shared_bytes);
  launches_.push_back(launch);
  return ok_status();
}

Result<std::vector<Launch>> Lowering::run() {
  if (Status s = lower_all(); !s.ok()) return s.error();
  return std::move(launches_);
}

Result<std::vector<KernelProgram>> Lowering::programs() {
  is_listing_ = true;
  if (Status s = lower_all(); !s.ok()) return s.error();
  return std::move(programs_);
}

Status Lowering::lower_all() {
  if (Status s = lower_rope_tables(); !s.ok()) return s;
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (const MixGroup* mix = is_one_row() ? room_.fusion().mix_at(i) : nullptr) {
      if (Status s = lower_mix(*mix); !s.ok()) return s;
      continue;
    }
    if (const ProductGroup* group = room_.fusion().products_at(i)) {
      if (is_one_row() && (group->halves >= 0 || room_.fusion().is_mixed(*group))) continue;
      if (group == router_beside_) continue;
      if (Status s = lower_products(*group); !s.ok()) return s;
      continue;
    }
    if (const ProductGroup* group = is_one_row() ? room_.fusion().halves_at(i) : nullptr) {
      ProductGroup gated = *group;
      gated.act = group->halves;
      if (Status s = lower_one_row(gated); !s.ok()) return s;
      continue;
    }
    if (const HeadGroup* group = is_one_row() ? room_.fusion().attention_at(i) : nullptr) {
      if (Status s = lower_attend_one(*group); !s.ok()) return s;
      continue;
    }
    if (const DeltaGroup* group = is_one_row() ? room_.fusion().delta_at(i) : nullptr) {
      if (Status s = lower_delta_one(*group); !s.ok()) return s;
      continue;
    }
    if (const AddNormed* group = is_one_row() ? room_.fusion().add_normed_at(i) : nullptr) {
      if (group->by_products_at >= 0) continue;  // their launch makes it: fill_sum
      if (Status s = lower_add_normed(*group); !s.ok()) return s;
      continue;
    }
    if (const AddNormed* group = is_one_row() ? nullptr : room_.fusion().add_normed_with(i)) {
      if (Status s = i == group->at ? lower_add_normed(*group) : ok_status(); !s.ok()) return s;
      continue;
    }
    if (room_.fusion().is_absorbed(i, is_one_row())) continue;
    const Lower lower = find(node(i).op);
    if (!lower) return fail(ErrorCode::unsupported, "the cuda backend has no kernel for {}", op_name(node(i).op));
    if (Status s = (this->*lower)(i); !s.ok()) return s;
  }
  return ok_status();
}

Status Lowering::lower_nothing(int) { return ok_status(); }

}  // namespace zinc::cuda
