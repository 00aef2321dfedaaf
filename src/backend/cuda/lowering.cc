#include "backend/cuda/lowering.h"

#include <algorithm>
#include <array>

namespace zinc::cuda {
namespace {

constexpr int64_t kMaxGridY = 65535;

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Two stages of gemm.cu: a segment of the weights and of the activations, with their scales and sums.
size_t gemm_shared_bytes(const PanelFormat& format) {
  const int weights = simt::kTileRows * (format.header_bytes + simt::kSegmentGroups * format.group_bytes);
  const int column = simt::kSegmentElems + 16 + 2 * simt::kSegmentGroups * static_cast<int>(sizeof(float));
  return 2 * static_cast<size_t>(weights + simt::kTileColumns * column);
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

template <class P>
Status Lowering::emit(const KernelProgram& program, const char* kernel, const P& params, int64_t x, int64_t y,
                      int64_t z, size_t shared_bytes) {
  if (x <= 0 || y <= 0 || z <= 0) return ok_status();
  if (y > kMaxGridY || z > kMaxGridY || shared_bytes > static_cast<size_t>(device_.max_shared_bytes())) {
    return fail(ErrorCode::unsupported,
                "{}: a step of {} tokens is too large for kernel {} ({} x {} x {} blocks, {} bytes)", device_.name(),
                sizes_.max_tokens, kernel, x, y, z, shared_bytes);
  }
  ZINC_TRY(function, device_.kernel(program, kernel));
  if (Status s = device_.allow_shared(function, shared_bytes); !s.ok()) return s;
  Launch launch =
      Launch::of(function, params, static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
  launch.shared_bytes = static_cast<unsigned>(shared_bytes);
  launches_.push_back(launch);
  return ok_status();
}

template <class P>
Status Lowering::emit_threads(const char* file, const char* kernel, const P& params, int64_t n_threads) {
  return emit({file, ""}, kernel, params, div_up(n_threads, simt::kThreads));
}
template <class P>
Status Lowering::emit_warps(const char* file, const char* kernel, const P& params, int64_t n_warps) {
  return emit({file, ""}, kernel, params, div_up(n_warps, simt::kWarps));
}

Result<std::vector<Launch>> Lowering::run() {
  if (Status s = lower_rope_tables(); !s.ok()) return s.error();
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (const ProductGroup* group = room_.fusion().products_at(i)) {
      if (Status s = lower_products(*group); !s.ok()) return s.error();
      continue;
    }
    if (room_.fusion().is_absorbed(i)) continue;
    const Lower lower = find(node(i).op);
    if (!lower) return fail(ErrorCode::unsupported, "the cuda backend has no kernel for {}", op_name(node(i).op));
    if (Status s = (this->*lower)(i); !s.ok()) return s.error();
  }
  return std::move(launches_);
}

Status Lowering::lower_nothing(int) { return ok_status(); }

Status Lowering::lower_rope_tables() {
  for (const RopeTable& table : room_.rope_tables()) {
    const simt::RopeTableParams params{.step = room_.step(),
                                       .frequencies = table.device_frequencies.as<const double>(),
                                       .table = table.table.as<float>(),
                                       .n_pairs = static_cast<int>(table.frequencies.size()),
                                       .amplitude = table.amplitude};
    if (Status s = emit_threads("rows", "rope_table", params, int64_t{sizes_.max_tokens} * params.n_pairs); !s.ok()) {
      return s;
    }
  }
  return ok_status();
}

Status Lowering::lower_embed(int i) {
  const Node& n = node(i);
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const simt::EmbedParams params{.step = room_.step(), .table = table->matrix, .out = room_.floats(n.out[0])};
  return emit({"pack", std::string(table->format->name)}, "embed", params, sizes_.max_tokens);
}

// The states arrive before the step begins, when their place among the activations may still be another value's.
Status Lowering::lower_hidden_in(int i) {
  const Value out = node(i).out[0];
  const int w = static_cast<int>(width(out));
  const simt::CopyParams params{.from = room_.hidden_in().as<const float>(),
                                .to = room_.floats(out),
                                .n_rows = n_rows(out),
                                .row_ids = nullptr,
                                .per_row = 1,
                                .from_width = w,
                                .from_begin = 0,
                                .to_width = w,
                                .to_begin = 0,
                                .length = w};
  return emit_threads("rows", "copy_parts", params, int64_t{sizes_.max_tokens} * w);
}

// ---- products ----

Result<simt::Rounded> Lowering::rounded(Value v, const DeviceMatrix& matrix) {
  const int n_in = matrix.matrix.n_in;
  const RoundedForm* form = room_.fusion().form(v, matrix.format->rounded_block, n_in);
  ZINC_CHECK(form != nullptr);
  const simt::Rounded out = room_.rounded(*form);
  if (std::ranges::find(made_, form) != made_.end()) return out;
  made_.push_back(form);
  const simt::RoundParams params{.x = room_.floats(v),
                                 .out = out,
                                 .n_rows = n_rows(v),
                                 .per_row = static_cast<int>(width(v) / n_in),
                                 .width = n_in,
                                 .block = form->block};
  const int64_t n_segments = div_up(n_in, simt::kSegmentElems);
  if (Status s = emit_warps("rows", "round_rows", params, int64_t{max_rows(v)} * params.per_row * n_segments);
      !s.ok()) {
    return s.error();
  }
  return out;
}

Lowering::Written Lowering::written(Value v, int64_t n_in) {
  const RoundedForm* form = room_.fusion().only_form(v, n_in);
  if (!form) return {.floats = room_.floats(v)};
  made_.push_back(form);
  return {.floats = room_.fusion().is_read_as_floats(v) ? room_.floats(v) : nullptr,
          .rounded = room_.rounded(*form),
          .block = form->block};
}

// The group's input: rounded by its maker, rounded or normed on the way in, or rounded now.
Status Lowering::fill_inputs(const ProductGroup& group, bool is_small, simt::LinearParams& params) {
  const Value x = node(group.nodes[0]).in[0];
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  params.x = room_.floats(x);
  if (matrix.format->rounded_block == 0) return ok_status();
  const RoundedForm* form = room_.fusion().form(x, matrix.format->rounded_block, matrix.matrix.n_in);
  const bool is_made = std::ranges::find(made_, form) != made_.end();
  if (is_made || !is_small) {
    ZINC_TRY(rounded_x, rounded(x, matrix));
    params.rounded = rounded_x;
    return ok_status();
  }
  if (const int norm = room_.fusion().foldable_norm(x); norm >= 0) {
    params.x = room_.floats(node(norm).in[0]);
    params.norm_weight = vector(node(norm).in[1]);
    params.norm_eps = node(norm).as<zinc::NormParams>().eps;
    params.is_normed = 1;
  }
  return ok_status();
}

Status Lowering::lower_products(const ProductGroup& group) {
  const Node& first = node(group.nodes[0]);
  const bool is_expert = first.op == Op::moe_linear;
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  simt::LinearParams params{};
  params.act = simt::kNoAct;
  params.n_rows = n_rows(first.in[0]);
  params.per_row = is_expert ? 1 : static_cast<int>(width(first.in[0]) / matrix.matrix.n_in);
  if (is_expert) {
    params.expert_ids = room_.ints(first.in[2]);
    params.n_used = static_cast<int>(width(first.in[2]));
    params.x_per_used = info(first.in[0]).shape.n_dims() == 1 ? 0 : 1;
  }
  const bool small = is_small(first.in[0], params.per_row);
  if (Status s = fill_inputs(group, small, params); !s.ok()) return s;
  const int rows = max_rows(first.in[0]) * (is_expert ? params.n_used : params.per_row);
  fill_parts(group, params);
  params.tiles = room_.expert_tiles();
  const bool on_matrix_cores = !small && matrix.format->rounded_block > 0 && device_.has_matrix_cores() &&
                               gemm_shared_bytes(*matrix.format) <= static_cast<size_t>(device_.max_shared_bytes());
  return on_matrix_cores ? lower_matrix_cores(group, params, rows) : lower_panels(group, params, rows);
}

// Matrices and results of the group's products; the sum, if there is one.
void Lowering::fill_parts(const ProductGroup& group, simt::LinearParams& params) const {
  for (const int i : group.nodes) {
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    params.parts[params.n_parts] = matrix_of(i).matrix;
    params.outs[params.n_parts] = room_.floats(n.out[0]);
    params.biases[params.n_parts] = vector(n.in[is_expert ? 3 : 2]);
    params.expert_scales[params.n_parts] = is_expert ? vector(n.in[4]) : nullptr;
    ++params.n_parts;
  }
  if (group.add < 0) return;
  const Node& add = node(group.add);
  const bool is_first = room_.fusion().owner(add.in[0]) == room_.fusion().owner(node(group.nodes[0]).out[0]);
  params.added = room_.floats(add.in[is_first ? 1 : 0]);
  params.outs[0] = room_.floats(add.out[0]);
}

Status Lowering::lower_panels(const ProductGroup& group, simt::LinearParams params, int n_rows) {
  struct Tile {
    const char* kernel;
    int n_rows;
  };
  static constexpr std::array<Tile, 3> kTiles = {{{"linear_8", 8}, {"linear_4", 4}, {"linear_1", 1}}};
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  if (group.act >= 0) {
    params.act = static_cast<int>(node(group.act).as<GatedActParams>().act);
    params.outs[0] = room_.floats(node(group.act).out[0]);
  }
  const int most_warps = group.act >= 0 ? simt::kWarps / 2 : simt::kWarps;  // a gate's block has panels of both
  params.warps_per_panel = 1;
  while (params.warps_per_panel * 2 <= std::min(most_warps, matrix.matrix.n_segments)) params.warps_per_panel *= 2;
  const int panels = simt::kWarps / params.warps_per_panel;
  int64_t n_blocks = 0;
  for (int part = 0; part < params.n_parts; ++part) {
    const int64_t n_panels = div_up(params.parts[part].n_out, simt::kPanelRows);
    if (group.act < 0 || part == 0) n_blocks += div_up(n_panels, group.act < 0 ? panels : panels / 2);
  }
  for (const Tile& tile : kTiles) {
    if (params.expert_ids ? tile.n_rows > 1 : tile.n_rows / 2 >= n_rows) continue;  // at least half of a tile is used
    constexpr int kRoundedFloats = (256 + 2 * 32) / 4;                              // simt::SharedX
    const bool rounds = matrix.format->rounded_block > 0;
    const int64_t floats = int64_t{panels} * matrix.matrix.n_segments * tile.n_rows * simt::kPanelRows +
                           (rounds ? simt::kWarps * (tile.n_rows * kRoundedFloats + 1) : 0);
    const size_t shared = sizeof(float) * static_cast<size_t>(floats);
    if (shared > static_cast<size_t>(device_.max_shared_bytes()) && tile.n_rows > 1) continue;
    return emit({"linear", std::string(matrix.format->name)}, tile.kernel, params, n_blocks,
                div_up(n_rows, tile.n_rows), 1, shared);
  }
  return ok_status();
}

Status Lowering::lower_matrix_cores(const ProductGroup& group, const simt::LinearParams& params, int n_rows) {
  int64_t n_tiles = 0;
  for (int part = 0; part < params.n_parts; ++part) n_tiles += div_up(params.parts[part].n_out, simt::kTileRows);
  const DeviceMatrix& matrix = matrix_of(group.nodes[0]);
  const int64_t n_columns =
      params.expert_ids ? room_.max_expert_tiles(n_rows, matrix.n_stack) : div_up(n_rows, simt::kTileColumns);
  if (Status s = emit({"gemm", std::string(matrix.format->name)}, "gemm", params, n_tiles, n_columns, 1,
                      gemm_shared_bytes(*matrix.format));
      !s.ok()) {
    return s;
  }
  return group.act >= 0 ? lower_gated_act(group.act) : ok_status();
}

// ---- rows ----

Status Lowering::lower_norm(int i) {
  const Node& n = node(i);
  const zinc::NormParams& norm = n.as<zinc::NormParams>();
  simt::NormParams params{};
  params.x = room_.floats(n.in[0]);
  params.weight = vector(n.in[1]);
  params.n_rows = n_rows(n.in[0]);
  params.width = static_cast<int>(inner(n.in[0]));
  params.per_row = static_cast<int>(width(n.in[0]) / params.width);
  params.eps = norm.eps;
  params.is_l2 = norm.kind == NormKind::l2 ? 1 : 0;
  if (room_.fusion().foldable_norm(n.out[0]) == i && is_small(n.out[0], params.per_row)) return ok_status();
  const Written out = written(n.out[0], params.width);
  params.out = out.floats;
  params.rounded = out.rounded;
  params.block = out.block;
  const int64_t rows = int64_t{max_rows(n.in[0])} * params.per_row;
  if (params.width <= simt::kSegmentElems) return emit_warps("rows", "norm_heads", params, rows);
  return emit({"rows", ""}, "norm_rows", params, rows);
}

Status Lowering::lower_rope(int i) {
  const Node& n = node(i);
  const RopeTable& table = room_.rope_table(i);
  const simt::RopeParams params{.x = room_.floats(n.in[0]),
                                .out = room_.floats(n.out[0]),
                                .table = table.table.as<const float>(),
                                .n_rows = n_rows(n.in[0]),
                                .n_heads = static_cast<int>(width(n.in[0]) / inner(n.in[0])),
                                .head_dim = static_cast<int>(inner(n.in[0])),
                                .n_pairs = static_cast<int>(table.frequencies.size()),
                                .adjacent = n.as<zinc::RopeParams>().pairs == RopePairs::adjacent ? 1 : 0};
  return emit_threads("rows", "rope", params,
                      int64_t{sizes_.max_tokens} * params.n_heads * (params.head_dim - params.n_pairs));
}

Status Lowering::lower_gated_act(int i) {
  const Node& n = node(i);
  simt::GatedActParams params{};
  params.gate = room_.floats(n.in[0]);
  params.up = room_.floats(n.in[1]);
  params.n_rows = n_rows(n.out[0]);
  params.act = static_cast<int>(n.as<GatedActParams>().act);
  params.one_gate = width(n.in[0]) == 1 && width(n.out[0]) > 1 ? 1 : 0;
  const auto& forms = room_.fusion().rounded_forms();
  const auto form = std::ranges::find(forms, n.out[0].id, &RoundedForm::owner);
  params.width = form != forms.end() ? form->n_in : static_cast<int>(width(n.out[0]));
  const Written out = written(n.out[0], params.width);
  params.out = out.floats;
  params.rounded = out.rounded;
  params.block = out.block;
  params.per_row = static_cast<int>(width(n.out[0]) / params.width);
  return emit_warps("rows", "gated_act", params,
                    int64_t{max_rows(n.out[0])} * params.per_row * div_up(params.width, simt::kSegmentElems));
}

Status Lowering::lower_elementwise(int i) {
  const Node& n = node(i);
  simt::ElementwiseParams params{};
  params.a = room_.floats(n.in[0]);
  params.out = room_.floats(n.out[0]);
  params.n_rows = n_rows(n.out[0]);
  params.width = static_cast<int>(width(n.out[0]));
  if (n.op == Op::add) {
    params.op = simt::kAdd;
    params.b = room_.floats(n.in[1]);
  } else if (n.op == Op::mul) {
    params.op = simt::kMul;
    params.b = vector(n.in[1]);
    params.b_width = static_cast<int>(width(n.in[1]));
  } else {
    params.op = n.op == Op::scale ? simt::kScale : simt::kSoftcap;
    params.factor = n.op == Op::scale ? n.as<ScaleParams>().factor : n.as<SoftcapParams>().cap;
  }
  return emit_threads("rows", "elementwise", params, int64_t{max_rows(n.out[0])} * params.width);
}

Status Lowering::lower_slice(int i) {
  const Node& n = node(i);
  const simt::CopyParams params{.from = room_.floats(n.in[0]),
                                .to = room_.floats(n.out[0]),
                                .n_rows = n_rows(n.out[0]),
                                .row_ids = nullptr,
                                .per_row = static_cast<int>(width(n.out[0]) / inner(n.out[0])),
                                .from_width = static_cast<int>(inner(n.in[0])),
                                .from_begin = static_cast<int>(n.as<SliceParams>().begin),
                                .to_width = static_cast<int>(inner(n.out[0])),
                                .to_begin = 0,
                                .length = static_cast<int>(inner(n.out[0]))};
  return emit_threads("rows", "copy_parts", params, int64_t{max_rows(n.out[0])} * width(n.out[0]));
}

Status Lowering::lower_concat(int i) {
  const Node& n = node(i);
  int begin = 0;
  for (Value part : {n.in[0], n.in[1]}) {
    const int length = static_cast<int>(inner(part));
    const simt::CopyParams params{.from = room_.floats(part),
                                  .to = room_.floats(n.out[0]),
                                  .n_rows = n_rows(n.out[0]),
                                  .row_ids = nullptr,
                                  .per_row = static_cast<int>(width(part) / length),
                                  .from_width = length,
                                  .from_begin = 0,
                                  .to_width = static_cast<int>(inner(n.out[0])),
                                  .to_begin = begin,
                                  .length = length};
    if (Status s = emit_threads("rows", "copy_parts", params, int64_t{max_rows(part)} * width(part)); !s.ok()) return s;
    begin += length;
  }
  return ok_status();
}

Status Lowering::lower_rows(int i) {
  const Node& n = node(i);
  const int w = static_cast<int>(width(n.out[0]));
  const simt::CopyParams params{.from = room_.floats(n.in[0]),
                                .to = room_.floats(n.out[0]),
                                .n_rows = n_rows(n.out[0]),
                                .row_ids = room_.step().output_rows,
                                .per_row = 1,
                                .from_width = w,
                                .from_begin = 0,
                                .to_width = w,
                                .to_begin = 0,
                                .length = w};
  return emit_threads("rows", "copy_parts", params, int64_t{sizes_.max_outputs} * w);
}

// ---- attention and states ----

Status Lowering::lower_attention(int i) {
  const Node& n = node(i);
  const zinc::AttentionParams& attention = n.as<zinc::AttentionParams>();
  const simt::KvLayer kv = cache_.kv_layer(attention.cache_layer);
  const std::string suffix(cache_.kv_format());
  const auto blocks = [](int dim) { return div_up(dim, 32); };
  const HeadGroup* heads = room_.fusion().heads_of(i);
  if (heads) {
    if (Status s = lower_heads(*heads, kv); !s.ok()) return s;
  } else if (n.in[1]) {
    const simt::KvWriteParams write{room_.step(), kv, room_.floats(n.in[1]), room_.floats(n.in[2])};
    const int64_t n_warps = int64_t{sizes_.max_tokens} * kv.kv_heads * (blocks(kv.k_dim) + blocks(kv.v_dim));
    if (Status s = emit_warps("attention", ("kv_write_" + suffix).c_str(), write, n_warps); !s.ok()) return s;
  }
  simt::AttentionParams params{};
  params.step = room_.step();
  params.kv = kv;
  params.q = room_.floats(n.in[0]);
  params.sinks = vector(n.in[3]);
  params.out = room_.floats(n.out[0]);
  params.n_heads = static_cast<int>(info(n.in[0]).shape[0]);
  params.scale = attention.scale;
  params.softcap = attention.softcap;
  params.window = static_cast<int>(attention.window);
  params.n_chunks = room_.n_chunks(attention.cache_layer);
  const int group_heads = params.n_heads / kv.kv_heads;
  const bool is_split = sizes_.max_tokens <= kMaxSplitTokens;
  // Two rows a block keep a step of few tokens short; more would only save reads of keys that lie in the cache.
  params.heads_per_tile = std::min(group_heads, is_split ? 2 : simt::kAttentionRows);
  params.tokens_per_tile = is_split ? 1 : std::max(1, simt::kAttentionRows / params.heads_per_tile);
  params.partial = is_split ? room_.attention_partial() : nullptr;
  int tile_rows = 2;  // of the kernel: 2, 4 or 8
  while (tile_rows < params.heads_per_tile * params.tokens_per_tile) tile_rows *= 2;
  const size_t floats =
      static_cast<size_t>(tile_rows) *
      static_cast<size_t>(simt::kWarps * 128 + simt::kChunkPositions + 32 * (blocks(kv.k_dim) + blocks(kv.v_dim)) + 4);
  constexpr int kMaxSplits = 64;
  if (Status s = emit({"attention", ""}, fmt::format("attention_{}_{}", suffix, tile_rows).c_str(), params,
                      kv.kv_heads * div_up(group_heads, params.heads_per_tile),
                      div_up(sizes_.max_tokens, params.tokens_per_tile),
                      is_split ? std::min(kMaxSplits, params.n_chunks) : 1, floats * sizeof(float));
      !s.ok()) {
    return s;
  }
  if (!is_split) return ok_status();
  const Written out = written(n.out[0], width(n.out[0]));
  params.out = out.floats;
  params.rounded = out.rounded;
  params.block = out.block;
  return emit({"attention", ""}, "merge_chunks", params, div_up(width(n.out[0]), simt::kSegmentElems),
              sizes_.max_tokens);
}

simt::HeadPart Lowering::head_part(const HeadChain& chain) const {
  simt::HeadPart part{};
  if (!chain.x) return part;
  part.x = room_.floats(chain.x);
  if (chain.norm >= 0) {
    part.is_normed = 1;
    part.norm_weight = vector(node(chain.norm).in[1]);
    part.eps = node(chain.norm).as<zinc::NormParams>().eps;
  }
  if (chain.rope >= 0) {
    const RopeTable& table = room_.rope_table(chain.rope);
    part.table = table.table.as<const float>();
    part.n_pairs = static_cast<int>(table.frequencies.size());
    part.adjacent = node(chain.rope).as<zinc::RopeParams>().pairs == RopePairs::adjacent ? 1 : 0;
  }
  return part;
}

Status Lowering::lower_heads(const HeadGroup& group, const simt::KvLayer& kv) {
  const Node& n = node(group.attention);
  simt::HeadsParams params{};
  params.step = room_.step();
  params.kv = kv;
  params.q_out = room_.floats(n.in[0]);
  int n_heads = 0;
  for (size_t i = 0; i < 3; ++i) {
    simt::HeadPart& part = params.parts[i];
    part = head_part(group.parts[i]);
    if (!part.x || (i == 0 && group.parts[0].norm < 0 && group.parts[0].rope < 0)) continue;  // q is as it should be
    part.dim = static_cast<int>(inner(n.in[i]));
    part.n_heads = static_cast<int>(width(n.in[i])) / part.dim;
    n_heads += part.n_heads;
  }
  const std::string kernel = "prepare_heads_" + std::string(cache_.kv_format());
  return emit_warps("attention", kernel.c_str(), params, int64_t{sizes_.max_tokens} * n_heads);
}

Status Lowering::lower_moe_route(int i) {
  const Node& n = node(i);
  const MoeRouteParams& route = n.as<MoeRouteParams>();
  const simt::RouteParams params{.logits = room_.floats(n.in[0]),
                                 .ids = room_.ints(n.out[0]),
                                 .weights = room_.floats(n.out[1]),
                                 .n_rows = n_rows(n.in[0]),
                                 .n_experts = static_cast<int>(width(n.in[0])),
                                 .n_used = static_cast<int>(route.n_used),
                                 .mode = static_cast<int>(route.weights),
                                 .scale = route.scale};
  if (params.n_experts > simt::kMaxExperts) {
    return fail(ErrorCode::unsupported, "the cuda backend's {} takes up to {} experts; this model has {}",
                op_name(n.op), simt::kMaxExperts, params.n_experts);
  }
  if (Status s = emit({"moe", ""}, "moe_route", params, max_rows(n.in[0])); !s.ok()) return s;
  if (is_small(n.in[0], 1)) return ok_status();
  const simt::GroupPairsParams pairs{.ids = params.ids,
                                     .n_rows = params.n_rows,
                                     .n_used = params.n_used,
                                     .n_experts = params.n_experts,
                                     .out = room_.expert_tiles()};
  return emit({"moe", ""}, "group_pairs", pairs, 1);
}

Status Lowering::lower_moe_combine(int i) {
  const Node& n = node(i);
  const simt::CombineParams params{.x = room_.floats(n.in[0]),
                                   .weights = room_.floats(n.in[1]),
                                   .out = room_.floats(n.out[0]),
                                   .n_rows = n_rows(n.out[0]),
                                   .n_used = static_cast<int>(width(n.in[1])),
                                   .dim = static_cast<int>(width(n.out[0]))};
  return emit_threads("moe", "moe_combine", params, int64_t{max_rows(n.out[0])} * params.dim);
}

Status Lowering::lower_short_conv(int i) {
  const Node& n = node(i);
  const int layer = n.as<ShortConvParams>().cache_layer;
  const simt::ConvParams params{.step = room_.step(),
                                .x = room_.floats(n.in[0]),
                                .weight = vector(n.in[1]),
                                .out = room_.floats(n.out[0]),
                                .states = cache_.conv_states(layer),
                                .slot_floats = static_cast<long long>(cache_.slot_floats()),
                                .n_channels = static_cast<int>(width(n.in[0])),
                                .n_taps = static_cast<int>(width(n.in[1]) / width(n.in[0]))};
  if (params.n_taps > simt::kMaxTaps) {
    return fail(ErrorCode::unsupported, "the cuda backend's {} has up to {} taps; this model has {}", op_name(n.op),
                simt::kMaxTaps, params.n_taps);
  }
  return emit({"recurrent", ""}, "short_conv", params, div_up(params.n_channels, simt::kThreads), room_.max_seqs());
}

Status Lowering::lower_delta_net(int i) {
  const Node& n = node(i);
  const DeltaNetParams& delta = n.as<DeltaNetParams>();
  simt::DeltaParams params{};
  params.step = room_.step();
  params.q = room_.floats(n.in[0]);
  params.k = room_.floats(n.in[1]);
  params.v = room_.floats(n.in[2]);
  params.alpha = room_.floats(n.in[3]);
  params.beta = room_.floats(n.in[4]);
  params.dt_bias = vector(n.in[5]);
  params.a = vector(n.in[6]);
  params.out = room_.floats(n.out[0]);
  params.states = cache_.delta_states(delta.cache_layer);
  params.slot_floats = static_cast<long long>(cache_.slot_floats());
  params.k_heads = static_cast<int>(info(n.in[1]).shape[0]);
  params.k_dim = static_cast<int>(info(n.in[1]).shape[1]);
  params.v_heads = static_cast<int>(info(n.in[2]).shape[0]);
  params.v_dim = static_cast<int>(info(n.in[2]).shape[1]);
  params.is_cyclic = delta.sharing == HeadSharing::cyclic ? 1 : 0;
  params.q_scale = delta.q_scale;
  if (params.k_dim > 256) {
    return fail(ErrorCode::unsupported, "the cuda backend's {} takes keys of up to 256 numbers; this model has {}",
                op_name(n.op), params.k_dim);
  }
  return emit({"recurrent", ""}, params.k_dim <= 128 ? "delta_net_128" : "delta_net_256", params,
              div_up(params.v_dim, 32), params.v_heads, room_.max_seqs());
}

Status Lowering::lower_sample(int i) {
  const Node& n = node(i);
  const simt::SampleParams params{.step = room_.step(),
                                  .logits = room_.floats(n.in[0]),
                                  .best = room_.best(),
                                  .best_id = room_.best_id(),
                                  .sampled = room_.sampled().as<int>(),
                                  .vocab = static_cast<int>(width(n.in[0]))};
  if (Status s = emit({"moe", ""}, "sample_parts", params, simt::kSampleSplits, sizes_.max_outputs); !s.ok()) return s;
  return emit({"moe", ""}, "sample_rows", params, sizes_.max_outputs);
}

}  // namespace zinc::cuda
