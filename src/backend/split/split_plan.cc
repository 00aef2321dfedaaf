#include "backend/split/split_plan.h"

#include <cstring>

#include "base/check.h"

namespace zinc::split {
namespace {

size_t width_of(const Graph& graph, std::span<const Value> values) {
  size_t width = 0;
  for (const Value v : values) width += static_cast<size_t>(graph.info(v).shape.elems());
  return width;
}

}  // namespace

SplitPlan::SplitPlan(const PlacedGraph& placed, SplitCache& cache, std::vector<std::unique_ptr<Plan>> plans,
                     std::vector<StreamedStage> streamed, const Bucket& bucket, std::optional<size_t> host)
    : placed_(placed),
      cache_(cache),
      plans_(std::move(plans)),
      streamed_(std::move(streamed)),
      bucket_(bucket),
      host_(host) {
  tokens_.reserve(static_cast<size_t>(bucket.max_tokens));
  place_crossing_values();
  for (StepResult& result : results_) result.reserve(placed.graph, bucket);
}

// The outputs of a stage are the inputs of the next one as they are.
bool SplitPlan::passes_through(size_t stage) const {
  if (stage + 1 == plans_.size()) return false;
  const std::vector<Value>& outputs = placed_.stages[stage].outputs;
  if (outputs != placed_.stages[stage + 1].inputs) return false;
  for (size_t s = stage + 2; s < plans_.size(); ++s) {
    for (const Value v : placed_.stages[s].inputs) {
      if (std::ranges::find(outputs, v) != outputs.end()) return false;
    }
  }
  return true;
}

// A buffer is used again after the last stage that reads it.
void SplitPlan::place_crossing_values() {
  buffer_of_.resize(static_cast<size_t>(placed_.graph.n_values()));
  std::vector<size_t> last_read, n_floats;  // of each buffer
  size_t n_joined = 0;
  for (size_t s = 0; s < plans_.size(); ++s) {
    n_joined = std::max(n_joined, width_of(placed_.graph, placed_.stages[s].inputs));
    if (passes_through(s)) continue;
    for (const Value v : placed_.stages[s].outputs) {
      size_t read = s;
      for (size_t later = s + 1; later < plans_.size(); ++later) {
        const std::vector<Value>& inputs = placed_.stages[later].inputs;
        if (std::ranges::find(inputs, v) != inputs.end()) read = later;
      }
      size_t b = 0;
      while (b < last_read.size() && last_read[b] > s) ++b;
      if (b == last_read.size()) {
        last_read.push_back(0);
        n_floats.push_back(0);
      }
      last_read[b] = read;
      n_floats[b] = std::max(n_floats[b], static_cast<size_t>(placed_.graph.info(v).shape.elems()));
      buffer_of_[static_cast<size_t>(v.id)] = b;
    }
  }
  const size_t n_tokens = static_cast<size_t>(bucket_.max_tokens);
  buffers_.resize(n_floats.size());
  for (size_t b = 0; b < n_floats.size(); ++b) buffers_[b].reserve(n_tokens * n_floats[b]);
  joined_.reserve(n_tokens * n_joined);
  size_t n_divided = 0, n_merged = 0;
  for (size_t s = 0; s < plans_.size(); ++s) {
    if (!streamed_[s].plan) continue;
    n_divided = std::max(n_divided, width_of(placed_.graph, placed_.stages[s].inputs));
    n_merged = std::max(n_merged, width_of(placed_.graph, placed_.stages[s].outputs));
  }
  divided_.reserve(n_tokens * n_divided);
  merged_.reserve(n_tokens * n_merged);
}

// What this plan has besides those of the stages.
size_t SplitPlan::host_bytes() const {
  size_t n = (joined_.capacity() + divided_.capacity() + merged_.capacity()) * sizeof(float);
  for (const std::vector<float>& buffer : buffers_) n += buffer.capacity() * sizeof(float);
  for (const StepResult& result : results_) n += result.host_bytes();
  return n;
}

size_t SplitPlan::device_bytes() const {
  size_t n = host_ ? host_bytes() : 0;
  for (const auto& plan : plans_) n += plan->device_bytes();
  for (const StreamedStage& stage : streamed_) n += stage.plan ? stage.plan->device_bytes() : 0;
  return n;
}

size_t SplitPlan::device_bytes_on(size_t device) const {
  size_t n = host_ == device ? host_bytes() : 0;
  for (size_t s = 0; s < plans_.size(); ++s) {
    n += placed_.devices[s] == device ? plans_[s]->device_bytes() : 0;
    if (streamed_[s].plan && placed_.streaming_device(s) == device) n += streamed_[s].plan->device_bytes();
  }
  return n;
}

std::span<const float> SplitPlan::join_inputs(size_t stage, size_t n_tokens) {
  const std::vector<Value>& inputs = placed_.stages[stage].inputs;
  const size_t width = width_of(placed_.graph, inputs);
  size_t at = 0;
  joined_.resize(n_tokens * width);
  for (const Value v : inputs) {
    const size_t n = static_cast<size_t>(placed_.graph.info(v).shape.elems());
    const float* from = crossing(v);
    for (size_t t = 0; t < n_tokens; ++t) std::memcpy(&joined_[t * width + at], from + t * n, n * sizeof(float));
    at += n;
  }
  return joined_;
}

void SplitPlan::keep_outputs(size_t stage, std::span<const float> hidden, size_t n_tokens) {
  const size_t width = hidden.size() / n_tokens;
  size_t at = 0;
  for (const Value v : placed_.stages[stage].outputs) {
    const size_t n = static_cast<size_t>(placed_.graph.info(v).shape.elems());
    std::vector<float>& buffer = buffers_[buffer_of_[static_cast<size_t>(v.id)]];
    buffer.resize(n_tokens * n);
    for (size_t t = 0; t < n_tokens; ++t) std::memcpy(&buffer[t * n], &hidden[t * width + at], n * sizeof(float));
    at += n;
  }
}

// Whether the step needs the end of the one in flight: a token that it samples, the memory of its activations, or the
// time of its kernels.
bool SplitPlan::must_wait_for_previous(const StepInputs& inputs) const {
  if (n_started_ == n_waited_) return false;
  const size_t last = placed_.last_device();
  if (std::ranges::count(placed_.devices, last) > 1 || bucket_.time_kernels) return true;
  const std::vector<int32_t>& sampled = results_[n_waited_ % results_.size()].output_slots;
  for (size_t s = 0; s < inputs.slots.size(); ++s) {
    if (std::ranges::find(sampled, inputs.slots[s]) == sampled.end()) continue;
    const std::span<const TokenId> tokens = inputs.tokens.subspan(
        static_cast<size_t>(inputs.seq_begin[s]), static_cast<size_t>(inputs.seq_begin[s + 1] - inputs.seq_begin[s]));
    if (std::ranges::find(tokens, kFromDevice) != tokens.end()) return true;
  }
  return false;
}

void SplitPlan::start(const StepInputs& inputs) {
  ZINC_CHECK(n_started_ - n_waited_ < results_.size());
  if (must_wait_for_previous(inputs)) {
    StepResult& previous = results_[n_waited_ % results_.size()];
    previous.copy(finish_step(previous));
  }
  StepResult& result = results_[n_started_++ % results_.size()];
  result.begin(inputs, cache_, tokens_);
  if (Status s = run_stages(inputs); !s.ok()) result.error = s.error();
}

std::span<const PageTable> SplitPlan::page_tables_on(size_t device, const StepInputs& in) {
  page_tables_.clear();
  for (const int group : cache_.groups_on(device)) page_tables_.push_back(in.page_tables[static_cast<size_t>(group)]);
  return page_tables_;
}

// Which rows a GPU computes depends on their sequence alone, so that its bits do not depend on the batch.
void SplitPlan::divide_rows(const StepInputs& in) {
  streamed_rows_.clear();
  host_rows_.clear();
  if (std::ranges::none_of(streamed_, [](const StreamedStage& stage) { return stage.plan != nullptr; })) return;
  for (size_t s = 0; s < in.slots.size(); ++s) {
    const RowRange chunks = whole_chunks(in, s, placed_.streamed_tokens);
    streamed_rows_.add(in, s, chunks.begin, chunks.end);
    host_rows_.add(in, s, chunks.end, in.seq_begin[s + 1]);
  }
}

// While the stage before runs, if there is one.
Status SplitPlan::load_experts(size_t stage) {
  if (stage >= plans_.size() || !streamed_[stage].plan || streamed_rows_.empty()) return ok_status();
  return streamed_[stage].weights->load(placed_.stages[stage].graph);
}

// The GPU computes the rows of whole chunks, and the host the others at the same time.
Result<std::span<const float>> SplitPlan::run_streamed(size_t stage, const StepInputs& in,
                                                       std::span<const float> hidden) {
  const size_t n_tokens = in.tokens.size(), width_in = hidden.size() / n_tokens;
  const size_t width_out = width_of(placed_.graph, placed_.stages[stage].outputs);
  divided_.resize(hidden.size());
  merged_.resize(n_tokens * width_out);
  size_t n_divided = 0;
  for (const StepRows* part : {&streamed_rows_, &host_rows_}) {
    for (const int32_t row : part->rows()) {
      std::memcpy(&divided_[n_divided++ * width_in], &hidden[static_cast<size_t>(row) * width_in],
                  width_in * sizeof(float));
    }
  }
  const std::span<const float> divided = divided_;
  Plan& gpu = *streamed_[stage].plan;
  gpu.start(streamed_rows_.inputs(in, page_tables_on(placed_.streaming_device(stage), in),
                                  divided.first(streamed_rows_.size() * width_in)));
  std::optional<Error> error;
  const auto finish = [&](Plan& plan, const StepRows& part) {
    const Result<StepOutput> out = plan.wait();
    if (!out.ok()) {
      error = out.error();
      return;
    }
    for (size_t i = 0; i < part.size(); ++i) {
      std::memcpy(&merged_[static_cast<size_t>(part.rows()[i]) * width_out], &out.value().hidden[i * width_out],
                  width_out * sizeof(float));
    }
    if (bucket_.time_kernels) keep_kernel_times(stage, plan);
  };
  if (!host_rows_.empty()) {
    plans_[stage]->start(host_rows_.inputs(in, page_tables_on(placed_.devices[stage], in),
                                           divided.subspan(streamed_rows_.size() * width_in)));
    finish(*plans_[stage], host_rows_);
  }
  finish(gpu, streamed_rows_);
  if (error) return *error;
  return std::span<const float>(merged_);
}

// All stages but the last one, which is started.
Status SplitPlan::run_stages(const StepInputs& in) {
  kernel_times_.clear();
  kernel_nodes_.clear();
  StepInputs step = in;
  step.tokens = tokens_;
  divide_rows(step);
  std::span<const float> passed;  // from the stage before
  for (size_t s = 0; s < plans_.size(); ++s) {
    const bool is_last = s + 1 == plans_.size();
    std::span<const float> hidden;
    if (!placed_.stages[s].inputs.empty()) hidden = passed.empty() ? join_inputs(s, in.tokens.size()) : passed;
    std::span<const float> out_hidden;
    if (streamed_[s].plan && !streamed_rows_.empty()) {
      ZINC_TRY(out, run_streamed(s, step, hidden));
      out_hidden = out;
    } else {
      StepInputs own = step;
      own.page_tables = page_tables_on(placed_.devices[s], in);
      own.hidden = hidden;
      if (!is_last) {
        own.output_rows = {};
        own.sampling = {};
        own.logit_rows = {};
        own.wants_hidden = true;
      }
      plans_[s]->start(own);
      if (is_last) break;
      const Status loaded = load_experts(s + 1);
      ZINC_TRY(out, plans_[s]->wait());
      if (!loaded.ok()) return loaded;
      if (bucket_.time_kernels) keep_kernel_times(s, *plans_[s]);
      out_hidden = out.hidden;
    }
    passed = {};
    if (passes_through(s)) {
      passed = out_hidden;
    } else {
      keep_outputs(s, out_hidden, in.tokens.size());
    }
  }
  return ok_status();
}

// Waits for the last stage.
Result<StepOutput> SplitPlan::finish_step(StepResult& result) {
  if (result.error) return *result.error;
  Result<StepOutput> out = result.finish(plans_.back()->wait(), cache_);
  if (out.ok() && bucket_.time_kernels) keep_kernel_times(plans_.size() - 1, *plans_.back());
  return out;
}

Result<StepOutput> SplitPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  StepResult& result = results_[n_waited_++ % results_.size()];
  return result.is_copied ? result.copied() : finish_step(result);
}

std::span<const float> SplitPlan::value(Value v) const {
  for (size_t s = 0; s < plans_.size(); ++s) {  // the first stage that has it computes it
    if (const Value own = placed_.stages[s].values[static_cast<size_t>(v.id)]) return plans_[s]->value(own);
  }
  ZINC_CHECK(false);
}

void SplitPlan::keep_kernel_times(size_t stage, const Plan& plan) {
  for (const KernelTime& time : plan.kernel_times()) {
    std::vector<int32_t>& nodes = kernel_nodes_.emplace_back();
    for (const int32_t node : time.nodes) {
      const int32_t whole = placed_.stages[stage].nodes[static_cast<size_t>(node)];
      if (whole >= 0) nodes.push_back(whole);
    }
    kernel_times_.push_back(time);
    kernel_times_.back().nodes = nodes;
  }
}

Status SplitPlan::wait_until_prepared() {
  for (const auto& plan : plans_) {
    if (Status s = plan->wait_until_prepared(); !s.ok()) return s;
  }
  for (const StreamedStage& stage : streamed_) {
    if (!stage.plan) continue;
    if (Status s = stage.plan->wait_until_prepared(); !s.ok()) return s;
  }
  return ok_status();
}

}  // namespace zinc::split
