#include "backend/vulkan/lowering.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace zinc::vulkan {
namespace {

constexpr int64_t kMaxGrid = 65535;

bool overlap(const MemoryRange& a, const MemoryRange& b) {
  return a.begin < b.begin + b.n_bytes && b.begin < a.begin + a.n_bytes;
}
bool overlap(const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
  return std::ranges::any_of(a, [&](const MemoryRange& x) {
    return std::ranges::any_of(b, [&](const MemoryRange& y) { return overlap(x, y); });
  });
}

bool conflict(const Dispatch& before, const Dispatch& after) {
  return overlap(before.writes, after.reads) || overlap(before.writes, after.writes) ||
         overlap(before.reads, after.writes);
}

}  // namespace

void order_by_depth(std::vector<Dispatch>& dispatches) {
  std::vector<size_t> depths(dispatches.size()), order(dispatches.size());
  for (size_t i = 0; i < dispatches.size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      if (depths[before] >= depths[i] && conflict(dispatches[before], dispatches[i])) depths[i] = depths[before] + 1;
    }
  }
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return depths[i]; });
  std::vector<Dispatch> ordered;
  for (const size_t i : order) ordered.push_back(std::move(dispatches[i]));
  dispatches = std::move(ordered);
}

void insert_barriers(std::span<Dispatch> dispatches) {
  std::vector<MemoryRange> reads, writes;  // since the last barrier
  for (Dispatch& d : dispatches) {
    d.needs_barrier = overlap(d.reads, writes) || overlap(d.writes, writes) || overlap(d.writes, reads);
    if (d.needs_barrier) {
      reads.clear();
      writes.clear();
    }
    reads.insert(reads.end(), d.reads.begin(), d.reads.end());
    writes.insert(writes.end(), d.writes.begin(), d.writes.end());
  }
}

int register_row_vec8s(int width) {
  return width > kMaxRegisterRow ? 0 : static_cast<int>(ceil_div(width, kThreads * 8));
}

Lowering::Size Lowering::flat(int64_t n_threads) {
  constexpr int64_t kMaxGridX = 32768;  // workgroups per row: every device supports 65535
  const int64_t n = ceil_div(n_threads, kThreads);
  return {std::min(n, kMaxGridX), ceil_div(n, kMaxGridX)};
}

Status Lowering::add(KernelKey key, std::span<const std::byte> params, const Size& grid, const Accesses& accesses,
                     int64_t n_arrivals) {
  ZINC_CHECK(params.size() <= Device::kMaxParamsBytes);
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return ok_status();
  if (grid.x > kMaxGrid || grid.y > kMaxGrid || grid.z > kMaxGrid) {
    return fail(ErrorCode::unsupported,
                "{}: a step of {} tokens is too large for kernel {} ({} x {} x {} workgroups); use a smaller batch",
                device_.name, sizes_.max_tokens, key.module, grid.x, grid.y, grid.z);
  }
  const bool signals_done = !key.constants.empty() && key.constants.back().first == kSpecCounterSync;
  const bool can_wait = signals_done && key.constants.back().second == kWaitsAndSignals;
  if (n_arrivals == 0) n_arrivals = grid.x * grid.y * grid.z;
  const size_t alignment = device_.uniform_alignment;
  const size_t offset = (program_.params.size() + alignment - 1) / alignment * alignment;
  program_.params.resize(offset + params.size());
  std::memcpy(program_.params.data() + offset, params.data(), params.size());
  program_.dispatches.push_back(
      {.kernel = std::move(key),
       .params_offset = static_cast<uint32_t>(offset),
       .grid = {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y), static_cast<uint32_t>(grid.z)},
       .reads = accesses.reads,
       .writes = accesses.writes,
       .n_arrivals = signals_done ? static_cast<int>(n_arrivals) : 0,
       .can_wait = can_wait,
       .call = current_});
  return ok_status();
}

KernelKey Lowering::with_counter_sync(KernelKey key, CounterMode mode) const {
  if (workspace_.sync_counters().size() > 0 && starts_in_order_) key.constants.emplace_back(kSpecCounterSync, mode);
  return key;
}

KernelKey Lowering::with_warm_up(KernelKey key, int64_t n_workgroups) const {
  if (workspace_.sync_counters().size() == 0 || !starts_in_order_) return key;
  key.constants.emplace_back(kSpecWarmUp, n_workgroups <= multiprocessors_of(device_) ? 1 : 0);
  return with_counter_sync(std::move(key));
}

void replace_barriers_by_counters(Program& program, const Buffer& counters) {
  if (counters.size() == 0) return;
  struct DispatchBatch {
    size_t begin, end;
    bool can_signal = true, can_wait = true;
    int n_arrivals = 0;
  };
  std::vector<DispatchBatch> batches;
  std::vector<Dispatch>& dispatches = program.dispatches;
  for (size_t i = 0; i < dispatches.size(); ++i) {
    if (i == 0 || dispatches[i].needs_barrier) batches.push_back({i, i});
    DispatchBatch& batch = batches.back();
    batch.end = i + 1;
    batch.can_signal = batch.can_signal && dispatches[i].n_arrivals > 0;
    batch.can_wait = batch.can_wait && dispatches[i].can_wait;
    batch.n_arrivals += dispatches[i].n_arrivals;
  }
  ZINC_CHECK(batches.size() * kCounterBytes <= counters.size());
  const auto counter = [&](size_t b) { return counters.address() + b * kCounterBytes; };
  for (size_t b = 0; b < batches.size(); ++b) {
    CounterSync sync{0, counter(b), 0, 0};
    if (b > 0 && batches[b].can_wait && batches[b - 1].can_signal) {
      sync.producer_counter = counter(b - 1);
      sync.n_producers = batches[b - 1].n_arrivals;
      dispatches[batches[b].begin].needs_barrier = false;
    }
    for (size_t i = batches[b].begin; i < batches[b].end; ++i) {
      if (dispatches[i].n_arrivals > 0)
        std::memcpy(program.params.data() + dispatches[i].params_offset, &sync, sizeof(sync));
    }
  }
}

Result<Program> Lowering::run() {
  if (Status s = lower_calls(); !s.ok()) return s.error();
  if (sizes_.max_tokens > 1) order_by_depth(program_.dispatches);
  insert_barriers(program_.dispatches);
  replace_barriers_by_counters(program_, workspace_.sync_counters());
  return std::move(program_);
}

Status Lowering::lower(const gpu::EmbedCall& call) {
  const Node& n = *call.node;
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const shader::EmbedParams params{.table = shader_matrix(*table), .out = workspace_.address(n.out[0])};
  return emit({"embed." + std::string(table->format->name), {}}, params, {sizes_.max_tokens},
              {{{cache_.last_sampled(), sizeof(int)}}, {range_of(n.out[0])}});
}

// ---- row-wise ops ----

Status Lowering::lower(const gpu::QuantizeCall& call) {
  shader::NormParams params{};
  params.x = workspace_.address(call.x);
  params.q8 = workspace_.q8(call.to);
  params.n_rows = n_rows(call.x);
  params.width = call.to.n_in;
  params.vectors_per_row = static_cast<int>(width(call.x) / call.to.n_in);
  return emit_norm_mode(kNoNorm, params, int64_t{max_rows(call.x)} * params.vectors_per_row,
                        {{range_of(call.x)}, {range_of(call.to)}});
}

Status Lowering::emit_norm(NormKind kind, shader::NormParams& params, int64_t n_vectors, const Accesses& accesses) {
  return emit_norm_mode(kind == NormKind::l2 ? kL2 : kRms, params, n_vectors, accesses);
}

Status Lowering::emit_norm_mode(NormMode mode, shader::NormParams& params, int64_t n_vectors,
                                const Accesses& accesses) {
  params.kind = mode;
  const bool is_short = params.width <= kSegmentElems;
  const int row_vec8s = is_short ? 0 : register_row_vec8s(params.width);
  return emit(with_counter_sync({"norm", {{kSpecNormWarpPerRow, is_short ? 1 : 0}, {kSpecRowVec8s, row_vec8s}}}),
              params, {is_short ? ceil_div(n_vectors, kWarps) : n_vectors}, accesses);
}

// KernelLimits::max_residual_elems is 0: the table does not make this call.
Status Lowering::lower(const gpu::NormResidualCall&) {
  return fail(ErrorCode::unsupported, "the vulkan backend has no kernel for a norm with the residual add");
}

Status Lowering::emit_copy(const gpu::RowCopy& copy, shader::CopyParams& params, int64_t n_elems,
                           const Accesses& accesses) {
  params.from = at(copy.from);
  params.kind = !copy.from ? kHiddenIn : copy.gathers_output_rows ? kOutputRows : kCopy;
  params.n_copied = copy.length;
  return emit_threads("copy", params, n_elems, accesses);
}

// KernelLimits::max_combine_elems is the longest row in registers; longer ones have only the add, of elements.
Status Lowering::lower(const gpu::CombineCall& call) {
  Accesses accesses;
  shader::CombineParams params = combine_params(call, accesses);
  if (call.shared_act) {
    params.shared_gate = at(call.shared_act->in[0]);
    params.shared_expert = at(call.shared_act->in[1]);
    for (const Value v : {call.shared_act->in[0], call.shared_act->in[1]}) accesses.reads.push_back(range_of(v));
  }
  if (call.norm) {
    params.is_normed = 1;
    params.norm_weight = vector(call.norm->in[1]);
    params.norm_eps = call.norm->as<NormParams>().eps;
    if (call.normed.has_floats) {
      params.normed = at(call.normed.value);
      accesses.writes.push_back(range_of(call.normed.value));
    }
    if (call.normed.q8) {
      params.q8 = workspace_.q8(*call.normed.q8);
      accesses.writes.push_back(range_of(*call.normed.q8));
    }
  }
  // A row that is not normed may be cut into parts.
  const int64_t n_parts = ceil_div(params.dim, kMaxRegisterRow);
  ZINC_CHECK(n_parts == 1 || !call.norm);
  const int row_vec8s = register_row_vec8s(std::min(params.dim, kMaxRegisterRow));
  return emit(with_counter_sync({"moe_combine", {{kSpecRowVec8s, row_vec8s}}}), params, {max_rows(call.out()), n_parts},
              accesses);
}

Result<Program> Lowering::run_copy(Value v, CopyKind kind, int n_rows) {
  const int w = static_cast<int>(width(v));
  const shader::CopyParams params{.sync = {},
                                  .from = workspace_.address(v),
                                  .to = 0,
                                  .kind = kind,
                                  .n_rows = kind == kLogitsOut ? kLogitRows : kTokens,
                                  .vectors_per_row = 1,
                                  .from_width = w,
                                  .from_begin = 0,
                                  .to_width = w,
                                  .to_begin = 0,
                                  .n_copied = w};
  if (Status s = emit({"copy", {}}, params, flat(int64_t{n_rows} * w), {}); !s.ok()) return s.error();
  return std::move(program_);
}

Result<std::vector<vk::Pipeline>> find_pipelines(Device& device, const Program& program) {
  std::vector<vk::Pipeline> pipelines;
  for (const Dispatch& dispatch : program.dispatches) {
    ZINC_TRY(pipeline, device.pipeline(dispatch.kernel));
    pipelines.push_back(pipeline);
  }
  return pipelines;
}

void record_program(const Device& device, vk::CommandBuffer commands, const Program& program,
                    std::span<const vk::Pipeline> pipelines, vk::DescriptorSet set, uint32_t step_offset,
                    const DispatchTimestamps& times) {
  vk::Pipeline bound;
  if (times.timestamps) {
    times.timestamps->reset(commands, times.first, static_cast<uint32_t>(program.dispatches.size()) + 1);
    times.timestamps->write(commands, times.first);
  }
  for (size_t i = 0; i < program.dispatches.size(); ++i) {
    const Dispatch& dispatch = program.dispatches[i];
    if (dispatch.needs_barrier) add_compute_barrier(commands);
    if (pipelines[i] != bound) {
      commands.bindPipeline(vk::PipelineBindPoint::eCompute, pipelines[i]);
      bound = pipelines[i];
    }
    device.bind_params(commands, set, dispatch.params_offset, step_offset);
    commands.dispatch(dispatch.grid[0], dispatch.grid[1], dispatch.grid[2]);
    if (times.timestamps) times.timestamps->write(commands, times.first + static_cast<uint32_t>(i) + 1);
  }
}

}  // namespace zinc::vulkan
