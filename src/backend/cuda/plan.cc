#include "backend/cuda/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zinc::cuda {
namespace {

// Ascending. Grids are sized for the maximum of a class; blocks without work exit immediately.
std::vector<StepClass> step_classes(const Bucket& bucket) {
  std::vector<StepClass> classes;
  for (const int n : {1, 4, 8, 32, 128, 512, bucket.max_tokens}) {
    if (n > bucket.max_tokens || (!classes.empty() && n <= classes.back().max_tokens)) continue;
    classes.push_back({n, 1});
    if (const int all = std::min(n, bucket.max_outputs); all > 1) classes.push_back({n, all});
  }
  return classes;
}

void fill_sampling(const DeviceSampling& sampling, int* to) {
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

Result<std::unique_ptr<Plan>> CudaPlan::compile(const Graph& graph, const CudaWeights& weights, CudaCache& cache,
                                                Device& device, const Bucket& bucket) {
  if (Status s = device.make_current(); !s.ok()) return s.error();
  std::unique_ptr<CudaPlan> plan(new CudaPlan(graph, cache, device, bucket));
  if (Status s = plan->prepare(weights); !s.ok()) return s.error();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status CudaPlan::prepare(const CudaWeights& weights) {
  ZINC_TRY(workspace, Workspace::allocate(graph_, weights, cache_, device_, bucket_));
  workspace_ = std::move(workspace);
  std::vector<KernelProgram> programs;
  for (const StepClass& sizes : step_classes(bucket_)) {
    ZINC_TRY(more, Lowering(graph_, weights, cache_, device_, *workspace_, sizes).programs());
    programs.insert(programs.end(), more.begin(), more.end());
  }
  if (Status s = device_.load_programs(programs); !s.ok()) return s;
  for (const StepClass& sizes : step_classes(bucket_)) {
    ZINC_TRY(launches, Lowering(graph_, weights, cache_, device_, *workspace_, sizes).run());
    ZINC_TRY(exec, device_.capture(launches));
    variants_.push_back({sizes, exec});
  }
  for (InFlightStep& step : in_flight_) {
    if (Status s = allocate_host_buffers(step); !s.ok()) return s;
  }
  return device_.wait();
}

Status CudaPlan::allocate_host_buffers(InFlightStep& step) {
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  if (Status s = grow(step.upload, workspace_->layout().n_ints * sizeof(int)); !s.ok()) return s;
  if (Status s = grow(step.sampled, n_outputs * sizeof(int)); !s.ok()) return s;
  if (Status s = grow(step.logits, vocab * sizeof(float)); !s.ok()) return s;  // one row; grows when more are requested
  return device_.check(device_.api().create_event(&step.done, 0), "creating an event");
}

CudaPlan::~CudaPlan() {
  [[maybe_unused]] Status done = device_.make_current();
  done = device_.wait();
  for (const Variant& variant : variants_) device_.api().destroy_exec(variant.exec);
  for (const InFlightStep& step : in_flight_) {
    if (step.done) device_.api().destroy_event(step.done);
  }
}

Status CudaPlan::grow(PinnedBuffer& buffer, size_t n_bytes) const {
  if (buffer.size() >= n_bytes) return ok_status();
  ZINC_TRY(larger, device_.allocate_pinned(n_bytes));
  buffer = std::move(larger);
  return ok_status();
}

void CudaPlan::check(const StepInputs& in) const {
  const size_t n_tokens = in.tokens.size(), n_seqs = in.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && in.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(in.positions.size() == n_tokens && in.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(static_cast<size_t>(in.seq_begin[n_seqs]) == n_tokens && in.seq_begin[0] == 0);
  ZINC_CHECK(cache_.has_position(std::ranges::max(in.positions)));
  ZINC_CHECK(in.sampling.empty() || (in.sampling.size() == in.output_rows.size() && in.sampling.size() <= n_seqs));
  ZINC_CHECK(n_started_ - n_waited_ < in_flight_.size());
}

size_t CudaPlan::fill_upload(const StepInputs& in, int* to) const {
  const UploadLayout& layout = workspace_->layout();
  const size_t n_seqs = in.slots.size();
  to[simt::kTokens] = static_cast<int>(in.tokens.size());
  to[simt::kSeqs] = static_cast<int>(n_seqs);
  to[simt::kOutputs] = static_cast<int>(in.output_rows.size());
  to[simt::kSampledRows] = static_cast<int>(in.sampling.size());
  for (size_t i = 0; i < in.sampling.size(); ++i)
    fill_sampling(in.sampling[i], to + layout.sampling + i * simt::kSamplingInts);
  std::ranges::copy(in.tokens, to + layout.tokens);
  std::ranges::copy(in.positions, to + layout.positions);
  std::ranges::copy(in.seq_begin, to + layout.seq_begin);
  std::ranges::copy(in.slots, to + layout.slots);
  std::ranges::copy(in.output_rows, to + layout.output_rows);
  for (size_t s = 0; s < n_seqs; ++s) {
    std::fill(to + layout.seq_of_token + in.seq_begin[s], to + layout.seq_of_token + in.seq_begin[s + 1],
              static_cast<int>(s));
  }
  // Only the page table columns that the step reads or writes.
  size_t end = layout.page_tables;
  for (size_t g = 0; g < in.page_tables.size(); ++g) {
    const PageTable& table = in.page_tables[g];
    const int window = cache_.window(static_cast<int>(g));
    const auto columns = [&](size_t s) {
      const int begin = in.seq_begin[s], last = in.seq_begin[s + 1] - 1;
      if (last < begin) return std::pair(0, 0);
      const int first_position = in.positions[static_cast<size_t>(begin)];
      const int oldest = window > 0 ? std::max(0, first_position - window + 1) : 0;
      return std::pair(oldest / kPageTokens, in.positions[static_cast<size_t>(last)] / kPageTokens + 1);
    };
    int stride = 0;
    for (size_t s = 0; s < n_seqs; ++s) stride = std::max(stride, columns(s).second - columns(s).first);
    to[simt::kPageTableStride + static_cast<int>(g)] = stride;
    to[simt::kPageTableOffset + static_cast<int>(g)] = static_cast<int>(end);
    ZINC_CHECK(end + n_seqs * static_cast<size_t>(stride) <= layout.n_ints);
    for (size_t s = 0; s < n_seqs; ++s) {
      const auto [first, end_column] = columns(s);
      ZINC_CHECK(end_column <= table.stride);
      to[layout.first_column + g * static_cast<size_t>(bucket_.max_seqs) + s] = first;
      const PageId* from = table.entries.data() + s * static_cast<size_t>(table.stride);
      std::copy(from + first, from + end_column, to + end + s * static_cast<size_t>(stride));
    }
    end += n_seqs * static_cast<size_t>(stride);
  }
  return end;
}

const CudaPlan::Variant& CudaPlan::variant_for(size_t n_tokens, size_t n_outputs) const {
  for (const Variant& variant : variants_) {  // ascending sizes
    if (n_tokens <= static_cast<size_t>(variant.sizes.max_tokens) &&
        n_outputs <= static_cast<size_t>(variant.sizes.max_outputs)) {
      return variant;
    }
  }
  ZINC_CHECK(false);
  return variants_.back();
}

Status CudaPlan::queue(const StepInputs& in, InFlightStep& step) {
  if (cache_.failed_copy()) return *cache_.failed_copy();
  if (Status s = device_.make_current(); !s.ok()) return s;
  if (Status s = reserve_outputs(in, step); !s.ok()) return s;
  const size_t n_ints = fill_upload(in, step.upload.as<int>());
  if (Status s = device_.copy_h2d(workspace_->upload().address(), step.upload.as<int>(), n_ints * sizeof(int));
      !s.ok()) {
    return s;
  }
  if (workspace_->hidden_in().size() > 0) {
    const size_t n_bytes = in.hidden.size_bytes();
    ZINC_CHECK(n_bytes * static_cast<size_t>(bucket_.max_tokens) == workspace_->hidden_in().size() * in.tokens.size());
    std::memcpy(step.hidden_in.as<float>(), in.hidden.data(), n_bytes);
    if (Status s = device_.copy_h2d(workspace_->hidden_in().address(), step.hidden_in.as<float>(), n_bytes); !s.ok()) {
      return s;
    }
  }
  const Variant& variant = variant_for(in.tokens.size(), in.output_rows.size());
  if (Status s = device_.check(device_.api().launch_graph(variant.exec, device_.stream()), "starting a step");
      !s.ok()) {
    return s;
  }
  return queue_outputs(in, step);
}

// Called before any work is queued, so that a step that runs out of memory has no effect.
Status CudaPlan::reserve_outputs(const StepInputs& in, InFlightStep& step) const {
  step.n_tokens = in.tokens.size();
  step.n_outputs = in.output_rows.size();
  step.n_logits = step.n_hidden = 0;
  if (!in.logit_rows.empty()) {
    step.n_logits = static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) * in.logit_rows.size();
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    step.n_hidden = step.n_tokens * static_cast<size_t>(graph_.info(graph_.hidden()).shape.elems());
  }
  if (Status s = grow(step.hidden_in, in.hidden.size_bytes()); !s.ok()) return s;
  if (Status s = grow(step.logits, step.n_logits * sizeof(float)); !s.ok()) return s;
  return grow(step.hidden, step.n_hidden * sizeof(float));
}

Status CudaPlan::queue_outputs(const StepInputs& in, InFlightStep& step) {
  if (step.n_outputs > 0) {
    const size_t n_bytes = step.n_outputs * sizeof(int);
    if (Status s = device_.copy_d2h(step.sampled.as<int>(), workspace_->sampled().address(), n_bytes); !s.ok())
      return s;
  }
  if (!in.logit_rows.empty()) {
    const size_t vocab = step.n_logits / in.logit_rows.size();
    for (size_t i = 0; i < in.logit_rows.size();) {  // one copy for adjacent rows
      size_t n = 1;
      while (i + n < in.logit_rows.size() && in.logit_rows[i + n] == in.logit_rows[i] + static_cast<int>(n)) ++n;
      const float* from = workspace_->floats(graph_.logits()) + static_cast<size_t>(in.logit_rows[i]) * vocab;
      if (Status s = device_.copy_d2h(step.logits.as<float>() + i * vocab, reinterpret_cast<DevicePointer>(from),
                                      n * vocab * sizeof(float));
          !s.ok()) {
        return s;
      }
      i += n;
    }
  }
  if (in.wants_hidden) {
    const DevicePointer from = reinterpret_cast<DevicePointer>(workspace_->floats(graph_.hidden()));
    const size_t n_bytes = step.n_hidden * sizeof(float);
    if (Status s = device_.copy_d2h(step.hidden.as<float>(), from, n_bytes); !s.ok()) return s;
  }
  return device_.check(device_.api().record_event(step.done, device_.stream()), "ending a step");
}

void CudaPlan::start(const StepInputs& inputs) {
  check(inputs);
  InFlightStep& step = in_flight_[n_started_++ % in_flight_.size()];
  step.error.reset();
  if (error_) return;
  const Status queued = queue(inputs, step);
  if (queued.ok()) return;
  step.error = queued.error();
  if (queued.error().code == ErrorCode::device_lost) error_ = queued.error();
}

Result<StepOutput> CudaPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const InFlightStep& step = in_flight_[n_waited_++ % in_flight_.size()];
  if (error_) return *error_;
  if (step.error) return *step.error;
  if (Status s = device_.check(device_.api().synchronize_event(step.done), "a step"); !s.ok()) {
    error_ = s.error();
    return *error_;
  }
  if (bucket_.keep_values) {
    kept_values_.resize(workspace_->arena().size() / sizeof(float));
    if (Status s = device_.copy_d2h(kept_values_.data(), workspace_->arena().address(), workspace_->arena().size());
        !s.ok()) {
      return s.error();
    }
    if (Status s = device_.wait(); !s.ok()) return s.error();
    kept_tokens_ = step.n_tokens;
    kept_outputs_ = step.n_outputs;
  }
  return StepOutput{{step.sampled.as<const int>(), step.n_outputs},
                    {step.logits.as<float>(), step.n_logits},
                    {step.hidden.as<const float>(), step.n_hidden}};
}

std::span<const float> CudaPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? kept_outputs_ : kept_tokens_;
  return std::span(kept_values_)
      .subspan(workspace_->plan().offsets[static_cast<size_t>(v.id)], n_rows * static_cast<size_t>(info.shape.elems()));
}

}  // namespace zinc::cuda
