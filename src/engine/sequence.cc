#include "engine/sequence.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/format_memory.h"
#include "cache/cache_plan.h"
#include "sample/sampler.h"

namespace zinc {

namespace {

struct SequenceSizes {
  int context = 0, chunk_tokens = 0;
  CacheSizes cache;
  Bucket bucket;
};

SequenceSizes sizes_of(const ModelInstance& instance, const SequenceOptions& options) {
  const Model& model = instance.model();
  SequenceSizes sizes;
  sizes.context = options.context > 0 ? options.context
                                      : static_cast<int>(std::min<int64_t>(model.config.max_context, kDefaultContext));
  sizes.chunk_tokens = std::min(options.chunk_tokens, sizes.context);
  for (const PageGroup& group : page_groups(model.caches)) {
    sizes.cache.n_pages.push_back(group.window > 0 ? window_pages(group.window, sizes.chunk_tokens, sizes.context)
                                                   : pages_of(sizes.context));
  }
  sizes.cache.max_length = sizes.context;
  sizes.cache.kv_format = &instance.kv_format();
  sizes.bucket = {.max_tokens = sizes.chunk_tokens,
                  .max_seqs = 1,
                  .max_outputs = options.all_logits ? sizes.chunk_tokens : 1,
                  .keep_values = options.keep_values,
                  .time_kernels = options.trace.trace ? options.trace.time_kernels : options.time_kernels};
  return sizes;
}

// The largest context that fits, in steps of a page; 0: none.
int largest_context(const ModelInstance& model, SequenceOptions options) {
  const auto fits = [&](int n_pages) {
    options.context = n_pages * kPageTokens;
    const SequenceSizes sizes = sizes_of(model, options);
    const Result<ModelMemory> memory = measure_memory(model, sizes.cache, sizes.bucket);
    return memory.ok() && memory.value().bytes() <= model.memory_limit();
  };
  int fitting = 0, too_large = pages_of(options.context);
  while (too_large - fitting > 1) {
    const int middle = fitting + (too_large - fitting) / 2;
    (fits(middle) ? fitting : too_large) = middle;
  }
  return fitting * kPageTokens;
}

}  // namespace

Result<ModelMemory> Sequence::measure(const ModelInstance& model, const SequenceOptions& options) {
  const SequenceSizes sizes = sizes_of(model, options);
  ZINC_TRY(memory, measure_memory(model, sizes.cache, sizes.bucket));
  if (memory.bytes() <= model.memory_limit()) return memory;
  SequenceOptions smaller = options;
  smaller.context = sizes.context;
  const int64_t fitting = std::min<int64_t>(largest_context(model, smaller), model.model().config.max_context);
  return fail(ErrorCode::out_of_memory, "a context of {} tokens needs {}, but only {} is available{}; {}",
              sizes.context, memory_text(memory), format_memory(model.memory_limit()), model.device_text(),
              fitting > 0 ? fmt::format("use a smaller context: -c {} fits", fitting)
                          : "use a smaller model or a smaller quantization");
}

Result<Sequence> Sequence::create(const ModelInstance& instance, const SequenceOptions& options) {
  if (const Result<ModelMemory> memory = measure(instance, options); !memory.ok()) return memory.error();
  const SequenceSizes sizes = sizes_of(instance, options);
  const Model& model = instance.model();
  Sequence sequence;
  sequence.model_ = &instance;
  sequence.context_ = sizes.context;
  sequence.chunk_tokens_ = sizes.chunk_tokens;
  ZINC_TRY(cache, instance.backend().allocate_cache(model.caches, sizes.cache));
  sequence.cache_ = std::move(cache);
  if (options.trace.trace) sequence.trace_ = std::make_unique<StepTrace>(options.trace, model.graph);
  ZINC_TRY(plan, instance.backend().compile(model.graph, instance.weights(), *sequence.cache_, sizes.bucket));
  sequence.plan_ = std::move(plan);
  for (const int n : sizes.cache.n_pages) {
    std::vector<PageId>& pages = sequence.pages_.emplace_back(static_cast<size_t>(pages_of(sequence.context_)));
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<PageId>(i) % n;
    sequence.page_tables_.push_back({pages, pages_of(sequence.context_)});
  }
  return sequence;
}

Status Sequence::check_context(size_t n_tokens) const {
  const size_t n_free = static_cast<size_t>(context_ - position_);
  if (n_tokens <= n_free) return ok_status();
  const int64_t trained = model_->model().config.max_context;
  return fail(ErrorCode::invalid_input,
              "{} tokens do not fit in the context of {} tokens, {} of which are used; use {}a shorter prompt",
              n_tokens, context_, position_,
              context_ < trained ? fmt::format("a larger context with -c (at most {}) or ", trained) : "");
}

void Sequence::move_to(int position) {
  ZINC_CHECK(position >= 0 && position <= n_filled_);
  position_ = position;
}

void Sequence::start(std::span<const TokenId> tokens, Logits logits, const DeviceSampling* sampling) {
  const int32_t n = static_cast<int32_t>(tokens.size());
  positions_.resize(tokens.size());
  std::iota(positions_.begin(), positions_.end(), position_);
  output_rows_.resize(logits == Logits::all ? tokens.size() : 1);
  std::iota(output_rows_.begin(), output_rows_.end(), logits == Logits::all ? 0 : n - 1);
  logit_rows_.resize(logits == Logits::none ? 0 : output_rows_.size());
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
  const std::array<int32_t, 2> seq_begin = {0, n};
  const std::array<int32_t, 1> slots = {0};
  if (trace_) in_flight_.push_back({Trace::Clock::now(), n});
  plan_->start({.tokens = tokens,
                .positions = positions_,
                .seq_begin = seq_begin,
                .slots = slots,
                .page_tables = page_tables_,
                .output_rows = output_rows_,
                .sampling = {sampling, sampling ? 1u : 0u},
                .logit_rows = logit_rows_,
                .hidden = {}});
  if (trace_) trace_->add_host_work("upload and launch", in_flight_.back().started, Trace::Clock::now());
  position_ += n;
  n_filled_ = std::max(n_filled_, position_);
}

Result<StepOutput> Sequence::wait_for_step() {
  if (!trace_) return plan_->wait();
  const Trace::Time waited = Trace::Clock::now();
  Result<StepOutput> output = plan_->wait();
  const Trace::Time done = Trace::Clock::now();
  trace_->add_host_work("wait", waited, done);
  const StartedStep step = in_flight_.front();
  in_flight_.pop_front();
  const Trace::Time begin = std::max(step.started, last_done_);  // two steps may be in flight
  last_done_ = done;
  const bool has_kernels = output.ok() && trace_->times_kernels();
  trace_->add_step({.number = ++n_traced_, .n_tokens = step.n_tokens, .begin = begin, .end = done},
                   has_kernels ? plan_->kernel_times() : std::span<const KernelTime>());
  return output;
}

Result<StepOutput> Sequence::finish_step() {
  Result<StepOutput> output = wait_for_step();
  if (!output.ok()) return output;
  next_ = output.value().sampled.back();
  if (next_ >= 0) return output;
  return no_finite_logit(static_cast<uint64_t>(position_), static_cast<size_t>(model_->model().config.vocab_size));
}

Result<StepOutput> Sequence::step(std::span<const TokenId> tokens, Logits logits, const DeviceSampling* sampling) {
  start(tokens, logits, sampling);
  return finish_step();
}

Status Sequence::decode_on_device(int n, const std::function<bool(TokenId)>& on_token, const SamplingAt& sampling_at) {
  if (n <= 0) return ok_status();
  if (Status fits = check_context(static_cast<size_t>(n - 1)); !fits.ok()) return fits;
  constexpr int kInFlight = 2;
  const TokenId from_device = kFromDevice;
  const int first = position_;
  int n_given = 0, n_started = 0, n_waited = 0;
  Status failed = ok_status();
  while (true) {
    for (; n_started < std::min(n - 1, n_waited + kInFlight); ++n_started) {
      const DeviceSampling sampling = sampling_at ? sampling_at(n_started + 1) : DeviceSampling{};
      start({&from_device, 1}, Logits::none, sampling_at ? &sampling : nullptr);
    }
    const bool goes_on = on_token(next_);
    if (++n_given == n || !goes_on) break;
    const Result<StepOutput> output = finish_step();
    ++n_waited;
    if (!output.ok()) {
      failed = output.error();
      break;
    }
  }
  for (; n_waited < n_started; ++n_waited) {
    if (const Result<StepOutput> output = wait_for_step(); failed.ok() && !output.ok()) failed = output.error();
  }
  position_ = first + n_given - 1;
  return failed;
}

// Two chunks are in flight: a GPU does not wait for the host between them. Returns the output of the last one.
Result<StepOutput> Sequence::prefill(std::span<const TokenId> tokens, Logits logits, const DeviceSampling* sampling,
                                     const std::function<bool()>& cancelled) {
  if (Status fits = check_context(tokens.size()); !fits.ok()) return fits.error();
  constexpr int kInFlight = 2;
  int n_in_flight = 0;
  Result<StepOutput> output = StepOutput();
  const auto finish_oldest = [&] {
    Result<StepOutput> oldest = finish_step();
    --n_in_flight;
    if (output.ok()) output = std::move(oldest);
  };
  while (!tokens.empty() && output.ok()) {
    if (n_in_flight == kInFlight) {
      finish_oldest();
    } else if (cancelled && cancelled()) {
      output = fail(ErrorCode::cancelled, "cancelled during prefill");
    } else {
      const size_t n = std::min(tokens.size(), static_cast<size_t>(chunk_tokens_));
      start(tokens.first(n), logits, sampling);
      ++n_in_flight;
      tokens = tokens.subspan(n);
    }
  }
  while (n_in_flight > 0) finish_oldest();
  return output;
}

Status Sequence::feed_and_sample(std::span<const TokenId> tokens, const DeviceSampling& sampling,
                                 const std::function<bool()>& cancelled) {
  const Result<StepOutput> output = prefill(tokens, Logits::none, &sampling, cancelled);
  return output.ok() ? ok_status() : Status(output.error());
}

Result<std::span<float>> Sequence::feed(std::span<const TokenId> tokens, const std::function<bool()>& cancelled) {
  ZINC_TRY(output, prefill(tokens, Logits::last, nullptr, cancelled));
  return output.logits;
}

Result<std::vector<float>> Sequence::feed_with_all_logits(std::span<const TokenId> tokens) {
  if (Status fits = check_context(tokens.size()); !fits.ok()) return fits.error();
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk_tokens_)) {
    const size_t n = std::min(tokens.size() - begin, static_cast<size_t>(chunk_tokens_));
    ZINC_TRY(output, step(tokens.subspan(begin, n), Logits::all));
    logits.insert(logits.end(), output.logits.begin(), output.logits.end());
  }
  return logits;
}

}  // namespace zinc
