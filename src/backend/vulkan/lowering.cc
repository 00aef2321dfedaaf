#include "backend/vulkan/lowering.h"

#include <algorithm>
#include <cstring>

namespace zinc::vulkan {
namespace {

constexpr int64_t kMaxGrid = 65535;
constexpr int kMaxRoundedInputs = 16384;  // of a row that a workgroup rounds into its shared memory

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
  ZINC_TRY(pipeline, device_.pipeline(key));
  const size_t unit = device_.capabilities().uniform_alignment;
  const size_t at = (program_.blocks.size() + unit - 1) / unit * unit;
  program_.blocks.resize(at + block.size());
  std::memcpy(program_.blocks.data() + at, block.data(), block.size());
  program_.dispatches.push_back(
      {.pipeline = pipeline,
       .block = static_cast<uint32_t>(at),
       .grid = {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y), static_cast<uint32_t>(grid.z)},
       .waits = must_wait(touched)});
  return ok_status();
}

Result<Program> Lowering::run() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (const ProductGroup* group = room_.fusion().products_at(i)) {
      if (Status s = lower_products(*group); !s.ok()) return s.error();
      continue;
    }
    if (const int combine = room_.fusion().combine_at(i); combine >= 0) {
      if (Status s = lower_combine(combine, i); !s.ok()) return s.error();
      continue;
    }
    if (room_.fusion().is_absorbed(i)) continue;
    const Lower lower = find(node(i).op);
    if (!lower) return fail(ErrorCode::unsupported, "the vulkan backend has no kernel for {}", op_name(node(i).op));
    if (Status s = (this->*lower)(i); !s.ok()) return s.error();
  }
  return std::move(program_);
}

Status Lowering::lower_nothing(int) { return ok_status(); }

Status Lowering::lower_embed(int i) {
  const Node& n = node(i);
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const EmbedBlock block{.table = table->matrix, .out = room_.at(n.out[0])};
  return emit({"embed." + std::string(table->format->name), {}}, block, {sizes_.max_tokens},
              {{{cache_.last_sampled(), sizeof(int)}}, {all(n.out[0])}});
}

// ---- products ----

bool Lowering::is_made(const RoundedForm* form) const { return std::ranges::find(made_, form) != made_.end(); }

// One row: each workgroup rounds it for itself, which costs less than another dispatch.
bool Lowering::rounds_inside(Value x, int n_in) const { return max_rows(x) == 1 && n_in <= kMaxRoundedInputs; }

Status Lowering::make_rounded(Value v, const RoundedForm& form) {
  made_.push_back(&form);
  const int per_row = static_cast<int>(width(v) / form.n_in);
  const NormBlock block{.x = room_.at(v),
                        .weight = 0,
                        .out = 0,
                        .rounded = room_.rounded(form),
                        .n_rows = n_rows(v),
                        .per_row = per_row,
                        .width = form.n_in,
                        .kind = kPlain,
                        .eps = 0};
  const bool is_short = form.n_in <= kSegmentElems;
  const int64_t rows = int64_t{max_rows(v)} * per_row;
  return emit({"norm", {{1, is_short ? 1 : 0}}}, block, {is_short ? div_up(rows, kWarps) : rows},
              {{all(v)}, {{block.rounded.q, room_.rounded_bytes(form)}}});
}

Lowering::Written Lowering::written(Value v, int64_t n_in, Touched& touched) {
  const RoundedForm* form = room_.fusion().only_form(v, n_in);
  if (!form || rounds_inside(v, form->n_in)) {
    touched.writes.push_back(all(v));
    return {.floats = room_.at(v)};
  }
  made_.push_back(form);
  Written out{.rounded = room_.rounded(*form)};
  touched.writes.push_back({out.rounded.q, room_.rounded_bytes(*form)});
  if (room_.fusion().is_read_as_floats(v)) {
    out.floats = room_.at(v);
    touched.writes.push_back(all(v));
  }
  return out;
}

// The group's input: floats, normed and rounded on the way in; or rounded by its maker, or rounded now.
Status Lowering::fill_inputs(const ProductGroup& group, bool rounds_inside, LinearBlock& block, Touched& touched) {
  const Value x = node(group.nodes[0]).in[0];
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  block.x = room_.at(x);
  if (matrix.format->rounded_block == 0) {
    touched.reads.push_back(all(x));
    return ok_status();
  }
  if (rounds_inside) {
    Value from = x;
    if (const int norm = room_.fusion().foldable_norm(x); norm >= 0) {
      from = node(norm).in[0];
      block.x = room_.at(from);
      block.norm_weight = vector(node(norm).in[1]);
      block.norm_eps = node(norm).as<NormParams>().eps;
      block.is_normed = 1;
    }
    touched.reads.push_back(all(from));
    return ok_status();
  }
  const RoundedForm* form = room_.fusion().form(x, matrix.format->rounded_block, matrix.matrix.n_in);
  ZINC_CHECK(form != nullptr);
  if (!is_made(form)) {
    if (Status s = make_rounded(x, *form); !s.ok()) return s;
  }
  block.rounded = room_.rounded(*form);
  touched.reads.push_back({block.rounded.q, room_.rounded_bytes(*form)});
  return ok_status();
}

// Matrices and results of the group's products; the sum, if there is one.
void Lowering::fill_parts(const ProductGroup& group, LinearBlock& block, Touched& touched) const {
  for (const int i : group.nodes) {
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    const size_t part = static_cast<size_t>(block.n_parts++);
    block.parts[part] = matrix_of(i).matrix;
    block.outs[part] = room_.at(n.out[0]);
    block.biases[part] = vector(n.in[is_expert ? 3 : 2]);
    block.expert_scales[part] = is_expert ? vector(n.in[4]) : 0;
    if (group.act < 0 && group.add < 0) touched.writes.push_back(all(n.out[0]));
  }
  if (group.act >= 0) {
    const Node& act = node(group.act);
    block.act = static_cast<int>(act.as<GatedActParams>().act);
    block.outs[0] = room_.at(act.out[0]);
    touched.writes.push_back(all(act.out[0]));
  }
  if (group.add < 0) return;
  const Node& add = node(group.add);
  const bool is_first = room_.fusion().owner(add.in[0]) == room_.fusion().owner(node(group.nodes[0]).out[0]);
  const Value other = add.in[is_first ? 1 : 0];
  block.added = room_.at(other);
  block.outs[0] = room_.at(add.out[0]);
  touched.reads.push_back(all(other));
  touched.writes.push_back(all(add.out[0]));
}

// On cooperative matrices, where there are enough rows; all of a model's experts or none.
bool Lowering::on_matrices(const DeviceMatrix& matrix, bool is_expert) const {
  if (device_.capabilities().matrix_depth == 0 || matrix.format->rounded_block == 0) return false;
  return !is_expert || room_.tile_rows() == kMatrixExpertRows;
}

// Which kernel, cut how.
Lowering::ProductShape Lowering::shape_of(const ProductGroup& group, const DeviceMatrix& matrix, int64_t x_rows,
                                          bool rounds) const {
  const bool is_expert = node(group.nodes[0]).op == Op::moe_linear, is_gated = group.act >= 0;
  const bool is_few = x_rows <= kMaxSplitTokens;
  const std::string format(matrix.format->name);
  const int expert_mode = !is_expert ? 0 : is_few ? 1 : 2;
  if (!is_few && on_matrices(matrix, is_expert)) {
    const int warp_rows = is_expert || x_rows <= kMatrixExpertRows ? 2 : 4;  // 32 rows of activations each
    return {{"gemm." + format,
             {{1, warp_rows}, {2, device_.capabilities().matrix_depth}, {3, is_gated ? 1 : 0}, {6, expert_mode}}},
            32 * warp_rows,
            32 * (kWarps / warp_rows) / (is_gated ? 2 : 1)};
  }
  int rows = is_expert ? room_.tile_rows() : device_.tuning().product_rows;
  if (is_few) rows = is_expert || rounds || x_rows == 1 ? 1 : x_rows <= 4 ? 4 : device_.tuning().few_rows;
  const int quads = !rounds ? 1 : matrix.matrix.n_segments * kSegmentElems <= 4096 ? 256 : kMaxRoundedInputs / 16;
  return {{"linear." + format,
           {{1, rows}, {2, is_few ? 1 : 0}, {3, is_gated ? 1 : 0}, {4, rounds ? 1 : 0}, {5, quads}, {6, expert_mode}}},
          rows,
          kPanelRows * (is_few ? kWarps / matrix.matrix.n_splits : kWarps)};
}

Status Lowering::lower_products(const ProductGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  LinearBlock block{};
  block.n_rows = n_rows(first.in[0]);
  block.per_row = is_expert ? 1 : static_cast<int>(width(first.in[0]) / matrix.matrix.n_in);
  const int64_t x_rows = int64_t{max_rows(first.in[0])} * block.per_row;
  const bool rounds =
      matrix.format->rounded_block > 0 && rounds_inside(first.in[0], matrix.matrix.n_in) && block.per_row == 1;
  const ProductShape shape = shape_of(group, matrix, x_rows, rounds);
  Touched touched;
  if (Status s = fill_inputs(group, rounds, block, touched); !s.ok()) return s;
  int64_t n_tiles = div_up(x_rows, shape.rows);
  if (is_expert) {
    const bool is_few = x_rows <= kMaxSplitTokens;
    block.expert_ids = room_.at(first.in[2]);
    block.n_used = static_cast<int>(width(first.in[2]));
    block.x_per_used = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
    const ExpertTiles tiles = room_.expert_tiles();
    block.order = tiles.order;
    block.tiles = tiles.tiles;
    block.n_tiles = tiles.n_tiles;
    touched.reads.push_back(is_few ? all(first.in[2]) : Touch{tiles.order, tiles.n_bytes});
    n_tiles = is_few ? x_rows * block.n_used : room_.max_expert_tiles(x_rows * block.n_used, matrix.n_stack);
  }
  fill_parts(group, block, touched);
  int64_t n_blocks = 0;
  for (int part = 0; part < (group.act >= 0 ? 1 : block.n_parts); ++part) {
    n_blocks += div_up(block.parts[part].n_out, shape.outputs);
  }
  return emit(shape.key, block, {n_blocks, n_tiles}, touched);
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
  if (room_.fusion().foldable_norm(n.out[0]) == i && rounds_inside(n.out[0], block.width)) return ok_status();
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
