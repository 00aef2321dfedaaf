#include "backend/vulkan/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace zinc::vulkan {
namespace {

// Largest numbers of tokens of the classes: grids are made for these, and workgroups without work end at once.
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
  device.keep_pipelines();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status VulkanPlan::prepare() {
  ZINC_TRY(room, Room::take(graph_, weights_, cache_, device_, bucket_));
  room_ = std::move(room);
  ZINC_TRY(steps, device_.allocate(kFlights * Device::kBlockBytes, "steps", Memory::upload));
  steps_ = std::move(steps);
  for (size_t i = 0; i < kFlights; ++i) {
    if (Status s = prepare_flight(i); !s.ok()) return s;
  }
  for (const int n_tokens : token_classes(bucket_.max_tokens)) {
    variants_.push_back({{n_tokens, 1}, {}});
    if (const int all = std::min(n_tokens, bucket_.max_outputs); all > 1) variants_.push_back({{n_tokens, all}, {}});
  }
  // Whatever a class cannot do is said now; the largest has the most of it.
  ZINC_TRY(largest, Lowering(graph_, weights_, cache_, device_, *room_, variants_.back().sizes).run());
  if (device_.tuning().records_ahead) {
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

Status VulkanPlan::prepare_flight(size_t index) {
  Flight& flight = flights_[index];
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  const size_t hidden = room_->hidden_in_floats() * static_cast<size_t>(bucket_.max_tokens);
  const auto take = [&](Buffer& buffer, size_t n_bytes, Memory kind) { return grow(buffer, n_bytes, kind, index); };
  if (Status s = take(flight.upload, room_->layout().n_ints * sizeof(int), Memory::upload); !s.ok()) return s;
  if (Status s = take(flight.hidden_in, hidden * sizeof(float), Memory::upload); !s.ok()) return s;
  if (Status s = take(flight.sampled, n_outputs * sizeof(int), Memory::readback); !s.ok()) return s;
  return take(flight.logits, vocab * sizeof(float), Memory::readback);  // one row; more when first asked for
}

void VulkanPlan::write_step_block(size_t index) {
  const Flight& flight = flights_[index];
  const UploadLayout& at = room_->layout();
  const auto part = [&](size_t begin) { return flight.upload.address() + begin * sizeof(int); };
  const StepBlock block{.counts = part(0),
                        .tokens = part(at.tokens),
                        .positions = part(at.positions),
                        .seq_of_token = part(at.seq_of_token),
                        .seq_begin = part(at.seq_begin),
                        .slots = part(at.slots),
                        .output_rows = part(at.output_rows),
                        .logit_rows = part(at.logit_rows),
                        .first_column = part(at.first_column),
                        .hidden_in = flight.hidden_in.address(),
                        .last_sampled = cache_.last_sampled(),
                        .sampled = flight.sampled.address(),
                        .logits_out = flight.logits.address(),
                        .hidden_out = flight.hidden.address(),
                        .max_seqs = bucket_.max_seqs,
                        .unused = 0};
  std::memcpy(steps_.as<std::byte>() + index * Device::kBlockBytes, &block, sizeof(block));
}

// REQUIRES: the flight is not under way.
Status VulkanPlan::grow(Buffer& buffer, size_t n_bytes, Memory kind, size_t index) {
  if (n_bytes > buffer.size()) {
    ZINC_TRY(larger, device_.allocate(n_bytes, "steps", kind));
    buffer = std::move(larger);
  }
  write_step_block(index);
  return ok_status();
}

Result<VulkanPlan::Recorded> VulkanPlan::record(Program program) {
  Recorded out;
  const size_t n_bytes = program.blocks.size() + Device::kBlockBytes;
  ZINC_TRY(blocks, device_.allocate(n_bytes, "parameters", Memory::upload));
  std::memcpy(blocks.as<std::byte>(), program.blocks.data(), program.blocks.size());
  ZINC_TRY(set, device_.describe(blocks, steps_));
  out.blocks = std::move(blocks);
  out.set = set;
  for (size_t i = 0; i < kFlights; ++i) {
    const uint32_t step = static_cast<uint32_t>(i * Device::kBlockBytes);
    ZINC_TRY(commands, device_.record([&](VkCommandBuffer c) { record_program(device_, c, program, set.set, step); }));
    out.commands[i] = commands;
  }
  out.program = std::move(program);
  return out;
}

Status VulkanPlan::record_variant(Variant& variant) {
  ZINC_TRY(program, Lowering(graph_, weights_, cache_, device_, *room_, variant.sizes).run());
  ZINC_TRY(recorded, record(std::move(program)));
  variant.recorded = std::move(recorded);
  return ok_status();
}

Result<VkCommandBuffer> VulkanPlan::copy_commands(std::optional<Recorded>& recorded, Value v, CopyKind kind,
                                                  size_t index) {
  if (!recorded) {
    const int n_rows = kind == kLogitsOut ? bucket_.max_outputs : bucket_.max_tokens;
    const StepClass sizes{bucket_.max_tokens, bucket_.max_outputs};
    ZINC_TRY(program, Lowering(graph_, weights_, cache_, device_, *room_, sizes).run_copy(v, kind, n_rows));
    ZINC_TRY(made, record(std::move(program)));
    recorded = std::move(made);
  }
  return recorded->commands[index];
}

void VulkanPlan::free(Recorded& recorded) {
  for (VkCommandBuffer commands : recorded.commands) device_.free_commands(commands);
  device_.free_set(recorded.set);
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
  ZINC_CHECK(n_started_ - n_waited_ < flights_.size());
}

void VulkanPlan::fill_upload(const StepInputs& in, int* to) const {
  const UploadLayout& at = room_->layout();
  const size_t n_seqs = in.slots.size();
  to[kTokens] = static_cast<int>(in.tokens.size());
  to[kSeqs] = static_cast<int>(n_seqs);
  to[kOutputs] = static_cast<int>(in.output_rows.size());
  to[kLogitRows] = static_cast<int>(in.logit_rows.size());
  to[at.output_rows] = 0;  // a step without outputs computes one that nobody reads
  std::ranges::copy(in.tokens, to + at.tokens);
  std::ranges::copy(in.positions, to + at.positions);
  std::ranges::copy(in.seq_begin, to + at.seq_begin);
  std::ranges::copy(in.slots, to + at.slots);
  std::ranges::copy(in.output_rows, to + at.output_rows);
  std::ranges::copy(in.logit_rows, to + at.logit_rows);
  for (size_t s = 0; s < n_seqs; ++s) {
    std::fill(to + at.seq_of_token + in.seq_begin[s], to + at.seq_of_token + in.seq_begin[s + 1], static_cast<int>(s));
  }
}

// Of each page table only the columns the step reads or writes.
void VulkanPlan::fill_pages(const StepInputs& in, int* to) const {
  const UploadLayout& at = room_->layout();
  const size_t n_seqs = in.slots.size();
  size_t end = at.entries;
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
    to[kStride + static_cast<int>(g)] = stride;
    to[kEntries + static_cast<int>(g)] = static_cast<int>(end);
    ZINC_CHECK(end + n_seqs * static_cast<size_t>(stride) <= at.n_ints);
    for (size_t s = 0; s < n_seqs; ++s) {
      const auto [first, past] = columns(s);
      ZINC_CHECK(past <= table.stride);
      to[at.first_column + g * static_cast<size_t>(bucket_.max_seqs) + s] = first;
      const PageId* from = table.entries.data() + s * static_cast<size_t>(table.stride);
      std::copy(from + first, from + past, to + end + s * static_cast<size_t>(stride));
    }
    end += n_seqs * static_cast<size_t>(stride);
  }
}

Result<VulkanPlan::Variant*> VulkanPlan::variant_for(size_t n_tokens, size_t n_outputs) {
  const auto fits = [&](const Variant& v) {  // the smaller ones come first
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
  Flight& flight = flights_[index];
  fill_upload(in, flight.upload.as<int>());
  fill_pages(in, flight.upload.as<int>());
  if (room_->hidden_in_floats() > 0) {
    ZINC_CHECK(in.hidden.size() == room_->hidden_in_floats() * in.tokens.size());
    std::memcpy(flight.hidden_in.as<float>(), in.hidden.data(), in.hidden.size_bytes());
  }
  flight.n_tokens = in.tokens.size();
  flight.n_outputs = in.output_rows.size();
  flight.n_logits = flight.n_hidden = 0;
  ZINC_TRY(variant, variant_for(in.tokens.size(), in.output_rows.size()));
  flight.upload.as<uint32_t>()[kStepNumber] = variant->recorded->n_runs + 1;
  std::array<VkCommandBuffer, 3> commands = {variant->recorded->commands[index]};
  size_t n_commands = 1;
  if (!in.logit_rows.empty()) {
    flight.n_logits = static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) * in.logit_rows.size();
    if (Status s = grow(flight.logits, flight.n_logits * sizeof(float), Memory::readback, index); !s.ok()) return s;
    ZINC_TRY(copy, copy_commands(logits_copy_, graph_.logits(), kLogitsOut, index));
    commands[n_commands++] = copy;
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    flight.n_hidden = flight.n_tokens * static_cast<size_t>(graph_.info(graph_.hidden()).shape.elems());
    if (Status s = grow(flight.hidden, flight.n_hidden * sizeof(float), Memory::readback, index); !s.ok()) return s;
    ZINC_TRY(copy, copy_commands(hidden_copy_, graph_.hidden(), kHiddenOut, index));
    commands[n_commands++] = copy;
  }
  ZINC_TRY(ticket, device_.submit(std::span(commands).first(n_commands)));
  flight.ticket = ticket;
  ++variant->recorded->n_runs;  // of steps that ran: kernels count them too
  return ok_status();
}

void VulkanPlan::start(const StepInputs& inputs) {
  check(inputs);
  const size_t index = n_started_++ % kFlights;
  Flight& flight = flights_[index];
  flight.error.reset();
  if (error_) return;
  const auto begin = std::chrono::steady_clock::now();
  if (Status s = queue(inputs, index); !s.ok()) {
    flight.error = s.error();
    if (s.error().code == ErrorCode::device_lost) error_ = s.error();
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  device_.count_host_time(static_cast<uint64_t>(std::chrono::nanoseconds(took).count()));
}

Result<StepOutput> VulkanPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const Flight& flight = flights_[n_waited_++ % kFlights];
  if (error_) return *error_;
  if (flight.error) return *flight.error;
  if (Status s = device_.wait(flight.ticket); !s.ok()) {
    error_ = s.error();
    return *error_;
  }
  if (bucket_.keep_values) {
    kept_.resize(room_->arena().size() / sizeof(float));
    const std::span<float> kept(kept_);
    if (Status s = device_.read(room_->arena(), 0, std::as_writable_bytes(kept)); !s.ok()) return s.error();
    kept_tokens_ = flight.n_tokens;
    kept_outputs_ = flight.n_outputs;
  }
  return StepOutput{{flight.sampled.as<const int>(), flight.n_outputs},
                    {flight.logits.as<float>(), flight.n_logits},
                    {flight.hidden.as<const float>(), flight.n_hidden}};
}

std::span<const float> VulkanPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? kept_outputs_ : kept_tokens_;
  return std::span(kept_).subspan(room_->offset(v), n_rows * static_cast<size_t>(info.shape.elems()));
}

}  // namespace zinc::vulkan
