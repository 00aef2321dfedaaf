#include "backend/cuda/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zinc::cuda {
namespace {

// Grids are made for the largest numbers of a class, and blocks without work end at once. Ascending.
std::vector<StepClass> step_classes(const Bucket& bucket) {
  std::vector<StepClass> classes;
  for (const int n : {1, 4, 8, 32, 128, 512, bucket.max_tokens}) {
    if (n > bucket.max_tokens || (!classes.empty() && n <= classes.back().max_tokens)) continue;
    classes.push_back({n, 1});
    if (const int all = std::min(n, bucket.max_outputs); all > 1) classes.push_back({n, all});
  }
  return classes;
}

void fill_draw(const TokenDraw& draw, int* to) {
  const bool is_greedy = draw.temperature <= kGreedyTemperature;
  const uint64_t share = std::bit_cast<uint64_t>(draw.share);
  to[simt::kInvTemperature] = std::bit_cast<int>(is_greedy ? 0.0f : 1.0f / draw.temperature);
  to[simt::kTopK] = draw.top_k;
  to[simt::kTopP] = std::bit_cast<int>(draw.top_p);
  to[simt::kLogMinP] = std::bit_cast<int>(std::log(draw.min_p));  // of 0: minus infinity, which cuts nothing
  to[simt::kShareLow] = static_cast<int>(share);
  to[simt::kShareHigh] = static_cast<int>(share >> 32);
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
  ZINC_TRY(room, Room::take(graph_, weights, cache_, device_, bucket_));
  room_ = std::move(room);
  std::vector<KernelProgram> programs;
  for (const StepClass& sizes : step_classes(bucket_)) {
    ZINC_TRY(more, Lowering(graph_, weights, cache_, device_, *room_, sizes).programs());
    programs.insert(programs.end(), more.begin(), more.end());
  }
  if (Status s = device_.load_programs(programs); !s.ok()) return s;
  for (const StepClass& sizes : step_classes(bucket_)) {
    ZINC_TRY(launches, Lowering(graph_, weights, cache_, device_, *room_, sizes).run());
    ZINC_TRY(exec, device_.capture(launches));
    variants_.push_back({sizes, exec});
  }
  for (Flight& flight : flights_) {
    if (Status s = prepare_flight(flight); !s.ok()) return s;
  }
  return device_.wait();
}

Status CudaPlan::prepare_flight(Flight& flight) {
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  if (Status s = grow(flight.upload, room_->layout().n_ints * sizeof(int)); !s.ok()) return s;
  if (Status s = grow(flight.sampled, n_outputs * sizeof(int)); !s.ok()) return s;
  if (Status s = grow(flight.logits, vocab * sizeof(float)); !s.ok()) return s;  // one row; more when first asked for
  return device_.check(device_.api().create_event(&flight.done, 0), "making an event");
}

CudaPlan::~CudaPlan() {
  [[maybe_unused]] Status done = device_.make_current();
  done = device_.wait();
  for (const Variant& variant : variants_) device_.api().destroy_exec(variant.exec);
  for (const Flight& flight : flights_) {
    if (flight.done) device_.api().destroy_event(flight.done);
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
  ZINC_CHECK(in.draws.empty() || (in.draws.size() == in.output_rows.size() && in.draws.size() <= n_seqs));
  ZINC_CHECK(n_started_ - n_waited_ < flights_.size());
}

size_t CudaPlan::fill_upload(const StepInputs& in, int* to) const {
  const UploadLayout& at = room_->layout();
  const size_t n_seqs = in.slots.size();
  to[simt::kTokens] = static_cast<int>(in.tokens.size());
  to[simt::kSeqs] = static_cast<int>(n_seqs);
  to[simt::kOutputs] = static_cast<int>(in.output_rows.size());
  to[simt::kDraws] = static_cast<int>(in.draws.size());
  for (size_t i = 0; i < in.draws.size(); ++i) fill_draw(in.draws[i], to + at.draws + i * simt::kDrawInts);
  std::ranges::copy(in.tokens, to + at.tokens);
  std::ranges::copy(in.positions, to + at.positions);
  std::ranges::copy(in.seq_begin, to + at.seq_begin);
  std::ranges::copy(in.slots, to + at.slots);
  std::ranges::copy(in.output_rows, to + at.output_rows);
  for (size_t s = 0; s < n_seqs; ++s) {
    std::fill(to + at.seq_of_token + in.seq_begin[s], to + at.seq_of_token + in.seq_begin[s + 1], static_cast<int>(s));
  }
  // Of each page table only the columns the step reads or writes.
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
    to[simt::kStride + static_cast<int>(g)] = stride;
    to[simt::kEntries + static_cast<int>(g)] = static_cast<int>(end);
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
  return end;
}

const CudaPlan::Variant& CudaPlan::variant_for(size_t n_tokens, size_t n_outputs) const {
  for (const Variant& variant : variants_) {  // the smaller ones come first
    if (n_tokens <= static_cast<size_t>(variant.sizes.max_tokens) &&
        n_outputs <= static_cast<size_t>(variant.sizes.max_outputs)) {
      return variant;
    }
  }
  ZINC_CHECK(false);
  return variants_.back();
}

Status CudaPlan::queue(const StepInputs& in, Flight& flight) {
  if (cache_.failed_copy()) return *cache_.failed_copy();
  if (Status s = device_.make_current(); !s.ok()) return s;
  if (Status s = reserve_outputs(in, flight); !s.ok()) return s;
  const size_t n_ints = fill_upload(in, flight.upload.as<int>());
  if (Status s = device_.copy_in(room_->upload().address(), flight.upload.as<int>(), n_ints * sizeof(int)); !s.ok()) {
    return s;
  }
  if (room_->hidden_in().size() > 0) {
    const size_t n_bytes = in.hidden.size_bytes();
    ZINC_CHECK(n_bytes * static_cast<size_t>(bucket_.max_tokens) == room_->hidden_in().size() * in.tokens.size());
    std::memcpy(flight.hidden_in.as<float>(), in.hidden.data(), n_bytes);
    if (Status s = device_.copy_in(room_->hidden_in().address(), flight.hidden_in.as<float>(), n_bytes); !s.ok()) {
      return s;
    }
  }
  const Variant& variant = variant_for(in.tokens.size(), in.output_rows.size());
  if (Status s = device_.check(device_.api().launch_graph(variant.exec, device_.stream()), "starting a step");
      !s.ok()) {
    return s;
  }
  return queue_outputs(in, flight);
}

// Before anything is begun: a step that there is no memory for leaves nothing behind.
Status CudaPlan::reserve_outputs(const StepInputs& in, Flight& flight) const {
  flight.n_tokens = in.tokens.size();
  flight.n_outputs = in.output_rows.size();
  flight.n_logits = flight.n_hidden = 0;
  if (!in.logit_rows.empty()) {
    flight.n_logits = static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) * in.logit_rows.size();
  }
  if (in.wants_hidden) {
    ZINC_CHECK(bool(graph_.hidden()));
    flight.n_hidden = flight.n_tokens * static_cast<size_t>(graph_.info(graph_.hidden()).shape.elems());
  }
  if (Status s = grow(flight.hidden_in, in.hidden.size_bytes()); !s.ok()) return s;
  if (Status s = grow(flight.logits, flight.n_logits * sizeof(float)); !s.ok()) return s;
  return grow(flight.hidden, flight.n_hidden * sizeof(float));
}

Status CudaPlan::queue_outputs(const StepInputs& in, Flight& flight) {
  if (flight.n_outputs > 0) {
    const size_t n_bytes = flight.n_outputs * sizeof(int);
    if (Status s = device_.copy_out(flight.sampled.as<int>(), room_->sampled().address(), n_bytes); !s.ok()) return s;
  }
  if (!in.logit_rows.empty()) {
    const size_t vocab = flight.n_logits / in.logit_rows.size();
    for (size_t i = 0; i < in.logit_rows.size();) {  // neighbouring rows in one copy
      size_t n = 1;
      while (i + n < in.logit_rows.size() && in.logit_rows[i + n] == in.logit_rows[i] + static_cast<int>(n)) ++n;
      const float* from = room_->floats(graph_.logits()) + static_cast<size_t>(in.logit_rows[i]) * vocab;
      if (Status s = device_.copy_out(flight.logits.as<float>() + i * vocab, reinterpret_cast<DevicePointer>(from),
                                      n * vocab * sizeof(float));
          !s.ok()) {
        return s;
      }
      i += n;
    }
  }
  if (in.wants_hidden) {
    const DevicePointer from = reinterpret_cast<DevicePointer>(room_->floats(graph_.hidden()));
    const size_t n_bytes = flight.n_hidden * sizeof(float);
    if (Status s = device_.copy_out(flight.hidden.as<float>(), from, n_bytes); !s.ok()) return s;
  }
  return device_.check(device_.api().record_event(flight.done, device_.stream()), "ending a step");
}

void CudaPlan::start(const StepInputs& inputs) {
  check(inputs);
  Flight& flight = flights_[n_started_++ % flights_.size()];
  flight.error.reset();
  if (error_) return;
  const Status queued = queue(inputs, flight);
  if (queued.ok()) return;
  flight.error = queued.error();
  if (queued.error().code == ErrorCode::device_lost) error_ = queued.error();
}

Result<StepOutput> CudaPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const Flight& flight = flights_[n_waited_++ % flights_.size()];
  if (error_) return *error_;
  if (flight.error) return *flight.error;
  if (Status s = device_.check(device_.api().synchronize_event(flight.done), "a step"); !s.ok()) {
    error_ = s.error();
    return *error_;
  }
  if (bucket_.keep_values) {
    kept_.resize(room_->arena().size() / sizeof(float));
    if (Status s = device_.copy_out(kept_.data(), room_->arena().address(), room_->arena().size()); !s.ok()) {
      return s.error();
    }
    if (Status s = device_.wait(); !s.ok()) return s.error();
    kept_tokens_ = flight.n_tokens;
    kept_outputs_ = flight.n_outputs;
  }
  return StepOutput{{flight.sampled.as<const int>(), flight.n_outputs},
                    {flight.logits.as<float>(), flight.n_logits},
                    {flight.hidden.as<const float>(), flight.n_hidden}};
}

std::span<const float> CudaPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  const ValueInfo& info = graph_.info(v);
  const size_t n_rows = info.rows == Rows::outputs ? kept_outputs_ : kept_tokens_;
  return std::span(kept_).subspan(room_->plan().offsets[static_cast<size_t>(v.id)],
                                  n_rows * static_cast<size_t>(info.shape.elems()));
}

}  // namespace zinc::cuda
