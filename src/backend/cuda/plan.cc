#include "backend/cuda/plan.h"

#include <bit>
#include <cmath>

namespace zinc::cuda {
namespace {

void fill_row(const DeviceSampling& sampling, int* to) {
  const bool is_greedy = sampling.temperature <= kGreedyTemperature;
  const uint64_t uniform = std::bit_cast<uint64_t>(sampling.uniform);
  to[simt::kInvTemperature] = std::bit_cast<int>(is_greedy ? 0.0f : 1.0f / sampling.temperature);
  to[simt::kTopK] = sampling.top_k;
  to[simt::kTopP] = std::bit_cast<int>(sampling.top_p);
  to[simt::kLogMinP] = std::bit_cast<int>(std::log(sampling.min_p));  // min_p 0: minus infinity, which removes no token
  to[simt::kUniformLow] = static_cast<int>(uniform);
  to[simt::kUniformHigh] = static_cast<int>(uniform >> 32);
}

}  // namespace

Result<std::unique_ptr<Plan>> CudaPlan::compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                                Device& device, const Bucket& bucket) {
  if (Status s = device.make_current(); !s.ok()) return s.error();
  std::unique_ptr<CudaPlan> plan(new CudaPlan(graph, cache, device, bucket));
  if (Status s = plan->prepare(weights, bucket); !s.ok()) return s.error();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status CudaPlan::prepare(const gpu::Weights& weights, const Bucket& bucket) {
  ZINC_TRY(workspace, Workspace::allocate(graph_, weights, cache_, device_, device_.limits(), bucket));
  workspace_ = std::move(workspace);
  std::vector<std::vector<KernelCall>> calls;  // per step class
  std::vector<KernelProgram> programs;
  for (const gpu::StepClass& sizes : classes()) {
    ZINC_TRY(lowered, Lowering(graph_, weights, cache_, device_.limits(), *workspace_, sizes).run());
    for (const KernelCall& call : lowered) programs.push_back(call.program);
    calls.push_back(std::move(lowered));
  }
  if (Status s = device_.load_programs(programs); !s.ok()) return s;
  if (bucket.time_kernels) timer_ = std::make_unique<KernelTimer>(graph_, device_, kMaxInFlight);
  for (const std::vector<KernelCall>& of_class : calls) {
    ZINC_TRY(launches, device_.prepare(of_class));
    if (timer_) {
      if (Status s = timer_->add_class(of_class, launches); !s.ok()) return s;
      continue;
    }
    ZINC_TRY(graph, device_.capture(launches));
    graphs_.push_back(graph);
  }
  if (Status s = allocate_host_buffers(*workspace_); !s.ok()) return s;
  for (Event& done : done_) {
    if (Status s = device_.check(device_.api().create_event(&done, 0), "creating an event"); !s.ok()) return s;
  }
  return device_.wait();
}

CudaPlan::~CudaPlan() {
  [[maybe_unused]] const Status waited = device_.wait_all();
  for (const GraphExec graph : graphs_) device_.api().destroy_exec(graph);
  for (const Event done : done_) {
    if (done) device_.api().destroy_event(done);
  }
}

void CudaPlan::fill_sampling(const StepInputs& in, int* upload) const {
  upload[simt::kSampledRows] = static_cast<int>(in.sampling.size());
  for (size_t i = 0; i < in.sampling.size(); ++i) {
    fill_row(in.sampling[i], upload + workspace_->layout().sampling + i * simt::kSamplingInts);
  }
}

Status CudaPlan::submit(const StepInputs& in, size_t index) {
  const InFlightStep& step = in_flight(index);
  if (Status s = device_.make_current(); !s.ok()) return s;
  fill_sampling(in, upload_of(index));
  const DevicePointer upload = workspace_->upload().address();
  if (Status s = device_.copy_h2d(upload, upload_of(index), step.upload_ints * sizeof(int)); !s.ok()) return s;
  if (workspace_->hidden_in().size() > 0) {
    const DevicePointer hidden = workspace_->hidden_in().address();
    if (Status s = device_.copy_h2d(hidden, step.hidden_in.host_ptr<float>(), in.hidden.size_bytes()); !s.ok()) {
      return s;
    }
  }
  const size_t step_class = gpu::find_step_class(classes(), in.tokens.size(), in.output_rows.size());
  const GraphExec graph = timer_ ? timer_->graph(step_class, index) : graphs_[step_class];
  if (Status s = device_.check(device_.api().launch_graph(graph, device_.stream()), "starting a step"); !s.ok()) {
    return s;
  }
  return queue_outputs(in, index);
}

Status CudaPlan::queue_outputs(const StepInputs& in, size_t index) {
  const InFlightStep& step = in_flight(index);
  if (step.n_outputs > 0) {
    const size_t n_bytes = step.n_outputs * sizeof(int);
    if (Status s = device_.copy_d2h(step.sampled.host_ptr<int>(), workspace_->sampled().address(), n_bytes); !s.ok())
      return s;
  }
  const size_t vocab = in.logit_rows.empty() ? 0 : step.n_logits / in.logit_rows.size();
  for (size_t i = 0; i < in.logit_rows.size();) {  // one copy for adjacent rows
    size_t n = 1;
    while (i + n < in.logit_rows.size() && in.logit_rows[i + n] == in.logit_rows[i] + static_cast<int>(n)) ++n;
    const DevicePointer from =
        workspace_->address(graph_.logits()) + static_cast<size_t>(in.logit_rows[i]) * vocab * sizeof(float);
    if (Status s = device_.copy_d2h(step.logits.host_ptr<float>() + i * vocab, from, n * vocab * sizeof(float));
        !s.ok()) {
      return s;
    }
    i += n;
  }
  if (in.wants_hidden) {
    const DevicePointer from = workspace_->address(graph_.hidden());
    const size_t n_bytes = step.n_hidden * sizeof(float);
    if (Status s = device_.copy_d2h(step.hidden.host_ptr<float>(), from, n_bytes); !s.ok()) return s;
  }
  return device_.check(device_.api().record_event(done_[index], device_.stream()), "ending a step");
}

Status CudaPlan::wait_for(size_t index) {
  return device_.check(device_.api().synchronize_event(done_[index]), "a step");
}

Result<std::vector<gpu::DeviceTime>> CudaPlan::read_device_times(size_t index) { return timer_->read(index); }

}  // namespace zinc::cuda
