// One sequence with its own KV cache: tokens in, logits out. The single-user way to run a model; it uses the same steps
// and plans as the engine, with one sequence per step and pages in order.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/token_id.h"
#include "engine/model_memory.h"
#include "engine/step_trace.h"

namespace zinc {

struct SequenceOptions {
  int context = 0;          // positions; 0: the model's training context, at most kDefaultContext
  int chunk_tokens = 128;   // prompt tokens per step: enough to amortize reading the weights, few enough to cancel soon
  bool all_logits = false;  // feed_with_all_logits will be called
  bool keep_values = false;
  bool time_kernels = false;  // Plan::kernel_times() of plan(); implied by `trace`
  TraceOptions trace = {};
};
inline constexpr int kDefaultContext = 4096;

class Sequence {
 public:
  Sequence(Sequence&&) = default;
  Sequence& operator=(Sequence&&) = delete;  // would destroy the cache before the plan that uses it
  // Memory of the model and a sequence. out_of_memory: it does not fit the memory limit; the message has the numbers
  // and a context that would fit.
  static Result<ModelMemory> measure(const ModelInstance& model, const SequenceOptions& options);
  // The model must outlive the sequence. Fails if measure() does. REQUIRES: the model is uploaded.
  static Result<Sequence> create(const ModelInstance& model, const SequenceOptions& options);

  // Feeds tokens after those fed before. Returns the logits after the last one; the caller may change them until the
  // next call.
  // REQUIRES: tokens not empty and in the vocabulary. Fails if they exceed the context; then nothing is fed.
  // `cancelled` is polled between steps; if it returns true, the result is an ErrorCode::cancelled.
  Result<std::span<float>> feed(std::span<const TokenId> tokens, const std::function<bool()>& cancelled = {});
  // The same, with the logits after every token, row by row. REQUIRES: SequenceOptions::all_logits.
  Result<std::vector<float>> feed_with_all_logits(std::span<const TokenId> tokens);

  // Whether the device samples; otherwise it only finds the most likely token.
  bool can_sample_on_device() const { return model_->backend_info().can_sample_on_device; }
  // Feeds tokens like feed(), but copies no logits to the host: the device samples the next token with `sampling`, and
  // decode_on_device() continues from it. REQUIRES: can_sample_on_device().
  Status feed_and_sample(std::span<const TokenId> tokens, const DeviceSampling& sampling,
                         const std::function<bool()>& cancelled = {});

  // Sampling parameters of the k-th token after those fed, counted from 0.
  using SamplingAt = std::function<DeviceSampling(int k)>;
  // Decodes up to n tokens and passes each to `on_token`, until it returns false: first the token sampled by the last
  // step, then those of further steps, greedy or sampled with `sampling_at`. Each token is fed to the next step on the
  // device: no logits are copied to the host, and two steps are in flight while a token is processed. The last token
  // passed is not fed; but recurrent states are up to two tokens ahead if `on_token` returned false. REQUIRES: tokens
  // were fed, by feed() or feed_and_sample() if `on_token` returned false before; can_sample_on_device() for
  // sampling_at. Fails if n - 1 tokens exceed the context; then nothing is fed. Fails if no logit is finite.
  Status decode_on_device(int n, const std::function<bool(TokenId)>& on_token, const SamplingAt& sampling_at = {});

  // Rewinds to `position` and keeps the cached tokens before it. Recurrent states and sliding windows can only return
  // to position 0: elsewhere the states keep their value and the windows see the last fed tokens. That is enough for
  // measuring speed. REQUIRES: every position before it has been fed.
  void move_to(int position);

  // Memory besides the model, once the context is full: KV cache and states; activations and workspaces.
  size_t cache_bytes() const { return cache_->device_bytes(); }
  size_t activation_bytes() const { return plan_->device_bytes(); }

  // Waits until the plan is prepared for steps of all sizes, before a measurement.
  Status wait_until_prepared() { return plan_->wait_until_prepared(); }

  int position() const { return position_; }  // tokens fed
  int context() const { return context_; }
  const Plan& plan() const { return *plan_; }

 private:
  Sequence() = default;
  Status check_context(size_t n_tokens) const;
  enum class Logits { none, last, all };
  void start(std::span<const TokenId> tokens, Logits logits, const DeviceSampling* sampling = nullptr);
  Result<StepOutput> step(std::span<const TokenId> tokens, Logits logits, const DeviceSampling* sampling = nullptr);
  Result<StepOutput> prefill(std::span<const TokenId> tokens, Logits logits, const DeviceSampling* sampling,
                             const std::function<bool()>& cancelled);
  Result<StepOutput> finish_step();
  Result<StepOutput> wait_for_step();

  const ModelInstance* model_ = nullptr;
  int context_ = 0, chunk_tokens_ = 0, position_ = 0;
  int n_filled_ = 0;  // positions ever fed
  TokenId next_ = 0;  // the token sampled after the last one
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
  std::vector<std::vector<PageId>> pages_;  // per group: 0, 1, 2, ...; wraps around for groups with a window
  std::vector<PageTable> page_tables_;
  std::vector<int32_t> positions_, output_rows_, logit_rows_;  // of the step
  struct StartedStep {
    Trace::Time started;
    int n_tokens = 0;
  };
  std::unique_ptr<StepTrace> trace_;   // nullptr: off
  std::deque<StartedStep> in_flight_;  // with a trace
  uint64_t n_traced_ = 0;
  Trace::Time last_done_;
};

}  // namespace zinc
