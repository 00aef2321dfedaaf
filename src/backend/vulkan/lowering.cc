#include "backend/vulkan/lowering.h"

#include <algorithm>
#include <cstring>

namespace zinc::vulkan {
namespace {

constexpr int64_t kMaxGrid = 65535;
constexpr std::pair<uint32_t, int> kCounting{19, 1};  // kChained of shader/chain.glsl

bool overlap(const Touch& a, const Touch& b) { return a.begin < b.begin + b.n_bytes && b.begin < a.begin + a.n_bytes; }
bool overlap(const std::vector<Touch>& a, const std::vector<Touch>& b) {
  return std::ranges::any_of(
      a, [&](const Touch& x) { return std::ranges::any_of(b, [&](const Touch& y) { return overlap(x, y); }); });
}

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

// A barrier only where something read was written, or something written was touched, since the last one.
bool Lowering::must_wait(const Touched& touched) {
  const bool waits = overlap(touched.reads, pending_.writes) || overlap(touched.writes, pending_.writes) ||
                     overlap(touched.writes, pending_.reads);
  if (waits) pending_ = {};
  pending_.reads.insert(pending_.reads.end(), touched.reads.begin(), touched.reads.end());
  pending_.writes.insert(pending_.writes.end(), touched.writes.begin(), touched.writes.end());
  return waits;
}

Lowering::Size Lowering::flat(int64_t n_threads) {
  constexpr int64_t kWide = 32768;  // workgroups: every device has 65535 in a row
  const int64_t n = div_up(n_threads, kThreads);
  return {std::min(n, kWide), div_up(n, kWide)};
}

Status Lowering::add(KernelKey key, std::span<const std::byte> block, const Size& grid, const Touched& touched) {
  ZINC_CHECK(block.size() <= Device::kBlockBytes);
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return ok_status();
  if (grid.x > kMaxGrid || grid.y > kMaxGrid || grid.z > kMaxGrid) {
    return fail(ErrorCode::unsupported,
                "{}: a step of {} tokens is too large for kernel {} ({} x {} x {} workgroups); take a smaller batch",
                device_.capabilities().name, sizes_.max_tokens, key.module, grid.x, grid.y, grid.z);
  }
  const int64_t n_counted = touched.n_counted > 0 ? touched.n_counted : grid.x * grid.y * grid.z;
  ZINC_TRY(pipeline, device_.pipeline(key));
  const size_t unit = device_.capabilities().uniform_alignment;
  const size_t at = (program_.blocks.size() + unit - 1) / unit * unit;
  program_.blocks.resize(at + block.size());
  std::memcpy(program_.blocks.data() + at, block.data(), block.size());
  program_.dispatches.push_back(
      {.pipeline = pipeline,
       .block = static_cast<uint32_t>(at),
       .grid = {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y), static_cast<uint32_t>(grid.z)},
       .waits = must_wait(touched),
       .n_counted = key.constants.empty() || key.constants.back() != kCounting ? 0 : static_cast<int>(n_counted)});
  return ok_status();
}

// A kernel that can wait and be waited for without a barrier, where the device starts workgroups in order. As many of
// them as there are processors start while those before still work.
KernelKey Lowering::chained(KernelKey key, int64_t n_workgroups) const {
  if (!is_one_row() || !device_.starts_in_order()) return key;
  key.constants.emplace_back(23, n_workgroups <= processors_of(device_.capabilities()) ? 1 : 0);
  key.constants.push_back(kCounting);
  return key;
}

// Dispatches between two barriers are a group. Where each of two groups in a row counts its workgroups, the second
// waits for the first's number of them and not at a barrier.
void Lowering::chain_groups() {
  struct Group {
    size_t begin, end;
    bool counts = true;
    int n_counted = 0;
  };
  std::vector<Group> groups;
  std::vector<Dispatch>& all = program_.dispatches;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i].waits) groups.push_back({i, i});
    Group& group = groups.back();
    group.end = i + 1;
    group.counts = group.counts && all[i].n_counted > 0;
    group.n_counted += all[i].n_counted;
  }
  const auto counter = [&](size_t g) { return room_.chain_counters().address() + g * kCounterBytes; };
  for (size_t g = 0; g < groups.size(); ++g) {
    Chain chain{0, counter(g), 0, 0};
    if (g > 0 && groups[g].counts && groups[g - 1].counts) {
      chain.before = counter(g - 1);
      chain.n_before = groups[g - 1].n_counted;
      all[groups[g].begin].waits = false;
    }
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) {
      if (all[i].n_counted > 0) std::memcpy(program_.blocks.data() + all[i].block, &chain, sizeof(chain));
    }
  }
}

Result<Program> Lowering::run() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (Status s = lower(i); !s.ok()) return s.error();
  }
  chain_groups();
  return std::move(program_);
}

Status Lowering::lower(int i) {
  const Fusion& fusion = room_.fusion();
  if (const MixGroup* mix = is_one_row() ? fusion.mix_at(i) : nullptr) return lower_mix(*mix);
  if (const ProductGroup* group = fusion.products_at(i)) {
    return is_one_row() && fusion.is_mixed(*group) ? ok_status() : lower_products(*group);
  }
  if (const HeadGroup* group = is_one_row() ? fusion.attention_at(i) : nullptr) return lower_attend_one(*group);
  if (const DeltaGroup* group = is_one_row() ? fusion.delta_at(i) : nullptr) return lower_delta_one(*group);
  if (fusion.is_absorbed(i, is_one_row())) return ok_status();
  if (const int combine = fusion.combine_at(i); combine >= 0) return lower_combine(combine, i);
  const Lower lower_op = find(node(i).op);
  if (!lower_op) return fail(ErrorCode::unsupported, "the vulkan backend has no kernel for {}", op_name(node(i).op));
  return (this->*lower_op)(i);
}

Status Lowering::lower_nothing(int) { return ok_status(); }

Status Lowering::lower_embed(int i) {
  const Node& n = node(i);
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const EmbedBlock block{.table = table->matrix, .out = room_.at(n.out[0])};
  return emit({"embed." + std::string(table->format->name), {}}, block, {sizes_.max_tokens},
              {{{cache_.last_sampled(), sizeof(int)}}, {all(n.out[0])}});
}

// ---- rows ----

Status Lowering::lower_norm(int i) {
  const Node& n = node(i);
  const NormParams& norm = n.as<NormParams>();
  NormBlock block{};
  block.x = room_.at(n.in[0]);
  block.weight = vector(n.in[1]);
  block.n_rows = n_rows(n.in[0]);
  block.width = static_cast<int>(inner(n.in[0]));
  block.per_row = static_cast<int>(width(n.in[0]) / block.width);
  block.eps = norm.eps;
  block.kind = norm.kind == NormKind::l2 ? kL2 : kRms;
  if (max_rows(n.out[0]) == 1 && room_.fusion().is_folded(i, true)) return ok_status();
  Touched touched{{all(n.in[0])}, {}};
  const Written out = written(n.out[0], block.width, touched);
  block.out = out.floats;
  block.rounded = out.rounded;
  const int64_t rows = int64_t{max_rows(n.in[0])} * block.per_row;
  const bool is_short = block.width <= kSegmentElems;
  return emit({"norm", {{1, is_short ? 1 : 0}}}, block, {is_short ? div_up(rows, kWarps) : rows}, touched);
}

Turns Lowering::turns_of(int rope) const {
  const RopeTable& table = room_.rope_table(rope);
  return {.coarse = table.coarse.address(),
          .fine = table.fine.address(),
          .n_pairs = static_cast<int>(table.frequencies.size()),
          .adjacent = node(rope).as<RopeParams>().pairs == RopePairs::adjacent ? 1 : 0};
}

Status Lowering::lower_rope(int i) {
  const Node& n = node(i);
  const RopeBlock block{.x = room_.at(n.in[0]),
                        .out = room_.at(n.out[0]),
                        .turns = turns_of(i),
                        .n_rows = n_rows(n.in[0]),
                        .n_heads = static_cast<int>(width(n.in[0]) / inner(n.in[0])),
                        .head_dim = static_cast<int>(inner(n.in[0]))};
  const int64_t n_threads = int64_t{sizes_.max_tokens} * block.n_heads * (block.head_dim - block.turns.n_pairs);
  return emit({"rope", {}}, block, flat(n_threads), {{all(n.in[0])}, {all(n.out[0])}});
}

Status Lowering::lower_gated_act(int i) {
  const Node& n = node(i);
  GateBlock block{};
  block.gate = room_.at(n.in[0]);
  block.up = room_.at(n.in[1]);
  block.n_rows = n_rows(n.out[0]);
  block.act = static_cast<int>(n.as<GatedActParams>().act);
  block.one_gate = width(n.in[0]) == 1 && width(n.out[0]) > 1 ? 1 : 0;
  const auto& forms = room_.fusion().rounded_forms();
  const auto form = std::ranges::find(forms, n.out[0].id, &RoundedForm::owner);
  block.width = form != forms.end() ? form->n_in : static_cast<int>(width(n.out[0]));
  block.per_row = static_cast<int>(width(n.out[0]) / block.width);
  Touched touched{{all(n.in[0]), all(n.in[1])}, {}};
  const Written out = written(n.out[0], block.width, touched);
  block.out = out.floats;
  block.rounded = out.rounded;
  const int64_t n_warps = int64_t{max_rows(n.out[0])} * block.per_row * div_up(block.width, kSegmentElems);
  return emit({"gate", {}}, block, {div_up(n_warps, kWarps)}, touched);
}

Status Lowering::lower_elementwise(int i) {
  const Node& n = node(i);
  ElementwiseBlock block{};
  block.a = room_.at(n.in[0]);
  block.out = room_.at(n.out[0]);
  block.n_rows = n_rows(n.out[0]);
  block.width = static_cast<int>(width(n.out[0]));
  Touched touched{{all(n.in[0])}, {all(n.out[0])}};
  if (n.op == Op::add) {
    block.op = kAdd;
    block.b = room_.at(n.in[1]);
    touched.reads.push_back(all(n.in[1]));
  } else if (n.op == Op::mul) {
    block.op = kMul;
    block.b = vector(n.in[1]);
    block.b_width = static_cast<int>(width(n.in[1]));
  } else {
    block.op = n.op == Op::scale ? kScale : kSoftcap;
    block.factor = n.op == Op::scale ? n.as<ScaleParams>().factor : n.as<SoftcapParams>().cap;
  }
  return emit({"elementwise", {}}, block, flat(int64_t{max_rows(n.out[0])} * block.width), touched);
}

// The states arrive before the step begins, when their place among the activations may still be another value's.
Status Lowering::lower_hidden_in(int i) {
  const Value out = node(i).out[0];
  const int w = static_cast<int>(width(out));
  const CopyBlock block{.from = 0,
                        .to = room_.at(out),
                        .kind = kHiddenIn,
                        .n_rows = n_rows(out),
                        .per_row = 1,
                        .from_width = w,
                        .from_begin = 0,
                        .to_width = w,
                        .to_begin = 0,
                        .n_copied = w};
  return emit({"copy", {}}, block, flat(int64_t{sizes_.max_tokens} * w), {{}, {all(out)}});
}

Status Lowering::lower_slice(int i) {
  const Node& n = node(i);
  const CopyBlock block{.from = room_.at(n.in[0]),
                        .to = room_.at(n.out[0]),
                        .kind = kCopy,
                        .n_rows = n_rows(n.out[0]),
                        .per_row = static_cast<int>(width(n.out[0]) / inner(n.out[0])),
                        .from_width = static_cast<int>(inner(n.in[0])),
                        .from_begin = static_cast<int>(n.as<SliceParams>().begin),
                        .to_width = static_cast<int>(inner(n.out[0])),
                        .to_begin = 0,
                        .n_copied = static_cast<int>(inner(n.out[0]))};
  return emit({"copy", {}}, block, flat(int64_t{max_rows(n.out[0])} * width(n.out[0])),
              {{all(n.in[0])}, {all(n.out[0])}});
}

Status Lowering::lower_concat(int i) {
  const Node& n = node(i);
  int begin = 0;
  for (Value part : {n.in[0], n.in[1]}) {
    const int length = static_cast<int>(inner(part));
    const CopyBlock block{.from = room_.at(part),
                          .to = room_.at(n.out[0]),
                          .kind = kCopy,
                          .n_rows = n_rows(n.out[0]),
                          .per_row = static_cast<int>(width(part) / length),
                          .from_width = length,
                          .from_begin = 0,
                          .to_width = static_cast<int>(inner(n.out[0])),
                          .to_begin = begin,
                          .n_copied = length};
    const Status s =
        emit({"copy", {}}, block, flat(int64_t{max_rows(part)} * width(part)), {{all(part)}, {all(n.out[0])}});
    if (!s.ok()) return s;
    begin += length;
  }
  return ok_status();
}

Status Lowering::lower_rows(int i) {
  const Node& n = node(i);
  const int w = static_cast<int>(width(n.out[0]));
  const CopyBlock block{.from = room_.at(n.in[0]),
                        .to = room_.at(n.out[0]),
                        .kind = kOutputRows,
                        .n_rows = n_rows(n.out[0]),
                        .per_row = 1,
                        .from_width = w,
                        .from_begin = 0,
                        .to_width = w,
                        .to_begin = 0,
                        .n_copied = w};
  return emit({"copy", {}}, block, flat(int64_t{sizes_.max_outputs} * w), {{all(n.in[0])}, {all(n.out[0])}});
}

Result<Program> Lowering::run_copy(Value v, CopyKind kind, int n_rows) {
  const int w = static_cast<int>(width(v));
  const CopyBlock block{.from = room_.at(v),
                        .to = 0,
                        .kind = kind,
                        .n_rows = kind == kLogitsOut ? kLogitRows : kTokens,
                        .per_row = 1,
                        .from_width = w,
                        .from_begin = 0,
                        .to_width = w,
                        .to_begin = 0,
                        .n_copied = w};
  if (Status s = emit({"copy", {}}, block, flat(int64_t{n_rows} * w), {}); !s.ok()) return s.error();
  return std::move(program_);
}

void record_program(const Device& device, VkCommandBuffer commands, const Program& program, VkDescriptorSet set,
                    uint32_t step) {
  const DeviceApi& api = device.api();
  VkPipeline bound = VK_NULL_HANDLE;
  for (const Dispatch& dispatch : program.dispatches) {
    if (dispatch.waits) add_kernel_barrier(api, commands);
    if (dispatch.pipeline != bound) {
      api.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, dispatch.pipeline);
      bound = dispatch.pipeline;
    }
    const std::array<uint32_t, 2> offsets = {dispatch.block, step};
    api.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, device.layout(), 0, 1, &set, 2, offsets.data());
    api.CmdDispatch(commands, dispatch.grid[0], dispatch.grid[1], dispatch.grid[2]);
  }
}

}  // namespace zinc::vulkan
