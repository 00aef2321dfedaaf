#include "backend/vulkan/plan.h"

#include <algorithm>
#include <cstring>

namespace zinc::vulkan {
namespace {

using Model = gpu::LayoutOptions::Model;

// Of the buffer with its parameters. A uniform block of the largest size begins at each dispatch's parameters.
size_t params_bytes(const Program& program) {
  return program.dispatches.empty() ? 0 : program.params.size() + Device::kMaxParamsBytes;
}

Result<ClassPrograms> lower(const Model& model, const Device& device, const gpu::Workspace& of_class) {
  const Workspace& workspace = static_cast<const Workspace&>(of_class);
  const Graph& graph = model.graph;
  const auto lowering = [&] {
    return Lowering(graph, model.weights, model.cache, device.capabilities(), device.starts_in_order(), workspace);
  };
  ClassPrograms programs;
  ZINC_TRY(step, lowering().run());
  programs[kStepProgram] = std::move(step);
  if (graph.logits()) {
    ZINC_TRY(copy, lowering().run_copy(graph.logits(), kLogitsOut, workspace.sizes().max_outputs));
    programs[kLogitsCopy] = std::move(copy);
  }
  if (graph.hidden()) {
    ZINC_TRY(copy, lowering().run_copy(graph.hidden(), kHiddenOut, workspace.sizes().max_tokens));
    programs[kHiddenCopy] = std::move(copy);
  }
  return programs;
}

}  // namespace

gpu::LayoutOptions VulkanPlan::layout_options(const Device& device) {
  gpu::LayoutOptions options{
      .formats = kernel_formats(),
      .staging_bytes = weight_staging_bytes(device),
      .make_workspace = [&device](const Model& model, gpu::Device& memory,
                                  const Bucket& bucket) -> Result<std::unique_ptr<gpu::Workspace>> {
        ZINC_TRY(workspace,
                 Workspace::allocate(model.graph, model.weights, model.cache, memory, device.capabilities(), bucket));
        return std::unique_ptr<gpu::Workspace>(std::move(workspace));
      }};
  options.has_batch_classes = true;
  if (!device.is_on_device(Memory::upload)) return options;
  options.plan_bytes = kStepParamsBytes;
  options.class_bytes = [&device](const Model& model, const gpu::Workspace& workspace) -> Result<size_t> {
    ZINC_TRY(programs, lower(model, device, workspace));
    size_t n_bytes = 0;
    for (const Program& program : programs) n_bytes += params_bytes(program);
    return n_bytes;
  };
  return options;
}

Result<std::unique_ptr<Plan>> VulkanPlan::compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                                  Device& device, const Bucket& bucket) {
  std::unique_ptr<VulkanPlan> plan(new VulkanPlan(graph, weights, cache, device, bucket));
  if (Status s = plan->prepare(); !s.ok()) return s.error();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status VulkanPlan::prepare() {
  if (Status s = allocate(layout_options(device_)); !s.ok()) return s;
  ZINC_TRY(steps, allocate_params(kStepParamsBytes));
  step_params_ = std::move(steps);
  recorded_.resize(classes().size());
  for (size_t i = 0; i < recorded_.size(); ++i) {
    if (Status s = lower_class(i); !s.ok()) return s;
  }
  if (Status s = start_preparing(/*on_demand=*/!device_.tuning().records_at_load); !s.ok()) return s;
  return device_.wait_all();
}

Result<Buffer> VulkanPlan::allocate_params(size_t n_bytes) {
  if (device_.is_on_device(Memory::upload)) params_bytes_ += n_bytes;
  return device_.allocate(n_bytes, "kernel parameters", Memory::upload);
}

// Takes the memory of a class and finds ops that are not supported: before compile() returns.
Status VulkanPlan::lower_class(size_t step_class) {
  ZINC_TRY(programs, lower({graph_, weights_, cache_}, device_, workspace(step_class)));
  for (size_t kind = 0; kind < programs.size(); ++kind) {
    RecordedProgram& recorded = recorded_[step_class].programs[kind];
    recorded.program = std::move(programs[kind]);
    ZINC_TRY(params, allocate_params(params_bytes(recorded.program)));
    if (params.size() > 0) {
      std::memcpy(params.host_ptr<std::byte>(), recorded.program.params.data(), recorded.program.params.size());
    }
    recorded.params = std::move(params);
  }
  return ok_status();
}

void VulkanPlan::fill_step_params(size_t index) {
  const gpu::PlanMemory::StepBuffers& host = buffers(index);
  const gpu::Workspace& workspace = this->workspace(in_flight(index).step_class);
  const gpu::UploadLayout& layout = workspace.layout();
  const auto address = [&](size_t begin) { return host.upload.address() + begin * sizeof(int); };
  const shader::StepParams params{.counts = address(0),
                                  .tokens = address(layout.tokens),
                                  .positions = address(layout.positions),
                                  .seq_of_token = address(layout.seq_of_token),
                                  .seq_begin = address(layout.seq_begin),
                                  .slots = address(layout.slots),
                                  .row_slots = address(layout.row_slots),
                                  .output_rows = address(layout.output_rows),
                                  .logit_rows = address(layout.logit_rows),
                                  .sampling = address(layout.sampling),
                                  .first_column = address(layout.first_column),
                                  .hidden_in = host.hidden_in.address(),
                                  .last_sampled = cache_.last_sampled(),
                                  .sampled = host.sampled.address(),
                                  .logits_out = host.logits.address(),
                                  .hidden_out = host.hidden.address(),
                                  .max_seqs = workspace.max_seqs(),
                                  .unused = 0};
  std::memcpy(step_params_.host_ptr<std::byte>() + index * Device::kMaxParamsBytes, &params, sizeof(params));
}

Status VulkanPlan::record(RecordedProgram& recorded) {
  const Program program = std::move(recorded.program);
  if (program.dispatches.empty()) return ok_status();
  ZINC_TRY(pipelines, find_pipelines(device_, program));
  ZINC_TRY(set, device_.make_descriptor_set(recorded.params, step_params_));
  recorded.set = set;
  for (size_t i = 0; i < kMaxInFlight; ++i) {
    const uint32_t step = static_cast<uint32_t>(i * Device::kMaxParamsBytes);
    const DispatchTimestamps times{.timestamps = recorded.timestamps.get(),
                                   .first = static_cast<uint32_t>(i) * recorded.n_timestamps};
    ZINC_TRY(commands, device_.record([&](vk::CommandBuffer c) {
      record_program(device_, c, program, pipelines, set.set, step, times);
    }));
    recorded.commands[i] = commands;
  }
  return ok_status();
}

void VulkanPlan::add_timestamps(size_t step_class) {
  RecordedProgram& recorded = recorded_[step_class].programs[kStepProgram];
  for (const Dispatch& dispatch : recorded.program.dispatches) {
    add_timed_kernel(step_class, dispatch.kernel.module, dispatch.call);
  }
  recorded.n_timestamps = static_cast<uint32_t>(recorded.program.dispatches.size()) + 1;
  recorded.timestamps = std::make_unique<Timestamps>(device_, kMaxInFlight * recorded.n_timestamps);
  if (!recorded.timestamps->is_available()) recorded.timestamps.reset();
}

Result<std::vector<double>> VulkanPlan::read_kernel_marks(size_t index) {
  const RecordedProgram& recorded = recorded_[in_flight(index).step_class].programs[kStepProgram];
  if (!recorded.timestamps) return std::vector<double>();
  return recorded.timestamps->read(static_cast<uint32_t>(index) * recorded.n_timestamps, recorded.n_timestamps);
}

Status VulkanPlan::prepare_class(size_t step_class) {
  if (times_kernels() && device_.has_timestamps()) add_timestamps(step_class);
  for (RecordedProgram& program : recorded_[step_class].programs) {
    if (Status s = record(program); !s.ok()) return s;
  }
  device_.save_pipeline_cache();
  return ok_status();
}

VulkanPlan::~VulkanPlan() {
  stop_preparing();
  [[maybe_unused]] const Status done = device_.wait_all();
  for (RecordedClass& recorded : recorded_) {
    for (RecordedProgram& program : recorded.programs) {
      for (vk::CommandBuffer commands : program.commands) {
        if (commands) device_.free_commands(commands);
      }
      device_.free_descriptor_set(program.set);
    }
  }
}

Status VulkanPlan::submit(const StepInputs& in, size_t index) {
  RecordedClass& recorded = recorded_[in_flight(index).step_class];
  const gpu::UploadLayout& layout = workspace(in_flight(index).step_class).layout();
  int* upload = upload_of(index);
  upload[kLogitRows] = static_cast<int>(in.logit_rows.size());
  std::ranges::copy(in.logit_rows, upload + layout.logit_rows);
  upload[kStepNumber] = static_cast<int>(recorded.n_submissions + 1);
  fill_step_params(index);
  const auto commands_of = [&](ProgramKind kind) { return recorded.programs[kind].commands[index]; };
  std::array<vk::CommandBuffer, 3> commands = {commands_of(kStepProgram)};
  size_t n_commands = 1;
  if (!in.logit_rows.empty()) commands[n_commands++] = commands_of(kLogitsCopy);
  if (in.wants_hidden) commands[n_commands++] = commands_of(kHiddenCopy);
  ZINC_TRY(timeline_value, device_.submit(std::span(commands).first(n_commands)));
  timeline_values_[index] = timeline_value;
  ++recorded.n_submissions;  // must match the counters of counter_sync.glsl
  return ok_status();
}

Status VulkanPlan::wait_for(size_t index) { return device_.wait(timeline_values_[index]); }

}  // namespace zinc::vulkan
