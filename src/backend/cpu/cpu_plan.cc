#include "backend/cpu/cpu_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/plan_rows.h"
#include "graph/memory_plan.h"

namespace zinc::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kCacheLineBytes = 64;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes of one token's q8 activations of n elements: quants, scales, sums over 16 and over 32.
size_t activation_bytes(size_t n, ActivationFormat format) {
  const size_t block = format == ActivationFormat::q8_blocks_of_32 ? 32 : 256;
  return round_up(n, kCacheLineBytes) + round_up((n + block - 1) / block * 4, kCacheLineBytes) +
         round_up(n / 16 * 2 + 2, kCacheLineBytes) + round_up(n / 32 * 2 + 4, kCacheLineBytes);
}

TokenActivation activation_at(std::byte* data, size_t n, ActivationFormat format) {
  const size_t block = format == ActivationFormat::q8_blocks_of_32 ? 32 : 256;
  TokenActivation activation;
  activation.q = reinterpret_cast<const int8_t*>(data);
  data += round_up(n, kCacheLineBytes);
  activation.scale = reinterpret_cast<const float*>(data);
  data += round_up((n + block - 1) / block * 4, kCacheLineBytes);
  activation.sum16 = reinterpret_cast<const int16_t*>(data);
  data += round_up(n / 16 * 2 + 2, kCacheLineBytes);
  activation.sum32 = reinterpret_cast<const int16_t*>(data);
  return activation;
}

}  // namespace

Result<std::unique_ptr<Plan>> CpuPlan::compile(const Graph& graph, const CpuWeights& weights, CpuCache& cache,
                                               const Kernels& kernels, ThreadPool& threads,
                                               AllocateBuffer allocate_buffer, const Bucket& bucket) {
  std::unique_ptr<CpuPlan> plan(new CpuPlan(graph, weights, cache, kernels, threads, allocate_buffer, bucket));
  if (Status s = plan->prepare(); !s.ok()) return s.error();
  return std::unique_ptr<Plan>(std::move(plan));
}

Status CpuPlan::prepare() {
  if (Status s = check_taps(); !s.ok()) return s;
  const MemoryPlan plan = plan_memory(graph_, bucket_.max_tokens, bucket_.max_outputs, bucket_.keep_values);
  const CpuPlan* const other = static_cast<const CpuPlan*>(bucket_.shares_memory_with);
  const size_t arena_bytes = std::max<size_t>(1, plan.n_elems) * sizeof(float);
  if (Status s = allocate_shared(arena_, other ? &other->arena_ : nullptr, arena_bytes, "activations"); !s.ok()) {
    return s;
  }
  for (int i = 0; i < graph_.n_values(); ++i) {
    const bool is_weight = graph_.info(Value{i}).is_weight();
    data_.push_back(is_weight ? nullptr : arena_->as<float>() + plan.offsets[static_cast<size_t>(i)]);
  }
  find_tail();
  bind();
  join_matmuls();
  scratch_.resize(static_cast<size_t>(threads_.n_threads()));
  if (Status s = reserve_activations(); !s.ok()) return s;
  if (Status s = reserve_attention(); !s.ok()) return s;
  const size_t n_tokens = static_cast<size_t>(bucket_.max_tokens);
  tokens_.reserve(n_tokens);
  seq_of_token_.reserve(n_tokens);
  tiles_.reserve(n_tokens);
  reserve_results();
  return ok_status();
}

// A step's result may have all outputs and all hidden states. Untouched, this memory is only reserved.
void CpuPlan::reserve_results() {
  const size_t n_tokens = static_cast<size_t>(bucket_.max_tokens), n_outputs = static_cast<size_t>(bucket_.max_outputs);
  for (StepResult& result : results_) {
    result.sampled.reserve(n_outputs);
    if (graph_.logits()) result.kept_logits.reserve(n_outputs * width(graph_.logits()));
    if (graph_.hidden()) result.hidden.reserve(n_tokens * width(graph_.hidden()));
  }
}

size_t CpuPlan::device_bytes() const {
  const auto bytes_of = [](const auto& vector) { return vector.capacity() * sizeof(vector[0]); };
  size_t n = own_shared_bytes_ + chunk_sums_.size() + bytes_of(data_) + bytes_of(bound_) + bytes_of(out_rows_) +
             bytes_of(sorted_pairs_) + bytes_of(expert_begin_) + bytes_of(active_experts_) +
             bytes_of(sorted_activations_) + bytes_of(sorted_outs_) + bytes_of(tiles_) + bytes_of(chunk_states_) +
             bytes_of(route_order_) + bytes_of(route_scores_) + bytes_of(tokens_) + bytes_of(seq_of_token_) +
             bytes_of(tail_.inputs);
  for (const BoundNode& bound : bound_) n += bytes_of(bound.joined) + bytes_of(bound.conv_weight);
  for (const RopeTable& table : rope_tables_) {
    n += bytes_of(table.cos) + bytes_of(table.sin);
    for (const RopeRotation& rotation : table.rotations) n += bytes_of(rotation.frequencies);
  }
  for (const ActivationSet& set : activation_sets_) n += bytes_of(set.activations);
  for (const ThreadScratch& scratch : scratch_) {
    n += scratch.row.size() + scratch.page.size() + scratch.total.size() + scratch.partial.size();
  }
  for (const StepResult& result : results_) {
    n += bytes_of(result.sampled) + bytes_of(result.kept_logits) + bytes_of(result.hidden);
  }
  return n;
}

Status CpuPlan::check_taps() const {
  for (const Node& n : graph_.nodes()) {
    if (n.op != Op::short_conv) continue;
    if (const size_t n_taps = width(n.in[1]) / width(n.in[0]); n_taps > kMaxTaps) {
      return fail(ErrorCode::unsupported, "the cpu backend's {} supports up to {} taps; this model has {}",
                  op_name(n.op), kMaxTaps, n_taps);
    }
  }
  return ok_status();
}

Status CpuPlan::allocate(AlignedBuffer& buffer, size_t n_bytes, std::string_view what) const {
  buffer = allocate_buffer_(n_bytes);
  if (buffer.size() == n_bytes) return ok_status();
  return fail(ErrorCode::out_of_memory,
              "out of memory: cannot allocate {} bytes for {}; use a smaller model, a shorter context or fewer "
              "concurrent requests",
              n_bytes, what);
}

Status CpuPlan::allocate_shared(std::shared_ptr<AlignedBuffer>& buffer, const std::shared_ptr<AlignedBuffer>* other,
                                size_t n_bytes, std::string_view what) {
  if (other && (*other)->size() >= n_bytes) {
    buffer = *other;
    return ok_status();
  }
  buffer = std::make_shared<AlignedBuffer>();
  own_shared_bytes_ += n_bytes;
  return allocate(*buffer, n_bytes, what);
}

void CpuPlan::bind() {
  for (const Node& n : graph_.nodes()) {
    BoundNode bound;
    bound.run = find_run(n.op);
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (!n.in[i] || !graph_.info(n.in[i]).is_weight()) continue;
      const std::string& name = graph_.info(n.in[i]).name;
      if (i == 1 && (n.op == Op::linear || n.op == Op::moe_linear)) {
        bound.matrix = weights_.matrix(name);
      } else {
        bound.vectors[i] = weights_.vector(name);
      }
    }
    if (n.op == Op::rope) {
      const auto factors = [&](size_t i) {
        return bound.vectors[i] ? std::span<const float>(*bound.vectors[i]) : std::span<const float>();
      };
      const RopeParams& params = n.as<RopeParams>();
      bound.rope_table =
          rope_table_for(params.pairs, rope_rotations(params, factors(1), factors(2), bucket_.n_rope_scalings));
    }
    if (n.op == Op::short_conv) {
      const std::vector<float>& by_channel = *bound.vectors[1];
      const size_t n_channels = width(n.in[0]), n_taps = by_channel.size() / n_channels;
      bound.conv_weight.resize(by_channel.size());
      for (size_t c = 0; c < n_channels; ++c) {
        for (size_t j = 0; j < n_taps; ++j) bound.conv_weight[j * n_channels + c] = by_channel[c * n_taps + j];
      }
    }
    bound_.push_back(std::move(bound));
  }
}

// Consecutive matmuls of one activation (q, k and v; gate and up) share one parallel loop. Views between them are
// no-ops.
void CpuPlan::join_matmuls() {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (node(i).op != Op::linear) continue;
    std::vector<size_t> joined;
    size_t last = i;
    for (size_t j = i; j < bound_.size(); ++j) {
      if (node(j).op == Op::view) continue;
      if (node(j).op != Op::linear || node(j).in[0].id != node(i).in[0].id) break;
      const auto same_memory = [&](size_t other) { return data(node(other).out[0]) == data(node(j).out[0]); };
      if (std::ranges::any_of(joined, same_memory)) break;  // the other result is never read, so its memory was reused
      joined.push_back(j);
      last = j;
    }
    bound_[i].computes.assign(joined.begin(), joined.end());
    bound_[i].joined = std::move(joined);
    i = last;
  }
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (node(i).op != Op::linear && node(i).op != Op::view) bound_[i].computes = {static_cast<int32_t>(i)};
  }
}

int CpuPlan::rope_table_for(RopePairs pairs, std::vector<RopeRotation> rotations) {
  for (size_t i = 0; i < rope_tables_.size(); ++i) {
    if (rope_tables_[i].pairs == pairs && rope_tables_[i].rotations == rotations) return static_cast<int>(i);
  }
  RopeTable table{.pairs = pairs, .rotations = std::move(rotations), .cos = {}, .sin = {}};
  table.cos.resize(table.n_pairs() * static_cast<size_t>(bucket_.max_tokens));
  table.sin.resize(table.cos.size());
  rope_tables_.push_back(std::move(table));
  return static_cast<int>(rope_tables_.size() - 1);
}

// Allocates the largest set of activations of each format, and the pairs of expert matmuls.
Status CpuPlan::reserve_activations() {
  std::array<size_t, 3> max_bytes{}, max_activations{};
  size_t max_pairs = 0, max_experts = 0, max_outs = 0, max_dequantized = 0;
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Node& n = node(i);
    if (n.op == Op::moe_route) max_experts = std::max(max_experts, width(n.in[0]));
    if (!bound_[i].matrix) continue;
    const size_t n_in = static_cast<size_t>(bound_[i].matrix->n_in);
    const size_t rows =
        static_cast<size_t>(graph_.info(n.in[0]).rows == Rows::outputs ? bucket_.max_outputs : bucket_.max_tokens);
    const size_t n_activations = rows * width(n.in[0]) / n_in;
    const ActivationFormat format = bound_[i].matrix->activation_format();
    const size_t k = static_cast<size_t>(format);
    if (!bound_[i].matrix->format) max_dequantized = std::max(max_dequantized, n_in);
    max_activations[k] = std::max(max_activations[k], n_activations);
    if (format != ActivationFormat::f32)
      max_bytes[k] = std::max(max_bytes[k], n_activations * activation_bytes(n_in, format));
    max_outs = std::max(max_outs, n_activations * bound_[i].joined.size());
    if (n.op == Op::moe_linear) max_pairs = std::max(max_pairs, rows * width(n.in[2]));
  }
  for (ThreadScratch& scratch : scratch_) {
    if (Status s = allocate(scratch.row, max_dequantized * sizeof(float), "a row of weights"); !s.ok()) return s;
  }
  for (size_t k = 0; k < activation_sets_.size(); ++k) {
    const CpuPlan* const other = static_cast<const CpuPlan*>(bucket_.shares_memory_with);
    const std::shared_ptr<AlignedBuffer>* const storage = other ? &other->activation_sets_[k].storage : nullptr;
    if (Status s = allocate_shared(activation_sets_[k].storage, storage, max_bytes[k], "quantized activations");
        !s.ok()) {
      return s;
    }
    activation_sets_[k].activations.resize(max_activations[k]);
  }
  out_rows_.resize(max_outs);
  sorted_pairs_.resize(max_pairs);
  sorted_activations_.resize(max_pairs);
  sorted_outs_.resize(max_pairs);
  expert_begin_.resize(max_experts + 1);
  active_experts_.reserve(max_experts);
  route_order_.resize(max_experts);
  route_scores_.resize(max_experts);
  return ok_status();
}

CpuPlan::Run CpuPlan::find_run(Op op) {
  static constexpr std::array<Run, kOpCount> kRuns = {
#define OP(name) &CpuPlan::run_##name,
#define UNARY_OP(name) &CpuPlan::run_unary,
#include "graph/op_list.h"
#undef OP
  };
  return kRuns[static_cast<size_t>(op)];
}

size_t CpuPlan::n_rows(Value v) const {
  return graph_.info(v).rows == Rows::outputs ? in_.output_rows.size() : n_token_rows_;
}

void CpuPlan::read_inputs(const StepInputs& inputs) {
  const size_t n_tokens = inputs.tokens.size(), n_seqs = inputs.slots.size();
  ZINC_CHECK(n_tokens > 0 && n_tokens <= static_cast<size_t>(bucket_.max_tokens));
  ZINC_CHECK(n_seqs > 0 && n_seqs <= static_cast<size_t>(bucket_.max_seqs) && inputs.seq_begin.size() == n_seqs + 1);
  ZINC_CHECK(inputs.output_rows.size() <= static_cast<size_t>(bucket_.max_outputs));
  ZINC_CHECK(n_started_ - n_waited_ < results_.size());
  check_row_slots(inputs);
  check_rope_scalings(inputs, bucket_.n_rope_scalings);
  in_ = inputs;
  n_token_rows_ = n_tokens;
  has_dropped_rows_ = false;
  tokens_.assign(inputs.tokens.begin(), inputs.tokens.end());
  seq_of_token_.resize(n_tokens);
  for (size_t s = 0; s < n_seqs; ++s) {
    for (size_t t = static_cast<size_t>(inputs.seq_begin[s]); t < static_cast<size_t>(inputs.seq_begin[s + 1]); ++t) {
      seq_of_token_[t] = static_cast<int32_t>(s);
      if (tokens_[t] == kFromDevice) tokens_[t] = cache_.last_sampled(inputs.slots[s]);
    }
  }
}

void CpuPlan::fill_rope_tables() {
  for (RopeTable& table : rope_tables_) {
    const size_t n_pairs = table.n_pairs();
    for (size_t t = 0; t < tokens_.size(); ++t) {
      const size_t scaling = in_.rope_scaling(static_cast<size_t>(seq_of_token_[t]));
      const RopeRotation& rotation = table.rotations[std::min(scaling, table.rotations.size() - 1)];
      for (size_t i = 0; i < n_pairs; ++i) {
        const double angle = in_.positions[t] * rotation.frequencies[i];
        table.cos[t * n_pairs + i] = static_cast<float>(std::cos(angle) * rotation.amplitude);
        table.sin[t * n_pairs + i] = static_cast<float>(std::sin(angle) * rotation.amplitude);
      }
    }
  }
}

void CpuPlan::start(const StepInputs& inputs) {
  const KernelTime::Time begin = bucket_.time_kernels ? Clock::now() : KernelTime::Time();
  if (n_waited_ < n_started_) save_logits(results_[n_waited_ % results_.size()]);
  read_inputs(inputs);
  fill_rope_tables();
  for (ActivationSet& set : activation_sets_) set.value_id = -1;
  if (!bucket_.time_kernels) {
    run_nodes();
    return store_result();
  }
  std::vector<KernelTime>& times = results_[n_started_ % results_.size()].kernel_times;
  times.clear();
  times.push_back({"inputs", {}, begin, Clock::now()});
  run_timed_nodes(times);
  store_result();
  times.push_back({"outputs", {}, times.back().end, Clock::now()});
}

void CpuPlan::run_nodes() {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (begin_node(i)) (this->*bound_[i].run)(i);
  }
}

bool CpuPlan::begin_node(size_t i) {
  if (i == tail_.begin && !in_.wants_hidden && !bucket_.keep_values) drop_rows();
  return n_rows(node(i).out[0]) > 0;
}

void CpuPlan::find_tail() {
  tail_ = output_tail(graph_);
  std::vector<float*> memory;
  std::erase_if(tail_.inputs, [&](Value v) {
    const bool is_view = std::ranges::find(memory, data(v)) != memory.end();
    memory.push_back(data(v));
    return is_view;
  });
}

// The rest of the graph is computed for the output rows only: they move to the front. output_rows is ascending.
void CpuPlan::drop_rows() {
  for (const Value v : tail_.inputs) {
    const size_t w = width(v);
    for (size_t r = 0; r < in_.output_rows.size(); ++r) {
      ZINC_DCHECK(static_cast<size_t>(in_.output_rows[r]) >= r);
      std::memmove(data(v) + r * w, data(v) + static_cast<size_t>(in_.output_rows[r]) * w, w * sizeof(float));
    }
  }
  for (ActivationSet& set : activation_sets_) set.value_id = -1;
  n_token_rows_ = in_.output_rows.size();
  has_dropped_rows_ = true;
}

// A node's time starts when the one before it has ended, so that the times add up to the step's.
void CpuPlan::run_timed_nodes(std::vector<KernelTime>& times) {
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (!begin_node(i)) continue;
    (this->*bound_[i].run)(i);
    if (bound_[i].computes.empty()) continue;  // a view, or a matmul that an earlier node computes
    times.push_back({op_name(node(i).op), bound_[i].computes, times.back().end, Clock::now()});
  }
}

void CpuPlan::store_result() {
  StepResult& result = results_[n_started_++ % results_.size()];
  const size_t n_outputs = in_.output_rows.size();
  result.sampled.clear();
  if (n_outputs > 0) {
    const int32_t* sampled = ids(graph_.nodes().back().out[0]);
    result.sampled.assign(sampled, sampled + n_outputs);
  }
  const size_t n_vocab = graph_.logits() ? width(graph_.logits()) : 0;
  if (n_outputs > 0 && in_.logit_rows.size() == n_outputs) {
    result.logits = {data(graph_.logits()), n_outputs * n_vocab};
  } else {
    result.kept_logits.clear();
    for (const int32_t r : in_.logit_rows) {
      const float* row = data(graph_.logits()) + static_cast<size_t>(r) * n_vocab;
      result.kept_logits.insert(result.kept_logits.end(), row, row + n_vocab);
    }
    result.logits = result.kept_logits;
  }
  result.hidden.clear();
  if (in_.wants_hidden) {
    const float* hidden = data(graph_.hidden());
    result.hidden.assign(hidden, hidden + tokens_.size() * width(graph_.hidden()));
  }
  for (size_t r = 0; r < n_outputs; ++r) {
    const size_t seq = static_cast<size_t>(seq_of_token_[static_cast<size_t>(in_.output_rows[r])]);
    cache_.last_sampled(in_.slots[seq]) = result.sampled[r];
  }
}

// Copies the logits out of the arena before the next step overwrites them.
void CpuPlan::save_logits(StepResult& result) {
  if (result.logits.data() == result.kept_logits.data()) return;
  result.kept_logits.assign(result.logits.begin(), result.logits.end());
  result.logits = result.kept_logits;
}

Result<StepOutput> CpuPlan::wait() {
  ZINC_CHECK(n_waited_ < n_started_);
  const StepResult& result = results_[n_waited_++ % results_.size()];
  return StepOutput{result.sampled, result.logits, result.hidden};
}

std::span<const KernelTime> CpuPlan::kernel_times() const {
  ZINC_CHECK(bucket_.time_kernels && n_waited_ > 0);
  return results_[(n_waited_ - 1) % results_.size()].kernel_times;
}

std::span<const float> CpuPlan::value(Value v) const {
  ZINC_CHECK(bucket_.keep_values && v && !graph_.info(v).is_weight());
  return {data(v), n_rows(v) * width(v)};
}

// The activations of a matmul, by token. Consecutive matmuls of the same activation (q, k and v) quantize it once.
std::span<const TokenActivation> CpuPlan::activations_of(Value x, ActivationFormat format, size_t n_in) {
  ActivationSet& set = activation_sets_[static_cast<size_t>(format)];
  const size_t n = n_rows(x) * width(x) / n_in;
  if (set.value_id == x.id && set.n_in == n_in) return {set.activations.data(), n};
  set.value_id = x.id;
  set.n_in = n_in;
  const float* rows = data(x);
  if (format == ActivationFormat::f32) {
    for (size_t i = 0; i < n; ++i) set.activations[i] = TokenActivation{.f32 = rows + i * n_in};
    return {set.activations.data(), n};
  }
  const size_t stride = activation_bytes(n_in, format);
  for_each_row(n, [&](size_t i) {
    const TokenActivation activation = activation_at(set.storage->data() + i * stride, n_in, format);
    kernels_.quantize(rows + i * n_in, n_in, format, const_cast<int8_t*>(activation.q),
                      const_cast<float*>(activation.scale), const_cast<int16_t*>(activation.sum16),
                      const_cast<int16_t*>(activation.sum32));
    set.activations[i] = activation;
  });
  return {set.activations.data(), n};
}

}  // namespace zinc::cpu
