// Decode matmuls (batch 1): all matrices of a call in one gemv launch, compiled for exactly these shapes.
#include <algorithm>
#include <functional>
#include <span>

#include "backend/cuda/lowering.h"

namespace zinc::cuda {
namespace {

int segment_bytes(const PanelFormat& format) {
  return simt::panel_segment_bytes(format.header_bytes, format.group_bytes);
}

}  // namespace

// A gemv launch being built: its parts and their formats.
struct Lowering::GemvLaunch {
  struct Member {
    simt::GemvPart part;
    const PanelFormat* format;
    bool is_split_k;
  };
  simt::GemvShape shape{};
  simt::GemvParams params{};
  std::vector<Member> members;
  int64_t n_blocks = 0;

  explicit GemvLaunch(int n_in) {
    shape.n_in = n_in;
    shape.act = simt::kNoAct;
  }
  void add(const simt::GemvPart& part, const PanelFormat* format, bool is_split_k = false) {
    members.push_back({part, format, is_split_k});
  }
  // Chooses warps, cluster size, blocks and shared memory for the parts.
  void finish(int n_sms, int max_cluster_size);
  KernelProgram program() const;
  size_t shared_bytes() const;
  std::vector<std::span<const float>> written() const;  // outputs of all parts, and the residual sum

 private:
  void build_problems();
  void choose_warp_pairs();
  void choose_cluster_size(int n_sms, int max_cluster_size);
  bool is_one_batch(int cluster_size) const;
  int max_panels() const;  // of one cluster
  // Returns the bytes read by the busiest block.
  int64_t assign_blocks(int n_sms, int cluster_size);
  void size_shared_memory();
  std::span<const simt::GemvProblem> problems() const {
    return {params.problems, static_cast<size_t>(params.n_problems)};
  }
  std::vector<const PanelFormat*> formats() const;  // without duplicates, sorted by name
  const PanelFormat& format_of(const simt::GemvProblem& problem) const {
    return *members[static_cast<size_t>(problem.first_part)].format;
  }
};

std::vector<const PanelFormat*> Lowering::GemvLaunch::formats() const {
  std::vector<const PanelFormat*> all;
  for (const Member& member : members) all.push_back(member.format);
  std::ranges::sort(all, {}, [](const PanelFormat* f) { return f->name; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void Lowering::GemvLaunch::build_problems() {
  const std::vector<const PanelFormat*> all = formats();
  std::ranges::stable_sort(members, {}, [](const Member& m) { return std::pair(m.format->name, m.is_split_k); });
  for (const Member& member : members) {
    simt::GemvPart part = member.part;
    const int64_t n_panels = ceil_div(part.n_out, simt::kPanelRows) *
                             (member.is_split_k ? simt::segment_count(shape.n_in) : std::max(1, shape.n_experts_used));
    part.n_panels = static_cast<int>(n_panels / std::max(1, shape.n_experts_used));
    const int i = params.n_parts++;
    params.parts[i] = part;
    const bool is_new = i == 0 || members[static_cast<size_t>(i) - 1].format != member.format ||
                        members[static_cast<size_t>(i) - 1].is_split_k != member.is_split_k;
    if (is_new) {
      const auto format = std::ranges::find(all, member.format) - all.begin();
      params.problems[params.n_problems++] = {.format = static_cast<int>(format),
                                              .is_split_k = member.is_split_k ? 1 : 0,
                                              .first_part = i,
                                              .first_block = 0,
                                              .n_panels = 0,
                                              .panels_per_cluster = 0,
                                              .n_extra = 0};
    }
    params.problems[params.n_problems - 1].n_panels += static_cast<int>(n_panels);
  }
}

// The most warp pairs that can each have two segments in flight, of the format with the largest segments.
void Lowering::GemvLaunch::choose_warp_pairs() {
  constexpr int kMinWarpPairs = 4;
  shape.pipeline_bytes = 84 << 10;
  int max_segment_bytes = 1;
  for (const Member& member : members) {
    if (!member.is_split_k && member.format->q8_block > 0)
      max_segment_bytes = std::max(max_segment_bytes, segment_bytes(*member.format));
  }
  // A normed row is held in registers: for long rows fewer warps, with more registers each.
  const int max_width_8_pairs = shape.input == simt::kNormResidualInput ? 4096 : 6144,
            max_width_6_pairs = shape.input == simt::kNormResidualInput ? 6144 : 8192;
  const int max_pairs = !simt::is_normed(shape.input) || shape.n_in <= max_width_8_pairs ? simt::kMaxWarpPairs
                        : shape.n_in <= max_width_6_pairs                                ? 6
                                                                                         : kMinWarpPairs;
  shape.n_warp_pairs = std::clamp(shape.pipeline_bytes / (2 * max_segment_bytes), kMinWarpPairs, max_pairs);
}

// Assigns clusters one by one to the problem whose blocks read the most bytes, until each SM has a block. Split-K
// problems get at most half of the blocks if there are other problems.
int64_t Lowering::GemvLaunch::assign_blocks(int n_sms, int cluster_size) {
  const size_t n_problems = static_cast<size_t>(params.n_problems);
  std::vector<int64_t> n_clusters(n_problems), loads(n_problems);
  int64_t n_free = n_sms / cluster_size;
  const auto assign = [&](size_t i, int64_t n) {
    const simt::GemvProblem& problem = params.problems[i];
    n_clusters[i] += n;
    n_free -= n;
    if (problem.is_split_k) return;
    loads[i] = ceil_div(problem.n_panels, n_clusters[i]) * ceil_div(simt::tiles_per_panel(shape), cluster_size) *
               segment_bytes(format_of(problem));
  };
  const auto is_split_k = [](const simt::GemvProblem& problem) { return problem.is_split_k != 0; };
  const int64_t n_split_k = std::ranges::count_if(problems(), is_split_k);
  const int64_t max_split_k_clusters =
      n_split_k == params.n_problems ? n_free : std::max<int64_t>(1, n_free / (2 * std::max<int64_t>(1, n_split_k)));
  for (size_t i = 0; i < n_problems; ++i) {
    const simt::GemvProblem& problem = params.problems[i];
    assign(i, problem.is_split_k
                  ? std::min(ceil_div(problem.n_panels, simt::kSplitKWarps * cluster_size), max_split_k_clusters)
                  : 1);
  }
  while (n_free > 0) assign(static_cast<size_t>(std::ranges::max_element(loads) - loads.begin()), 1);
  n_blocks = 0;
  for (size_t i = 0; i < n_problems; ++i) {
    simt::GemvProblem& problem = params.problems[i];
    problem.first_block = static_cast<int>(n_blocks);
    const int64_t n_shares = n_clusters[i] * (problem.is_split_k ? cluster_size : 1);
    problem.panels_per_cluster = static_cast<int>(problem.n_panels / n_shares);
    problem.n_extra = static_cast<int>(problem.n_panels % n_shares);
    n_blocks += n_clusters[i] * cluster_size;
  }
  return std::ranges::max(loads);
}

int Lowering::GemvLaunch::max_panels() const {
  int max = 1;
  for (const simt::GemvProblem& problem : problems()) {
    if (!problem.is_split_k) max = std::max(max, problem.panels_per_cluster + (problem.n_extra > 0 ? 1 : 0));
  }
  return max;
}

// The blocks of a cluster exchange partial sums only once, so all panels must be one batch.
bool Lowering::GemvLaunch::is_one_batch(int cluster_size) const {
  simt::GemvShape candidate = shape;
  candidate.cluster_size = cluster_size;
  candidate.max_panels = max_panels();
  return simt::panels_per_batch(candidate) == candidate.max_panels;
}

// Prefers a larger cluster if the busiest block reads no more bytes and each block quantizes fewer segments. One block
// per cluster if each warp pair has one work tile and all tiles fit the pipeline: a second block would only add a wait.
void Lowering::GemvLaunch::choose_cluster_size(int n_sms, int max_cluster_size) {
  constexpr int kMinSegmentsPerBlock = 4;
  shape.cluster_size = 1;
  int64_t min_load = assign_blocks(n_sms, 1);
  if (min_load == 0) return;  // all parts are split-K
  if (max_panels() * simt::tiles_per_panel(shape) <= shape.n_warp_pairs && min_load <= shape.pipeline_bytes) return;
  for (int n = 2; n <= std::min({max_cluster_size, simt::tiles_per_panel(shape), n_sms}); n *= 2) {
    const int64_t load = assign_blocks(n_sms, n);
    if (load > min_load || (load == min_load && simt::segment_count(shape.n_in) < n * kMinSegmentsPerBlock)) continue;
    if (!is_one_batch(n)) continue;
    min_load = load;
    shape.cluster_size = n;
  }
  assign_blocks(n_sms, shape.cluster_size);
}

void Lowering::GemvLaunch::size_shared_memory() {
  // Blocks of two launches share an SM, one with a little over half of its shared memory (Lowering::add).
  const int half_sm_bytes = (112 << 10) - 512 - 8 * shape.n_experts;
  shape.max_panels = max_panels();
  for (const simt::GemvProblem& problem : problems()) {
    const int n_inputs = problem.is_split_k ? simt::segment_count(shape.n_in) : simt::max_block_segments(shape);
    const bool is_float = format_of(problem).q8_block == 0;
    shape.x_bytes = std::max(shape.x_bytes, n_inputs * simt::input_segment_bytes(is_float));
  }
  const int n_panels = simt::panels_per_batch(shape), n_buffers = n_panels < shape.max_panels ? 2 : 1;
  shape.partial_floats = n_buffers * n_panels * simt::tiles_per_panel(shape) * simt::kPanelRows / shape.cluster_size;
  shape.pipeline_bytes = std::max(shape.pipeline_bytes / 2,
                                  std::min(shape.pipeline_bytes, half_sm_bytes - simt::gemv_smem(shape).pipeline));
}

void Lowering::GemvLaunch::finish(int n_sms, int max_cluster_size) {
  build_problems();
  shape.n_parts = params.n_parts;
  shape.n_panels = shape.n_experts_used > 0 ? params.parts[0].n_panels : 0;
  choose_warp_pairs();
  choose_cluster_size(n_sms, max_cluster_size);
  size_shared_memory();
}

KernelProgram Lowering::GemvLaunch::program() const {
  std::string names;
  for (const PanelFormat* format : formats()) {
    if (!names.empty()) names += '+';
    names += format->name;
  }
  return {"gemv", names, shape_definition("GemvShape", shape)};
}

size_t Lowering::GemvLaunch::shared_bytes() const {
  int pipeline_bytes = 0;
  for (const Member& member : members) {
    const int bytes = segment_bytes(*member.format);
    if (member.is_split_k) {
      pipeline_bytes = std::max(pipeline_bytes, simt::kSplitKWarps * bytes);
    } else if (member.format->q8_block > 0) {
      pipeline_bytes = std::max(pipeline_bytes, simt::pipeline_stages(shape, bytes) * bytes);
    }
  }
  return static_cast<size_t>(simt::gemv_smem(shape).pipeline + pipeline_bytes);
}

std::vector<std::span<const float>> Lowering::GemvLaunch::written() const {
  std::vector<std::span<const float>> all;
  for (const Member& member : members) {
    const int n_rows = member.is_split_k ? simt::segment_count(shape.n_in) : std::max(1, shape.n_experts_used);
    all.emplace_back(member.part.out, static_cast<size_t>(n_rows) * static_cast<size_t>(member.part.n_out));
  }
  if (params.input.residual_out) all.emplace_back(params.input.residual_out, static_cast<size_t>(shape.n_in));
  return all;
}

bool Lowering::LateTrigger::writes_to(std::span<const float> row) const {
  return std::ranges::any_of(written, [&](std::span<const float> part) {
    const std::less<> is_before;
    return is_before(part.data(), row.data() + row.size()) && is_before(row.data(), part.data() + part.size());
  });
}

Status Lowering::emit_gemv(GemvLaunch& launch) {
  constexpr int kMaxClusterSize = 2;  // clusters of four cannot cover all SMs
  launch.finish(device_.n_sms, device_.has_clusters ? kMaxClusterSize : 1);
  Launch gemv = Launch::of(nullptr, launch.params, 1);
  gemv.threads = static_cast<unsigned>(simt::gemv_threads(launch.shape));
  gemv.cluster = static_cast<unsigned>(launch.shape.cluster_size);
  if (Status s = add(launch.program(), "gemv", gemv, launch.n_blocks, 1, 1, launch.shared_bytes()); !s.ok()) return s;
  if (launch.shape.launches_dependents_late != 0)
    late_trigger_ = LateTrigger{launch.written(), launch.params.route.ids};
  return ok_status();
}

// Not for experts that read one row each: those run only in a MoeDownCall.
bool Lowering::is_gemv(const gpu::MatmulCall& call) const {
  if (!is_decode()) return false;
  const Node& first = call.first();
  if (call.has_experts()) return info(first.in[0]).shape.n_dims() == 1 && width(first.in[2]) <= simt::kMaxExpertsUsed;
  return width(first.in[0]) == matrix_of(first).n_in;
}

// Part i of the call, together with the up matrix if it is the gate.
simt::GemvPart Lowering::gemv_part(const gpu::MatmulCall& call, size_t i) const {
  const Node& n = *call.parts[i].node;
  const bool is_expert = n.op == Op::moe_linear, is_gate = call.act && i == 0;
  const auto bias = [&](const Node& of) { return vector(of.in[is_expert ? 3 : 2]); };
  const auto scale = [&](const Node& of) { return is_expert ? vector(of.in[4]) : nullptr; };
  const simt::Matrix matrix = simt_matrix(matrix_of(n));
  simt::GemvPart part{};
  part.bytes = matrix.bytes;
  part.matrix_bytes = matrix.matrix_bytes;
  part.n_out = matrix.n_out;
  part.bias = bias(n);
  part.expert_scale = scale(n);
  if (is_gate && call.is_packed_gate_up) {
    part.n_out = matrix.n_out / 2;
    part.second_matrix = matrix.bytes + part.n_out / simt::kPanelRows * matrix.panel_bytes;
    part.up_scale = part.expert_scale;
  } else if (is_gate) {
    const Node& up = *call.parts[1].node;
    part.second_matrix = simt_matrix(matrix_of(up)).bytes;
    part.up_bias = bias(up);
    part.up_scale = scale(up);
  }
  part.out = workspace_.floats((is_gate ? call.act : call.add ? call.add : &n)->out[0]);
  part.residual = optional_floats(call.addend);
  if (call.parts[i].is_split_k()) {
    const bool is_router = call.parts[i].reader == gpu::MatmulPart::Reader::router;
    part.out = is_router ? workspace_.router_partial() : workspace_.gate_partial();
    part.bias = nullptr;
  }
  return part;
}

// The input row: already quantized by its producer, or quantized from floats by each block, after a prologue.
void Lowering::fill_input(const gpu::MatmulCall& call, GemvLaunch& launch) const {
  simt::GemvInput& input = launch.params.input;
  input.x = workspace_.floats(call.x);
  if (call.norm) {
    input.norm_weight = vector(call.norm->in[1]);
    input.norm_eps = call.norm->as<zinc::NormParams>().eps;
  }
  if (call.gate) {
    input.gate = workspace_.floats(call.gate->in[0]);
    launch.shape.input = simt::kGatedHeadsInput;
    launch.shape.head_dim = static_cast<int>(inner(call.norm->out[0]));
    launch.shape.gate_act = static_cast<int>(call.gate->as<GatedActParams>().act);
  } else if (call.residual) {  // the launch also writes the sum for all later readers
    const Node& norm = *call.residual->norms[0];
    input.residual_out = workspace_.floats(call.residual->out());
    input.x = workspace_.floats(norm.in[0]);
    input.post_norm_weight = vector(norm.in[1]);
    input.post_norm_eps = norm.as<zinc::NormParams>().eps;
    input.residual = workspace_.floats(call.residual->residual);
    input.scale = call.residual->mul ? vector(call.residual->mul->in[1]) : nullptr;
    launch.shape.input = simt::kNormResidualInput;
  } else if (call.norm) {
    launch.shape.input = simt::kNormInput;
  } else {
    if (call.q8) input.q8 = workspace_.quantized(*call.q8);
    launch.shape.input = call.q8 ? simt::kQuantizedInput : simt::kPlainInput;
  }
}

// Lets the launch route its experts itself, from the split-K partial sums of the router logits.
void Lowering::fill_routing(const Node& route, GemvLaunch& launch) const {
  const MoeRouteParams& params = route.as<MoeRouteParams>();
  const Node& router = *workspace_.uses().producer(route.in[0]);
  const DeviceMatrix& matrix = matrix_of(router);
  launch.shape.n_experts = matrix.n_out;
  launch.shape.n_router_splits = simt::segment_count(matrix.n_in);
  launch.shape.router_normalization = static_cast<int>(params.weights);
  launch.params.route = {.partial = workspace_.router_partial(),
                         .bias = vector(router.in[2]),
                         .ids = workspace_.ints(route.out[0]),
                         .weights = workspace_.floats(route.out[1]),
                         .routed_scaling_factor = params.scale};
}

// After a launch that triggers late, the experts may read the logits and their row before they wait, if that launch
// does not write them.
void Lowering::fill_experts(const gpu::MatmulCall& call, GemvLaunch& launch) const {
  launch.params.expert_ids = workspace_.ints(call.first().in[2]);
  launch.shape.n_experts_used = static_cast<int>(width(call.first().in[2]));
  if (!call.route) return;
  fill_routing(*call.route, launch);
  const size_t n_logits = static_cast<size_t>(launch.shape.n_experts * launch.shape.n_router_splits);
  const std::span logits(launch.params.route.partial, n_logits);
  const std::span row(launch.params.input.x, static_cast<size_t>(launch.shape.n_in));
  const bool has_floats = launch.shape.input == simt::kNormInput || launch.shape.input == simt::kPlainInput;
  const bool reads_row = has_floats && launch.shape.n_in % 8 == 0;
  launch.shape.routes_before_wait = late_trigger_ && !late_trigger_->writes_to(logits) ? 1 : 0;
  launch.shape.reads_before_wait = late_trigger_ && !late_trigger_->writes_to(row) && reads_row ? 1 : 0;
}

Status Lowering::lower_gemv(const gpu::MatmulCall& call) {
  GemvLaunch launch(matrix_of(call.first()).n_in);
  fill_input(call, launch);
  if (call.act) {
    launch.shape.act = static_cast<int>(call.act->as<GatedActParams>().act);
    launch.shape.has_second_matrix = 1;
  }
  if (call.has_experts()) fill_experts(call, launch);
  for (size_t i = 0; i < call.parts.size(); ++i) {
    const bool is_up = call.act && !call.is_packed_gate_up && i == 1;
    const gpu::MatmulPart& part = call.parts[i];
    if (!is_up) launch.add(gemv_part(call, i), matrix_of(*part.node).format, part.is_split_k());
  }
  launch.params.split_k_x = optional_floats(call.split_k_x);
  launch.shape.has_split_k_input = call.split_k_x ? 1 : 0;
  launch.shape.launches_dependents_late = call.launches_dependents_late ? 1 : 0;
  return emit_gemv(launch);
}

// The experts' down projections and their weighted sum in one launch.
Status Lowering::lower(const gpu::MoeDownCall& call) {
  const Node& down = *call.down;
  const simt::Matrix matrix = simt_matrix(matrix_of(down));
  GemvLaunch launch(matrix.n_in);
  simt::GemvParams& params = launch.params;
  params.input.x = workspace_.floats(down.in[0]);
  if (call.q8) params.input.q8 = workspace_.quantized(*call.q8);
  launch.shape.input = call.q8 ? simt::kQuantizedInput : simt::kPlainInput;
  params.expert_ids = workspace_.ints(down.in[2]);
  params.expert_weights = workspace_.floats(call.combine->in[1]);
  launch.shape.n_combined = static_cast<int>(width(down.in[2]));
  // After the experts' launch, which routed them itself, the router logits are complete when this launch starts.
  if (late_trigger_ && late_trigger_->routed_ids == params.expert_ids) {
    fill_routing(*workspace_.uses().producer(down.in[2]), launch);
    launch.shape.reads_before_wait = 1;
  }
  simt::GemvPart part{};
  part.bytes = matrix.bytes;
  part.matrix_bytes = matrix.matrix_bytes;
  part.n_out = matrix.n_out;
  part.bias = vector(down.in[3]);
  part.expert_scale = vector(down.in[4]);
  if (call.shared) {
    const Value gate = call.shared_act->in[0];
    part.second_matrix = simt_matrix(matrix_of(*call.shared)).bytes;
    params.input.shared_expert_x = workspace_.floats(call.shared->in[0]);
    params.shared_gate = call.has_partial_gate ? workspace_.gate_partial() : workspace_.floats(gate);
    launch.shape.n_shared_gate_splits =
        call.has_partial_gate ? matrix_of(*workspace_.uses().producer(gate)).n_segments : 1;
    launch.shape.has_second_matrix = 1;
  }
  part.residual = optional_floats(call.addend);
  part.out = workspace_.floats(call.out());
  launch.add(part, matrix_of(down).format);
  return emit_gemv(launch);
}

}  // namespace zinc::cuda
