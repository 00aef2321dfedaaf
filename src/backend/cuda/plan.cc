#include "backend/cuda/plan.h"

#include "backend/simt/host/lowering.h"

namespace zinc::cuda {

Result<std::unique_ptr<Plan>> CudaPlan::compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                                Device& device, const Bucket& bucket) {
  if (Status s = device.make_current(); !s.ok()) return s.error();
  std::unique_ptr<CudaPlan> plan(new CudaPlan(graph, weights, cache, device, bucket));
  if (Status s = plan->prepare(); !s.ok()) return s.error();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status CudaPlan::prepare() {
  if (Status s = allocate(layout_options(device_)); !s.ok()) return s;
  for (Event& done : done_) {
    if (Status s = device_.check(device_.api().create_event(&done, 0), "creating an event"); !s.ok()) return s;
  }
  graphs_.resize(classes().size());
  if (Status s = start_preparing(/*on_demand=*/false); !s.ok()) return s;
  return device_.wait();
}

Status CudaPlan::prepare_class(size_t step_class) {
  if (Status s = device_.make_current(); !s.ok()) return s;
  ZINC_TRY(calls, simt::host::Lowering(graph_, weights_, cache_, device_.limits(), workspace_of(step_class)).run());
  std::vector<KernelProgram> programs;
  for (const KernelCall& call : calls) programs.push_back(call.program);
  if (Status s = device_.load_programs(programs); !s.ok()) return s;
  ZINC_TRY(launches, device_.prepare(calls));
  for (size_t i = 0; i < (times_kernels() ? kMaxInFlight : 1); ++i) {
    StepGraph& graph = graphs_[step_class].emplace_back();
    if (times_kernels()) graph.events.resize(launches.size() + 1);
    for (Event& event : graph.events) {
      if (Status s = device_.check(device_.api().create_event(&event, 0), "creating an event"); !s.ok()) return s;
    }
    ZINC_TRY(exec, device_.capture(launches, graph.events));
    graph.exec = exec;
  }
  for (const KernelCall& call : calls) {
    if (times_kernels()) add_timed_kernel(step_class, call.name(), call.call);
  }
  return ok_status();
}

CudaPlan::~CudaPlan() {
  stop_preparing();
  [[maybe_unused]] const Status waited = device_.wait_all();
  std::vector<Event> events(done_.begin(), done_.end());
  for (const std::vector<StepGraph>& graphs : graphs_) {
    for (const StepGraph& graph : graphs) {
      if (graph.exec) device_.api().destroy_exec(graph.exec);
      events.insert(events.end(), graph.events.begin(), graph.events.end());
    }
  }
  for (const Event event : events) {
    if (event) device_.api().destroy_event(event);
  }
}

Status CudaPlan::submit(const StepInputs& in, size_t index) {
  const InFlightStep& step = in_flight(index);
  const Workspace& workspace = workspace_of(step.step_class);
  if (Status s = device_.make_current(); !s.ok()) return s;
  const DevicePointer upload = workspace.upload().address();
  if (Status s = device_.copy_h2d(upload, upload_of(index), step.upload_ints * sizeof(int)); !s.ok()) return s;
  if (workspace.hidden_in().size() > 0) {
    const DevicePointer hidden = workspace.hidden_in().address();
    const float* from = buffers(index).hidden_in.host_ptr<float>();
    if (Status s = device_.copy_h2d(hidden, from, in.hidden.size_bytes()); !s.ok()) return s;
  }
  const std::vector<StepGraph>& graphs = graphs_[step.step_class];
  const Code launched = device_.api().launch_graph(graphs[index % graphs.size()].exec, device_.stream());
  if (Status s = device_.check(launched, "starting a step"); !s.ok()) return s;
  return queue_outputs(in, index);
}

Status CudaPlan::queue_outputs(const StepInputs& in, size_t index) {
  const InFlightStep& step = in_flight(index);
  const Workspace& workspace = workspace_of(step.step_class);
  const gpu::PlanMemory::StepBuffers& host = buffers(index);
  if (step.n_outputs > 0) {
    const size_t n_bytes = step.n_outputs * sizeof(int);
    if (Status s = device_.copy_d2h(host.sampled.host_ptr<int>(), workspace.sampled().address(), n_bytes); !s.ok())
      return s;
  }
  const size_t vocab = in.logit_rows.empty() ? 0 : step.n_logits / in.logit_rows.size();
  for (size_t i = 0; i < in.logit_rows.size();) {  // one copy for adjacent rows
    size_t n = 1;
    while (i + n < in.logit_rows.size() && in.logit_rows[i + n] == in.logit_rows[i] + static_cast<int>(n)) ++n;
    const DevicePointer from =
        workspace.address(graph_.logits()) + static_cast<size_t>(in.logit_rows[i]) * vocab * sizeof(float);
    if (Status s = device_.copy_d2h(host.logits.host_ptr<float>() + i * vocab, from, n * vocab * sizeof(float));
        !s.ok()) {
      return s;
    }
    i += n;
  }
  if (in.wants_hidden) {
    const DevicePointer from = workspace.address(graph_.hidden());
    const size_t n_bytes = step.n_hidden * sizeof(float);
    if (Status s = device_.copy_d2h(host.hidden.host_ptr<float>(), from, n_bytes); !s.ok()) return s;
  }
  return device_.check(device_.api().record_event(done_[index], device_.stream()), "ending a step");
}

Status CudaPlan::wait_for(size_t index) {
  return device_.check(device_.api().synchronize_event(done_[index]), "a step");
}

Result<std::vector<double>> CudaPlan::read_kernel_marks(size_t index) {
  constexpr double kNsPerMs = 1e6;
  const std::vector<Event>& events = graphs_[in_flight(index).step_class][index].events;
  std::vector<double> marks;
  for (const Event event : events) {
    float ms = 0;
    const Code timed = device_.api().elapsed_ms(&ms, events[0], event);
    if (Status s = device_.check(timed, "timing a kernel"); !s.ok()) return s.error();
    marks.push_back(ms * kNsPerMs);
  }
  return marks;
}

gpu::LayoutOptions CudaPlan::layout_options(const Device& device) {
  using Model = gpu::LayoutOptions::Model;
  return {
      .formats = kernel_formats(),
      .staging_bytes = kWeightStagingBytes,
      .make_workspace = [limits = device.limits()](const Model& model, gpu::Device& memory,
                                                   const Bucket& bucket) -> Result<std::unique_ptr<gpu::Workspace>> {
        ZINC_TRY(workspace, Workspace::allocate(model.graph, model.weights, model.cache, memory, limits, bucket));
        return std::unique_ptr<gpu::Workspace>(std::move(workspace));
      },
      .has_batch_classes = true};
}

}  // namespace zinc::cuda
