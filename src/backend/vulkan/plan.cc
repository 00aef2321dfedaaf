#include "backend/vulkan/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace zinc::vulkan {
namespace {

// Maximum tokens of the step size classes. Grids are sized for these; workgroups without work exit at once.
std::vector<int> token_classes(int max_tokens) {
  std::vector<int> classes;
  for (const int n : {1, 4, 8, 32, 128, 512}) {
    if (n < max_tokens) classes.push_back(n);
  }
  classes.push_back(max_tokens);
  return classes;
}

}  // namespace

Result<std::unique_ptr<Plan>> VulkanPlan::compile(const Graph& graph, const VulkanWeights& weights, VulkanCache& cache,
                                                  Device& device, const Bucket& bucket) {
  std::unique_ptr<VulkanPlan> plan(new VulkanPlan(graph, weights, cache, device, bucket));
  if (Status s = plan->prepare(); !s.ok()) return s.error();
  device.save_pipeline_cache();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status VulkanPlan::prepare() {
  ZINC_TRY(workspace, Workspace::allocate(graph_, weights_, cache_, device_, bucket_));
  workspace_ = std::move(workspace);
  ZINC_TRY(steps, device_.allocate(kMaxInFlight * Device::kMaxParamsBytes, "step parameters", Memory::upload));
  step_params_ = std::move(steps);
  for (size_t i = 0; i < kMaxInFlight; ++i) {
    if (Status s = allocate_in_flight(i); !s.ok()) return s;
  }
  for (const int n_tokens : token_classes(bucket_.max_tokens)) {
    variants_.push_back({{n_tokens, 1}, {}});
    if (const int all = std::min(n_tokens, bucket_.max_outputs); all > 1) variants_.push_back({{n_tokens, all}, {}});
  }
  // Report unsupported ops now; the largest class has all of them.
  ZINC_TRY(largest, Lowering(graph_, weights_, cache_, device_, *workspace_, variants_.back().sizes).run());
  if (device_.tuning().records_at_load) {
    for (Variant& variant : variants_) {
      if (Status s = record_variant(variant); !s.ok()) return s;
    }
    if (graph_.logits()) {
      if (Result<VkCommandBuffer> c = copy_commands(logits_copy_, graph_.logits(), kLogitsOut, 0); !c.ok()) {
        return c.error();
      }
    }
  }
  return device_.wait_all();
}

Status VulkanPlan::allocate_in_flight(size_t index) {
  InFlightStep& in_flight = in_flight_[index];
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  const size_t hidden = workspace_->hidden_in_floats() * static_cast<size_t>(bucket_.max_tokens);
  const auto allocate = [&](Buffer& buffer, size_t n_bytes, Memory kind) { return grow(buffer, n_bytes, kind, index); };
  if (Status s = allocate(in_flight.upload, workspace_->layout().n_ints * sizeof(int), Memory::upload); !s.ok())
    return s;
  if (Status s = allocate(in_flight.hidden_in, hidden * sizeof(float), Memory::upload); !s.ok()) return s;
  if (Status s = allocate(in_flight.sampled, n_outputs * sizeof(int), Memory::readback); !s.ok()) return s;
  return allocate(in_flight.logits, vocab * sizeof(float), Memory::readback);  // one row; grows on demand
}

void VulkanPlan::write_step_params(size_t index) {
  const InFlightStep& in_flight = in_flight_[index];
  const UploadLayout& layout = workspace_->layout();
  const auto address = [&](size_t begin) { return in_flight.upload.address() + begin * sizeof(int); };
  const shader::StepParams params{.counts = address(0),
                                  .tokens = address(layout.tokens),
                                  .positions = address(layout.positions),
                                  .seq_of_token = address(layout.seq_of_token),
                                  .seq_begin = address(layout.seq_begin),
                                  .slots = address(layout.slots),
                                  .output_rows = address(layout.output_rows),
                                  .logit_rows = address(layout.logit_rows),
                                  .first_column = address(layout.first_column),
                                  .hidden_in = in_flight.hidden_in.address(),
                                  .last_sampled = cache_.last_sampled(),
                                  .sampled = in_flight.sampled.address(),
                                  .logits_out = in_flight.logits.address(),
                                  .hidden_out = in_flight.hidden.address(),
                                  .max_seqs = bucket_.max_seqs,
                                  .unused = 0};
  std::memcpy(step_params_.as<std::byte>() + index * Device::kMaxParamsBytes, &params, sizeof(params));
}

// REQUIRES: the step is not in flight.
Status VulkanPlan::grow(Buffer& buffer, size_t n_bytes, Memory kind, size_t index) {
  if (n_bytes > buffer.size()) {
    ZINC_TRY(larger, device_.allocate(n_bytes, "step inputs and outputs", kind));
    buffer = std::move(larger);
  }
  write_step_params(index);
  return ok_status();
}

Result<VulkanPlan::RecordedProgram> VulkanPlan::record(Program program) {
  RecordedProgram out;
  const size_t n_bytes = program.params.size() + Device::kMaxParamsBytes;
  ZINC_TRY(params, device_.allocate(n_bytes, "kernel parameters", Memory::upload));
  std::memcpy(params.as<std::byte>(), program.params.data(), program.params.size());
  ZINC_TRY(set, device_.make_descriptor_set(params, step_params_));
  out.params = std::move(params);
  out.set = set;
  for (size_t i = 0; i < kMaxInFlight; ++i) {
    const uint32_t step = static_cast<uint32_t>(i * Device::kMaxParamsBytes);
    ZINC_TRY(commands, device_.record([&](VkCommandBuffer c) { record_program(device_, c, program, set.set, step); }));
    out.commands[i] = commands;
  }
  out.program = std::move(program);
  return out;
}

Status VulkanPlan::record_variant(Variant& variant) {
  ZINC_TRY(program, Lowering(graph_, weights_, cache_, device_, *workspace_, variant.sizes).run());
  ZINC_TRY(recorded, record(std::move(program)));
  variant.recorded = std::move(recorded);
  return ok_status();
}

Result<VkCommandBuffer> VulkanPlan::copy_commands(std::optional<RecordedProgram>& recorded, Value v, CopyKind kind,
                                                  size_t index) {
  if (!recorded) {
    const int n_rows = kind == kLogitsOut ? bucket_.max_outputs : bucket_.max_tokens;
    const StepClass sizes{bucket_.max_tokens, bucket_.max_outputs};
    ZINC_TRY(program, Lowering(graph_, weights_, cache_, device_, *workspace_, sizes).run_copy(v, kind, n_rows));
    ZINC_TRY(copy_program, record(std::move(program)));
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
  for (Variant& variant : variants_) {
    if (variant.recorded) free(*variant.recorded);
  }
  if (logits_copy_) free(*logits_copy_);
  if (hidden_copy_) free(*hidden_copy_);
}

void VulkanPlan::check(const StepInputs& in) const {
  const size_t n_tokens = in.tokens.size(), n_seqs = in.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && in.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(in.positions.size() == n_tokens && in.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(static_cast<size_t>(in.seq_begin[n_seqs]) == n_tokens && in.seq_begin[0] == 0);
  ZINC_CHECK(cache_.has_position(std::ranges::max(in.positions)));
  ZINC_CHECK(n_started_ - n_waited_ < in_flight_.size());
}

void VulkanPlan::fill_upload(const StepInputs& in, int* upload) const {
  const UploadLayout& layout = workspace_->layout();
  const size_t n_seqs = in.slots.size();
  upload[kTokens] = static_cast<int>(in.tokens.size());
  upload[kSeqs] = static_cast<int>(n_seqs);
  upload[kOutputs] = static_cast<int>(in.output_rows.size());
  upload[kLogitRows] = static_cast<int>(in.logit_rows.size());
  upload[layout.output_rows] = 0;  // a step without outputs computes one that is ignored
  std::ranges::copy(in.tokens, upload + layout.tokens);
  std::ranges::copy(in.positions, upload + layout.positions);
  std::ranges::copy(in.seq_begin, upload + layout.seq_begin);
  std::ranges::copy(in.slots, upload + layout.slots);
  std::ranges::copy(in.output_rows, upload + layout.output_rows);
  std::ranges::copy(in.logit_rows, upload + layout.logit_rows);
  for (size_t s = 0; s < n_seqs; ++s) {
    std::fill(upload + layout.seq_of_token + in.seq_begin[s], upload + layout.seq_of_token + in.seq_begin[s + 1],
              static_cast<int>(s));
  }
}

// Uploads only the page table columns that the step reads or writes.
void VulkanPlan::fill_pages(const StepInputs& in, int* upload) const {
  const UploadLayout& layout = workspace_->layout();
  const size_t n_seqs = in.slots.size();
  size_t end = layout.entries;
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
    upload[kPageTableStride + static_cast<int>(g)] = stride;
    upload[kPageTableOffset + static_cast<int>(g)] = static_cast<int>(end);
    ZINC_CHECK(end + n_seqs * static_cast<size_t>(stride) <= layout.n_ints);
    for (size_t s = 0; s < n_seqs; ++s) {
      const auto [first_column, end_column] = columns(s);
      ZINC_CHECK(end_column <= table.stride);
      upload[layout.first_column + g * static_cast<size_t>(bucket_.max_seqs) + s] = first_column;
      const PageId* from = table.entries.data() + s * static_cast<size_t>(table.stride);
      std::copy(from + first_column, from + end_column, upload + end + s * static_cast<size_t>(stride));
    }
    end += n_seqs * static_cast<size_t>(stride);
  }
}

Result<VulkanPlan::Variant*> VulkanPlan::variant_for(size_t n_tokens, size_t n_outputs) {
  const auto fits = [&](const Variant& v) {  // sorted from small to large
    return n_tokens <= static_cast<size_t>(v.sizes.max_tokens) && n_outputs <= static_cast<size_t>(v.sizes.max_outputs);
  };
  const auto found = std::ranges::find_if(variants_, fits);
  ZINC_CHECK(found != variants_.end());
  if (!found->recorded) {
    if (Status s = record_variant(*found); !s.ok()) return s.error();
  }
  return &*found;
}

Status VulkanPlan::queue(const StepInputs& in, size_t index) {
  if (cache_.failed_copy()) return *cache_.failed_copy();
  InFlightStep& in_flight = in_flight_[index];
  fill_upload(in, in_flight.upload.as<int>());
  fill_pages(in, in_flight.upload.as<int>());
  if (workspace_->hidden_in_floats() > 0) {
    ZINC_CHECK(in.hidden.size() == workspace_->hidden_in_floats() * in.tokens.size());
    std::memcpy(in_flight.hidden_in.as<float>(), in.hidden.data(), in.hidden.size_bytes());
  }
  in_flight.n_tokens = in.tokens.size();
  in_flight.n_outputs = in.output_rows.size();
  in_flight.n_logits = in_flight.n_hidden = 0;
  ZINC_TRY(variant, variant_for(in.tokens.size(), in.output_rows.size()));
  in_flight.upload.as<uint32_t>()[kStepNumber] = variant->recorded->n_submissions + 1;
  std::array<VkCommandBuffer, 3> commands = {variant->recorded->commands[index]};
  size_t n_commands = 1;
  if (!in.logit_rows.empty()) {
    in_flight.n_logits = static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) * in.logit_rows.size();
    if (Status s = grow(in_flight.logits, in_flight.n_logits * sizeof(float), Memory::readback, index); !s.ok())
      return s;
    ZINC_TRY(copy, copy_commands(logits_copy_, graph_.logits(), kLogitsOut, index));
    commands[n_commands++] = copy;
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    in_flight.n_hidden = in_flight.n_tokens * static_cast<size_t>(graph_.info(graph_.hidden()).shape.elems());
    if (Status s = grow(in_flight.hidden, in_flight.n_hidden * sizeof(float), Memory::readback, index); !s.ok())
      return s;
    ZINC_TRY(copy, copy_commands(hidden_copy_, graph_.hidden(), kHiddenOut, index));
    commands[n_commands++] = copy;
  }
  ZINC_TRY(timeline_value, device_.submit(std::span(commands).first(n_commands)));
  in_flight.timeline_value = timeline_value;
  ++variant->recorded->n_submissions;  // must match the counters of counter_sync.glsl
  return ok_status();
}

void VulkanPlan::start(const StepInputs& inputs) {
  check(inputs);
  const size_t index = n_started_++ % kMaxInFlight;
  InFlightStep& in_flight = in_flight_[index];
  in_flight.error.reset();
  if (error_) return;
  const auto begin = std::chrono::steady_clock::now();
  if (Status s = queue(inputs, index); !s.ok()) {
    in_flight.error = s.error();
    if (s.error().code == ErrorCode::device_lost) error_ = s.error();
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  device_.count_host_time(static_cast<uint64_t>(std::chrono::nanoseconds(took).count()));
}

Result<StepOutput> VulkanPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const InFlightStep& in_flight = in_flight_[n_waited_++ % kMaxInFlight];
  if (error_) return *error_;
  if (in_flight.error) return *in_flight.error;
  if (Status s = device_.wait(in_flight.timeline_value); !s.ok()) {
    error_ = s.error();
    return *error_;
  }
  if (bucket_.keep_values) {
    kept_values_.resize(workspace_->arena().size() / sizeof(float));
    const std::span<float> values(kept_values_);
    if (Status s = device_.read(workspace_->arena(), 0, std::as_writable_bytes(values)); !s.ok()) return s.error();
    kept_tokens_ = in_flight.n_tokens;
    kept_outputs_ = in_flight.n_outputs;
  }
  return StepOutput{{in_flight.sampled.as<const int>(), in_flight.n_outputs},
                    {in_flight.logits.as<float>(), in_flight.n_logits},
                    {in_flight.hidden.as<const float>(), in_flight.n_hidden}};
}

std::span<const float> VulkanPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? kept_outputs_ : kept_tokens_;
  return std::span(kept_values_).subspan(workspace_->offset(v), n_rows * static_cast<size_t>(info.shape.elems()));
}

}  // namespace zinc::vulkan
