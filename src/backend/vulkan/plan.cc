#include "backend/vulkan/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace zinc::vulkan {

Result<std::unique_ptr<Plan>> VulkanPlan::compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                                  Device& device, const Bucket& bucket) {
  std::unique_ptr<VulkanPlan> plan(new VulkanPlan(graph, weights, cache, device, bucket));
  if (Status s = plan->prepare(); !s.ok()) return s.error();
  device.save_pipeline_cache();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status VulkanPlan::prepare() {
  ZINC_TRY(workspace, Workspace::allocate(graph_, weights_, cache_, device_, device_.capabilities(), bucket_));
  workspace_ = std::move(workspace);
  ZINC_TRY(steps, device_.allocate(kMaxInFlight * Device::kMaxParamsBytes, "step parameters", Memory::upload));
  step_params_ = std::move(steps);
  if (Status s = allocate_host_buffers(*workspace_); !s.ok()) return s;
  recorded_.resize(classes().size());
  // At least the largest class: it has all ops, so that unsupported ones are reported now.
  const bool records_all = device_.tuning().records_at_load;
  for (size_t i = records_all ? 0 : recorded_.size() - 1; i < recorded_.size(); ++i) {
    if (Result<RecordedProgram*> recorded = recorded_class(i); !recorded.ok()) return recorded.error();
  }
  if (records_all && graph_.logits()) {
    if (Result<VkCommandBuffer> c = copy_commands(logits_copy_, graph_.logits(), kLogitsOut, 0); !c.ok()) {
      return c.error();
    }
  }
  return device_.wait_all();
}

void VulkanPlan::on_reallocated(size_t index) {
  const InFlightStep& step = in_flight(index);
  const gpu::UploadLayout& layout = workspace_->layout();
  const auto address = [&](size_t begin) { return step.upload.address() + begin * sizeof(int); };
  const shader::StepParams params{.counts = address(0),
                                  .tokens = address(layout.tokens),
                                  .positions = address(layout.positions),
                                  .seq_of_token = address(layout.seq_of_token),
                                  .seq_begin = address(layout.seq_begin),
                                  .slots = address(layout.slots),
                                  .output_rows = address(layout.output_rows),
                                  .logit_rows = address(layout.logit_rows),
                                  .first_column = address(layout.first_column),
                                  .hidden_in = step.hidden_in.address(),
                                  .last_sampled = cache_.last_sampled(),
                                  .sampled = step.sampled.address(),
                                  .logits_out = step.logits.address(),
                                  .hidden_out = step.hidden.address(),
                                  .max_seqs = bucket_.max_seqs,
                                  .unused = 0};
  std::memcpy(step_params_.host_ptr<std::byte>() + index * Device::kMaxParamsBytes, &params, sizeof(params));
}

Lowering VulkanPlan::lowering(const gpu::StepClass& sizes) const {
  return {graph_, weights_, cache_, device_.capabilities(), device_.starts_in_order(), *workspace_, sizes};
}

Result<VulkanPlan::RecordedProgram> VulkanPlan::record(const Program& program) {
  RecordedProgram out;
  ZINC_TRY(pipelines, find_pipelines(device_, program));
  const size_t n_bytes = program.params.size() + Device::kMaxParamsBytes;
  ZINC_TRY(params, device_.allocate(n_bytes, "kernel parameters", Memory::upload));
  std::memcpy(params.host_ptr<std::byte>(), program.params.data(), program.params.size());
  ZINC_TRY(set, device_.make_descriptor_set(params, step_params_));
  out.params = std::move(params);
  out.set = set;
  if (bucket_.time_kernels && device_.has_timestamps()) add_timestamps(program, out);
  for (size_t i = 0; i < kMaxInFlight; ++i) {
    const uint32_t step = static_cast<uint32_t>(i * Device::kMaxParamsBytes);
    const DispatchTimestamps times{.timestamps = out.timestamps.get(),
                                   .first = static_cast<uint32_t>(i * (out.kernels.size() + 1))};
    ZINC_TRY(commands, device_.record([&](VkCommandBuffer c) {
      record_program(device_, c, program, pipelines, set.set, step, times);
    }));
    out.commands[i] = commands;
  }
  return out;
}

void VulkanPlan::add_timestamps(const Program& program, RecordedProgram& recorded) const {
  for (const Dispatch& dispatch : program.dispatches) {
    recorded.kernels.push_back({dispatch.kernel.module, gpu::node_indices(graph_, dispatch.call)});
  }
  const size_t n = kMaxInFlight * (recorded.kernels.size() + 1);
  recorded.timestamps = std::make_unique<Timestamps>(device_, static_cast<uint32_t>(n));
  if (!recorded.timestamps->is_available()) recorded.timestamps.reset();
}

Result<std::vector<gpu::DeviceTime>> VulkanPlan::read_device_times(size_t index) {
  std::vector<gpu::DeviceTime> times;
  const RecordedProgram& recorded = *submitted_[index];
  if (!recorded.timestamps) return times;
  const uint32_t n = static_cast<uint32_t>(recorded.kernels.size()) + 1;
  const std::vector<double> ns = recorded.timestamps->read(static_cast<uint32_t>(index) * n, n);
  double begin = 0;  // timestamps of dispatches without a barrier between them may be out of order
  for (size_t i = 1; i < ns.size(); ++i) {
    times.push_back({&recorded.kernels[i - 1], begin, std::max(begin, ns[i])});
    begin = times.back().end_ns;
  }
  return times;
}

Result<VulkanPlan::RecordedProgram*> VulkanPlan::recorded_class(size_t step_class) {
  std::optional<RecordedProgram>& recorded = recorded_[step_class];
  if (!recorded) {
    ZINC_TRY(program, lowering(classes()[step_class]).run());
    ZINC_TRY(new_program, record(program));
    recorded = std::move(new_program);
  }
  return &*recorded;
}

Result<VkCommandBuffer> VulkanPlan::copy_commands(std::optional<RecordedProgram>& recorded, Value v, CopyKind kind,
                                                  size_t index) {
  if (!recorded) {
    const int n_rows = kind == kLogitsOut ? bucket_.max_outputs : bucket_.max_tokens;
    const gpu::StepClass sizes{bucket_.max_tokens, bucket_.max_outputs};
    ZINC_TRY(program, lowering(sizes).run_copy(v, kind, n_rows));
    ZINC_TRY(copy_program, record(program));
    recorded = std::move(copy_program);
  }
  return recorded->commands[index];
}

void VulkanPlan::free(RecordedProgram& recorded) {
  for (VkCommandBuffer commands : recorded.commands) device_.free_commands(commands);
  device_.free_descriptor_set(recorded.set);
}

VulkanPlan::~VulkanPlan() {
  [[maybe_unused]] const Status done = device_.wait_all();
  for (std::optional<RecordedProgram>& recorded : recorded_) {
    if (recorded) free(*recorded);
  }
  if (logits_copy_) free(*logits_copy_);
  if (hidden_copy_) free(*hidden_copy_);
}

Status VulkanPlan::submit(const StepInputs& in, size_t index) {
  const auto begin = std::chrono::steady_clock::now();
  int* upload = upload_of(index);
  upload[kLogitRows] = static_cast<int>(in.logit_rows.size());
  std::ranges::copy(in.logit_rows, upload + workspace_->layout().logit_rows);
  ZINC_TRY(recorded, recorded_class(gpu::find_step_class(classes(), in.tokens.size(), in.output_rows.size())));
  upload[kStepNumber] = static_cast<int>(recorded->n_submissions + 1);
  std::array<VkCommandBuffer, 3> commands = {recorded->commands[index]};
  size_t n_commands = 1;
  if (!in.logit_rows.empty()) {
    ZINC_TRY(copy, copy_commands(logits_copy_, graph_.logits(), kLogitsOut, index));
    commands[n_commands++] = copy;
  }
  if (in.wants_hidden) {
    ZINC_TRY(copy, copy_commands(hidden_copy_, graph_.hidden(), kHiddenOut, index));
    commands[n_commands++] = copy;
  }
  ZINC_TRY(timeline_value, device_.submit(std::span(commands).first(n_commands)));
  timeline_values_[index] = timeline_value;
  submitted_[index] = recorded;
  ++recorded->n_submissions;  // must match the counters of counter_sync.glsl
  const auto took = std::chrono::steady_clock::now() - begin;
  device_.count_host_time(static_cast<uint64_t>(std::chrono::nanoseconds(took).count()));
  return ok_status();
}

Status VulkanPlan::wait_for(size_t index) { return device_.wait(timeline_values_[index]); }

}  // namespace zinc::vulkan
