// Matmuls of one row and of a few: all matrices of a call in one launch of a gemv kernel, compiled for exactly these
// shapes, with the call's prologue, epilogue and routing as policies (simt/params/gemv.h).
#include <functional>
#include <span>
#include <variant>

#include "backend/simt/host/gemv_schedule.h"
#include "backend/simt/host/lowering.h"

namespace zinc::simt::host {

using gpu::MatmulCall;
using gpu::MatmulPart;

// A policy of a program: its type, and the parameters that it reads.
template <class... Params>
struct GemvPolicy {
  std::string type;
  std::variant<Params...> params;
};

struct Lowering::GemvPrologue : GemvPolicy<simt::PlainInput, simt::QuantizedInput, simt::NormInput,
                                           simt::GatedHeadsInput, simt::NormResidualInput> {
  template <class Input>
  const Input* get() const {
    return std::get_if<Input>(&params);
  }
  int n_normed_rows(int n_columns) const {
    return get<simt::NormInput>() ? n_columns : get<simt::NormResidualInput>() ? 2 : 0;
  }
  // The row of floats; null: it has another form.
  const float* row() const {
    if (const auto* norm = get<simt::NormInput>()) return norm->x;
    if (const auto* plain = get<simt::PlainInput>()) return plain->x;
    return nullptr;
  }
};

// A launch without its parameters.
struct Lowering::GemvLaunch {
  const char* kernel;
  GemvSchedule schedule;
  simt::GemvPdl pdl = {};
  LateTrigger late_trigger = {};  // if pdl.triggers_late
  std::string policies = "";

  void set_policy(std::string_view name, std::string_view type) {
    policies += fmt::format("using {} = {};", name, type);
  }
  KernelProgram program() const {
    return {kernel, schedule.format_names(),
            shape_definition("GemvShape", schedule.shape()) + shape_definition("GemvPdl", pdl, "kPdl") + policies};
  }
};

namespace {

// Calls emit with an empty part of the epilogue's kind.
template <class M, class Emit>
Status with_epilogue(const std::string& type, const Emit& emit) {
  if (type == "PlainEpilogue") return emit(simt::PlainPart<M>{});
  return type == "ResidualEpilogue" ? emit(simt::ResidualPart<M>{}) : emit(simt::GluPart<M>{});
}

}  // namespace

bool Lowering::LateTrigger::writes_to(const float* row, int n) const {
  return std::ranges::any_of(written, [&](std::span<const float> part) {
    const std::less<> is_before;
    return is_before(part.data(), row + n) && is_before(row, part.data() + part.size());
  });
}

GemvSchedule Lowering::schedule(const GemvWork& work) const { return GemvSchedule(work, device_); }

template <class Params>
Status Lowering::emit_gemv(const GemvLaunch& gemv, const Params& params) {
  Launch launch = Launch::of(params);
  launch.threads = static_cast<unsigned>(simt::gemv_threads(gemv.schedule.shape()));
  launch.cluster = static_cast<unsigned>(gemv.schedule.shape().cluster_size);
  const Status added =
      add(gemv.program(), gemv.kernel, launch, gemv.schedule.n_blocks(), 1, 1, gemv.schedule.shared_bytes());
  if (added.ok() && gemv.pdl.triggers_late != 0 && device_.has_dependent_launch()) late_trigger_ = gemv.late_trigger;
  return added;
}

// The input row: already quantized by its producer, or quantized from floats by each block, after a prologue.
Lowering::GemvPrologue Lowering::gemv_prologue(const MatmulCall& call) const {
  simt::NormInput norm{.x = workspace_.floats(call.x), .norm_weight = nullptr, .norm_eps = 0};
  if (call.norm) {
    norm.norm_weight = vector(call.norm->in[1]);
    norm.norm_eps = call.norm->as<zinc::NormParams>().eps;
  }
  if (call.gate) {
    return {{fmt::format("GatedHeadsPrologue<{}, {}>", inner(call.norm->out[0]), act_of(*call.gate)),
             simt::GatedHeadsInput{norm, workspace_.floats(call.gate->in[0])}}};
  }
  if (call.residual) {  // the launch also writes the sum for all later readers
    const Node& post = *call.residual->norms[0];
    norm.x = workspace_.floats(post.in[0]);
    return {{"NormResidualPrologue",
             simt::NormResidualInput{.row = norm,
                                     .post_norm_weight = vector(post.in[1]),
                                     .residual = workspace_.floats(call.residual->residual),
                                     .scale = vector(call.residual->mul ? call.residual->mul->in[1] : Value()),
                                     .residual_out = workspace_.floats(call.residual->out()),
                                     .post_norm_eps = post.as<zinc::NormParams>().eps}}};
  }
  if (call.norm) return {{"NormPrologue", norm}};
  if (call.q8) return {{"QuantizedPrologue", simt::QuantizedInput{workspace_.quantized(*call.q8)}}};
  return {{"PlainPrologue", simt::PlainInput{norm.x}}};
}

std::string Lowering::gemv_epilogue(const MatmulCall& call) {
  if (call.act) return fmt::format("GluEpilogue<{}>", act_of(*call.act));
  return call.add ? "ResidualEpilogue" : "PlainEpilogue";
}

// Rows of part i of the call, and where they are written.
int Lowering::gemv_n_out(const MatmulCall& call, size_t i) const {
  return matrix_of(*call.parts[i].node).n_out / (call.is_packed_gate_up && i == 0 ? 2 : 1);
}
float* Lowering::gemv_out(const MatmulCall& call, size_t i) const {
  if (call.parts[i].reader == MatmulPart::Reader::router) return workspace_.router_partial();
  if (call.parts[i].is_split_k()) return workspace_.gate_partial();
  const Node* epilogue = call.act && i == 0 ? call.act : call.add;
  return workspace_.floats((epilogue ? epilogue : call.parts[i].node)->out[0]);
}

// Part i of the call, together with the up matrix if it is the gate.
template <class Part>
Part Lowering::gemv_part(const MatmulCall& call, size_t i, int n_panels) const {
  using M = decltype(Part::matrix);
  constexpr bool is_expert = std::is_same_v<M, simt::ExpertMatrix>;
  const auto matrix_params = [&](const Node& n) {
    M m{};
    m.bytes = simt_matrix(matrix_of(n)).bytes;
    m.bias = vector(n.in[is_expert ? 3 : 2]);
    if constexpr (is_expert) m.scale = vector(n.in[4]);
    return m;
  };
  Part part{};
  part.matrix = matrix_params(*call.parts[i].node);
  part.out = gemv_out(call, i);
  part.n_out = gemv_n_out(call, i);
  part.n_panels = n_panels;
  if (call.parts[i].is_split_k()) part.matrix.bias = nullptr;
  if constexpr (requires { part.residual; }) part.residual = at(call.addend);
  if constexpr (requires { part.up; }) {
    if (call.is_packed_gate_up && i == 0) {
      part.up = part.matrix;
      part.up.bias = nullptr;
      part.up.bytes += part.n_out / simt::kPanelRows * simt_matrix(matrix_of(*call.parts[0].node)).panel_bytes;
    } else if (i == 0) {
      part.up = matrix_params(*call.parts[1].node);
    }
  }
  return part;
}

// Matrices of one input row.
Status Lowering::lower_gemv(const MatmulCall& call) {
  if (call.has_experts()) return lower_gemv_experts(call);
  const GemvPrologue prologue = gemv_prologue(call);
  const int n_columns = max_rows(call.x);
  GemvWork work{.n_in = matrix_of(call.first()).n_in,
                .n_matrices = call.act ? 2 : 1,
                .n_columns = n_columns,
                .n_normed_rows = prologue.n_normed_rows(n_columns),
                .parts = {}};
  std::vector<size_t> indices;  // of the call's parts; up belongs to the gate
  LateTrigger late_trigger{};
  for (size_t i = 0; i < call.parts.size(); ++i) {
    if (call.act && !call.is_packed_gate_up && i == 1) continue;
    const bool is_split_k = call.parts[i].is_split_k();
    ZINC_CHECK(n_columns == 1 || is_split_k || matrix_of(*call.parts[i].node).format->q8_block > 0);
    indices.push_back(i);
    work.parts.push_back({matrix_of(*call.parts[i].node).format, gemv_n_out(call, i), is_split_k});
    late_trigger.add(gemv_out(call, i),
                     n_columns * (is_split_k ? simt::segment_count(work.n_in) : 1) * gemv_n_out(call, i));
  }
  if (const auto* input = prologue.get<simt::NormResidualInput>()) late_trigger.add(input->residual_out, work.n_in);
  GemvPolicy<simt::NoInput, simt::PlainInput> split_k{"NoInput", simt::NoInput{}};
  if (call.split_k_x) split_k = {"PlainInput", simt::PlainInput{at(call.split_k_x)}};
  GemvLaunch gemv{"gemv", schedule(work), {.triggers_late = call.launches_dependents_late ? 1 : 0}, late_trigger};
  gemv.set_policy("Prologue", prologue.type);
  gemv.set_policy("Epilogue", gemv_epilogue(call));
  gemv.set_policy("SplitKInput", split_k.type);
  return with_epilogue<simt::DenseMatrix>(gemv_epilogue(call), [&]<class Part>(Part) {
    return std::visit(
        [&]<class Input, class SplitKInput>(const Input& input, const SplitKInput& split_k_input) {
          simt::GemvParams<Part, Input, SplitKInput> params{};
          for (size_t i = 0; i < indices.size(); ++i) {
            const size_t of = gemv.schedule.order()[i];
            params.parts[i] = gemv_part<Part>(call, indices[of], gemv.schedule.panels_of(work.parts[of]));
          }
          std::ranges::copy(gemv.schedule.problems(), params.problems);
          params.n_problems = static_cast<int>(gemv.schedule.problems().size());
          params.input = input;
          params.split_k_input = split_k_input;
          return emit_gemv(gemv, params);
        },
        prologue.params, split_k.params);
  });
}

// ---- experts ----

// A launch that routes its experts itself, from the split-K partial sums of the router logits.
Lowering::GemvRouting Lowering::gemv_routing(const Node& route, int n_used) const {
  const MoeRouteParams& params = route.as<MoeRouteParams>();
  const Node& router = *workspace_.uses().producer(route.in[0]);
  const DeviceMatrix& matrix = matrix_of(router);
  const int n_splits = simt::segment_count(matrix.n_in);
  return {.type = fmt::format("TopKRouter<{}, {}, {}, {}>", matrix.n_out, n_used, static_cast<int>(params.weights),
                              n_splits),
          .params = {.logits = {.partial = workspace_.router_partial(),
                                .bias = vector(router.in[2]),
                                .routed_scaling_factor = params.scale},
                     .ids = workspace_.ints(route.out[0]),
                     .weights = workspace_.floats(route.out[1])},
          .n_experts = matrix.n_out,
          .n_logits = sizes_.max_tokens * matrix.n_out * n_splits};
}

// The matrices of the selected experts. After a launch that triggers late they may read the logits and their row before
// they wait, if that launch does not write them.
Status Lowering::lower_gemv_experts(const MatmulCall& call) {
  const GemvPrologue prologue = gemv_prologue(call);
  const DeviceMatrix& matrix = matrix_of(call.first());
  const int n_used = static_cast<int>(width(call.first().in[2])), n_out = gemv_n_out(call, 0);
  GemvPolicy<simt::ExpertIds, simt::StoredRouting> experts{fmt::format("SelectedExperts<{}>", n_used),
                                                           simt::ExpertIds{workspace_.ints(call.first().in[2])}};
  GemvWork work{.n_in = matrix.n_in,
                .n_matrices = call.act ? 2 : 1,
                .n_tokens = sizes_.max_tokens,
                .n_normed_rows = prologue.n_normed_rows(1),
                .n_selected = n_used,
                .parts = {{matrix.format, n_out}}};
  simt::GemvPdl pdl{.triggers_late = call.launches_dependents_late ? 1 : 0};
  LateTrigger late_trigger{};
  late_trigger.add(gemv_out(call, 0), work.n_tokens * n_used * n_out);
  if (const auto* input = prologue.get<simt::NormResidualInput>()) late_trigger.add(input->residual_out, work.n_in);
  if (call.route) {
    const GemvRouting routing = gemv_routing(*call.route, n_used);
    experts = {"Storing" + routing.type, routing.params};
    work.n_routed_experts = routing.n_experts;
    late_trigger.routed_ids = routing.params.ids;
    const auto is_complete = [&](const float* row, int n) {
      return late_trigger_ && !late_trigger_->writes_to(row, n);
    };
    const bool reads_row = prologue.row() && work.n_in % 8 == 0;
    pdl.routes_before_wait = is_complete(routing.params.logits.partial, routing.n_logits) ? 1 : 0;
    pdl.reads_row_before_wait = reads_row && is_complete(prologue.row(), work.n_tokens * work.n_in) ? 1 : 0;
  }
  GemvLaunch gemv{"gemv_experts", schedule(work), pdl, late_trigger};
  gemv.set_policy("Prologue", prologue.type);
  gemv.set_policy("Epilogue", gemv_epilogue(call));
  gemv.set_policy("Experts", experts.type);
  return with_epilogue<simt::ExpertMatrix>(gemv_epilogue(call), [&]<class Part>(Part) {
    return std::visit(
        [&]<class Input, class Experts>(const Input& input, const Experts& of) {
          return emit_gemv(gemv, simt::GemvExpertsParams<Part, Input, Experts>{
                                     .part = gemv_part<Part>(call, 0, gemv.schedule.shape().expert_panels),
                                     .split = gemv.schedule.problems()[0].split,
                                     .matrix_bytes = simt_matrix(matrix).matrix_bytes,
                                     .n_rows = n_rows(call.x),
                                     .input = input,
                                     .experts = of});
        },
        prologue.params, experts.params);
  });
}

// The experts' down projections and their weighted sum in one launch.
Status Lowering::lower(const gpu::MoeDownCall& call) {
  const Node& down = *call.down;
  const simt::Matrix matrix = simt_matrix(matrix_of(down));
  const int n_used = static_cast<int>(width(down.in[2])), n_matrices = n_used + (call.shared ? 1 : 0);
  GemvPolicy<simt::PlainInput, simt::QuantizedInput> rows{"PlainInput",
                                                          simt::PlainInput{workspace_.floats(down.in[0])}};
  if (call.q8) rows = {"QuantizedInput", simt::QuantizedInput{workspace_.quantized(*call.q8)}};
  GemvWork work{.n_in = matrix.n_in,
                .n_matrices = n_matrices,
                .n_input_rows = n_matrices,
                .n_tokens = sizes_.max_tokens,
                .parts = {{matrix_of(down).format, matrix.n_out}}};
  const int* ids = workspace_.ints(down.in[2]);
  GemvPolicy<simt::WeightedExpertIds, simt::RouterLogits> experts{
      fmt::format("WeightedExperts<{}>", n_used), simt::WeightedExpertIds{ids, workspace_.floats(call.combine->in[1])}};
  simt::GemvPdl pdl{};
  // After the experts' launch, which routed them itself, the router logits are complete when this launch starts.
  if (late_trigger_ && late_trigger_->routed_ids == ids) {
    const GemvRouting routing = gemv_routing(*workspace_.uses().producer(down.in[2]), n_used);
    experts = {routing.type, routing.params.logits};
    work.n_routed_experts = routing.n_experts;
    pdl.routes_before_wait = 1;
  }
  GemvPolicy<simt::NoInput, simt::SharedExpert> shared{"NoSharedDown", simt::NoInput{}};
  if (call.shared) {
    const Value gate = call.shared_act->in[0];
    const int n_splits = call.has_partial_gate ? matrix_of(*workspace_.uses().producer(gate)).n_segments : 1;
    shared = {fmt::format("GatedSharedDown<{}>", n_splits),
              simt::SharedExpert{.bytes = simt_matrix(matrix_of(*call.shared)).bytes,
                                 .x = workspace_.floats(call.shared->in[0]),
                                 .gate = call.has_partial_gate ? workspace_.gate_partial() : workspace_.floats(gate)}};
  }
  GemvLaunch gemv{"gemv_moe_down", schedule(work), pdl};
  gemv.set_policy("Rows", rows.type);
  gemv.set_policy("Experts", experts.type);
  gemv.set_policy("SharedDown", shared.type);
  return std::visit(
      [&]<class Input, class Experts, class Shared>(const Input& input, const Experts& of,
                                                    const Shared& shared_expert) {
        return emit_gemv(gemv, simt::GemvMoeDownParams<Input, Experts, Shared>{
                                   .matrix = {matrix.bytes, vector(down.in[3]), vector(down.in[4])},
                                   .out = workspace_.floats(call.out()),
                                   .residual = at(call.addend),
                                   .n_out = matrix.n_out,
                                   .split = gemv.schedule.problems()[0].split,
                                   .matrix_bytes = matrix.matrix_bytes,
                                   .n_rows = n_rows(down.in[0]),
                                   .input = input,
                                   .experts = of,
                                   .shared_expert = shared_expert});
      },
      rows.params, experts.params, shared.params);
}

}  // namespace zinc::simt::host
