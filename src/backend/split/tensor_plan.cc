#include "backend/split/tensor_plan.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace zinc::split {

TensorPlan::TensorPlan(const Graph& graph, const ShardedGraph& shards, SplitCache& cache,
                       std::vector<std::vector<std::unique_ptr<Plan>>> plans, const Bucket& bucket,
                       std::optional<size_t> host)
    : graph_(graph), shards_(shards), cache_(cache), plans_(std::move(plans)), bucket_(bucket), host_(host) {
  tokens_.reserve(static_cast<size_t>(bucket.max_tokens));
  page_tables_.resize(shards.layout.n_devices());
  joined_.resize(shards.layout.n_devices());
  place_crossing_values();
  for (StepResult& result : results_) result.reserve(graph, bucket);
}

// A buffer is used again after the last stage that reads it.
void TensorPlan::place_crossing_values() {
  const size_t n_tokens = static_cast<size_t>(bucket_.max_tokens);
  std::map<Key, size_t> last_read;
  for (size_t s = 0; s < plans_.size(); ++s) {
    for (size_t d = 0; d < joined_.size(); ++d) {
      size_t width = 0;
      for (const CrossingValue& v : shards_.stages[s][d].inputs) {
        last_read[{v.is_sum ? kSum : d, v.value.id}] = s;
        width += v.n_elems;
      }
      if (shards_.stages[s][d].inputs.size() > 1) joined_[d].reserve(std::max(joined_[d].capacity(), n_tokens * width));
    }
  }
  const auto place = [&](const Key& key, size_t stage, size_t n_elems) {
    const auto read = last_read.find(key);
    if (read == last_read.end() || buffer_of_.contains(key)) return;
    size_t b = 0;
    while (b < buffers_.size() && buffers_[b].last_read > stage) ++b;
    if (b == buffers_.size()) buffers_.emplace_back();
    buffers_[b].last_read = read->second;
    buffers_[b].n_elems = std::max(buffers_[b].n_elems, n_elems);
    buffer_of_[key] = b;
  };
  for (size_t s = 0; s < plans_.size(); ++s) {
    for (size_t d = 0; d < joined_.size(); ++d) {
      for (const CrossingValue& v : shards_.stages[s][d].outputs) {
        place({d, v.value.id}, s, v.n_elems);
        place({kSum, v.value.id}, s, v.n_elems);
      }
    }
  }
  for (Buffer& buffer : buffers_) buffer.floats.reserve(n_tokens * buffer.n_elems);
}

size_t TensorPlan::host_bytes() const {
  size_t n = 0;
  for (const Buffer& buffer : buffers_) n += buffer.floats.capacity() * sizeof(float);
  for (const std::vector<float>& joined : joined_) n += joined.capacity() * sizeof(float);
  for (const StepResult& result : results_) n += result.host_bytes();
  return n;
}

size_t TensorPlan::device_bytes() const {
  size_t n = 0;
  for (size_t d = 0; d < joined_.size(); ++d) n += device_bytes_on(d);
  return n;
}

size_t TensorPlan::device_bytes_on(size_t device) const {
  size_t n = host_ == device ? host_bytes() : 0;
  for (const auto& stage : plans_) n += stage[device] ? stage[device]->device_bytes() : 0;
  return n;
}

std::span<const PageTable> TensorPlan::page_tables_on(size_t device, const StepInputs& in) {
  std::vector<PageTable>& tables = page_tables_[device];
  tables.clear();
  for (const int group : cache_.groups_on(device)) tables.push_back(in.page_tables[static_cast<size_t>(group)]);
  return tables;
}

std::span<const float> TensorPlan::join_inputs(size_t stage, size_t device, size_t n_tokens) {
  const std::vector<CrossingValue>& inputs = shards_.stages[stage][device].inputs;
  const auto rows_of = [&](const CrossingValue& v) { return buffer(v.is_sum ? kSum : device, v.value); };
  if (inputs.empty()) return {};
  if (inputs.size() == 1) return {rows_of(inputs[0]), n_tokens * inputs[0].n_elems};
  size_t width = 0, at = 0;
  for (const CrossingValue& v : inputs) width += v.n_elems;
  std::vector<float>& joined = joined_[device];
  joined.resize(n_tokens * width);
  for (const CrossingValue& v : inputs) {
    const float* const from = rows_of(v);
    for (size_t t = 0; t < n_tokens; ++t) {
      std::memcpy(&joined[t * width + at], from + t * v.n_elems, v.n_elems * sizeof(float));
    }
    at += v.n_elems;
  }
  return joined;
}

// The first device's partial sum is copied, the others are added to it.
void TensorPlan::keep_outputs(size_t stage, std::span<const std::span<const float>> hidden, size_t n_tokens) {
  for (size_t d = 0; d < hidden.size(); ++d) {
    const std::vector<CrossingValue>& outputs = shards_.stages[stage][d].outputs;
    if (outputs.empty()) continue;
    const size_t width = hidden[d].size() / n_tokens;
    size_t at = 0;
    for (const CrossingValue& v : outputs) {
      for (const size_t to : {d, kSum}) {
        const auto found = buffer_of_.find({to, v.value.id});
        if (found == buffer_of_.end()) continue;
        std::vector<float>& buffer = buffers_[found->second].floats;
        buffer.resize(n_tokens * v.n_elems);
        const bool adds = to == kSum && shards_.layout.first_device(v.value) != d;
        for (size_t t = 0; t < n_tokens; ++t) {
          const float* const from = &hidden[d][t * width + at];
          float* const sum = &buffer[t * v.n_elems];
          if (adds) {
            for (size_t i = 0; i < v.n_elems; ++i) sum[i] += from[i];
          } else {
            std::memcpy(sum, from, v.n_elems * sizeof(float));
          }
        }
      }
      at += v.n_elems;
    }
  }
}

void TensorPlan::start(const StepInputs& inputs) {
  ZINC_CHECK(n_started_ - n_waited_ < results_.size());
  if (n_started_ > n_waited_) {  // the stages share the memory of their activations
    StepResult& previous = results_[n_waited_ % results_.size()];
    previous.copy(finish_step(previous));
  }
  StepResult& result = results_[n_started_++ % results_.size()];
  result.begin(inputs, cache_, tokens_);
  if (Status s = run_stages(inputs); !s.ok()) result.error = s.error();
}

// All stages but the last one, which is started.
Status TensorPlan::run_stages(const StepInputs& in) {
  kernel_times_.clear();
  kernel_nodes_.clear();
  values_.clear();
  std::vector<std::span<const float>> hidden(joined_.size());
  for (size_t s = 0; s < plans_.size(); ++s) {
    const bool is_last = s + 1 == plans_.size();
    for (size_t d = 0; d < joined_.size(); ++d) {
      if (!plans_[s][d]) continue;
      StepInputs own = in;
      own.tokens = tokens_;
      own.page_tables = page_tables_on(d, in);
      own.hidden = join_inputs(s, d, in.tokens.size());
      if (!is_last) {
        own.output_rows = {};
        own.sampling = {};
        own.logit_rows = {};
        own.wants_hidden = true;
      }
      plans_[s][d]->start(own);
    }
    if (is_last) break;
    if (Status status = wait_for_stage(s, hidden); !status.ok()) return status;
    keep_outputs(s, hidden, in.tokens.size());
  }
  return ok_status();
}

// Of all devices, even if one fails.
Status TensorPlan::wait_for_stage(size_t stage, std::span<std::span<const float>> hidden) {
  Status status = ok_status();
  for (size_t d = 0; d < hidden.size(); ++d) {
    hidden[d] = {};
    if (!plans_[stage][d]) continue;
    const Result<StepOutput> out = plans_[stage][d]->wait();
    if (!out.ok()) {
      if (status.ok()) status = out.error();
      continue;
    }
    hidden[d] = out.value().hidden;
    if (bucket_.time_kernels) keep_kernel_times(stage, d);
  }
  return status;
}

Result<StepOutput> TensorPlan::finish_step(StepResult& result) {
  if (result.error) return *result.error;
  const size_t root = shards_.layout.root();
  Result<StepOutput> out = result.finish(plans_.back()[root]->wait(), cache_);
  if (out.ok() && bucket_.time_kernels) keep_kernel_times(plans_.size() - 1, root);
  return out;
}

Result<StepOutput> TensorPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  StepResult& result = results_[n_waited_++ % results_.size()];
  return result.is_copied ? result.copied() : finish_step(result);
}

// Partial sums are added, parts put next to each other.
std::span<const float> TensorPlan::value(Value v) const {
  const auto [found, is_new] = values_.try_emplace(v.id);
  std::vector<float>& whole = found->second;
  if (!is_new) return whole;
  const size_t n_elems = static_cast<size_t>(graph_.info(v).shape.elems());
  const size_t width = shards_.layout.is_per_expert(v) ? static_cast<size_t>(graph_.info(v).shape.inner()) : n_elems;
  for (size_t d = 0; d < joined_.size(); ++d) {
    const bool is_partial = shards_.layout.is_partial(v);
    const IndexRanges part = is_partial ? IndexRanges(0, static_cast<int64_t>(width)) : shards_.layout.elems(d, v);
    if (part.empty() || (is_partial && !shards_.layout.is_partial_on(v, d))) continue;
    for (size_t s = 0; s < plans_.size(); ++s) {  // the first stage that has it computes it
      const Value own = shards_.stages[s][d].values[static_cast<size_t>(v.id)];
      if (!own) continue;
      const std::span<const float> rows = plans_[s][d]->value(own);
      const size_t n_rows = rows.size() / static_cast<size_t>(part.size());
      whole.resize(n_rows * width);
      size_t at = 0;
      for (size_t row = 0; row < n_rows; ++row) {
        for (const IndexRange& range : part.ranges()) {
          for (int64_t i = range.begin; i < range.end; ++i) {
            float& to = whole[row * width + static_cast<size_t>(i)];
            to = is_partial ? to + rows[at] : rows[at];
            ++at;
          }
        }
      }
      break;
    }
  }
  return whole;
}

void TensorPlan::keep_kernel_times(size_t stage, size_t device) {
  for (const KernelTime& time : plans_[stage][device]->kernel_times()) {
    std::vector<int32_t>& nodes = kernel_nodes_.emplace_back();
    for (const int32_t node : time.nodes) {
      const int32_t whole = shards_.stages[stage][device].nodes[static_cast<size_t>(node)];
      if (whole >= 0) nodes.push_back(whole);
    }
    kernel_times_.push_back(time);
    kernel_times_.back().nodes = nodes;
  }
}

Status TensorPlan::wait_until_prepared() {
  for (const auto& stage : plans_) {
    for (const auto& plan : stage) {
      if (!plan) continue;
      if (Status s = plan->wait_until_prepared(); !s.ok()) return s;
    }
  }
  return ok_status();
}

}  // namespace zinc::split
