// One sequence with a cache of its own: tokens in, logits out. The single-user way to run a model; it uses the same
// steps and plans as a server would, with one sequence per step and pages in order.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/token_id.h"
#include "engine/model_instance.h"

namespace zinc {

struct SequenceOptions {
  int context = 0;          // positions; 0: as many as the model was trained for, at most kDefaultContext
  int chunk_tokens = 128;   // prompt tokens per step: enough that weights are read seldom, few enough to stop soon
  bool all_logits = false;  // feed_with_all_logits is going to be called
  bool keep_values = false;
};
inline constexpr int kDefaultContext = 4096;

class Sequence {
 public:
  // The model must outlive the sequence. Fails if the caches do not fit the memory limit.
  static Result<Sequence> create(const ModelInstance& model, const SequenceOptions& options);

  // Feeds tokens after those fed before. The result is the logits after the last of them, the caller's until the next
  // call.
  // REQUIRES: tokens not empty and in the vocabulary. Fails if they exceed the context; then nothing is fed.
  // `cancelled` is asked between steps; where it says so, the result is an ErrorCode::cancelled.
  Result<std::span<float>> feed(std::span<const TokenId> tokens, const std::function<bool()>& cancelled = {});
  // The same, with the logits after every token, row after row. REQUIRES: SequenceOptions::all_logits.
  Result<std::vector<float>> feed_with_all_logits(std::span<const TokenId> tokens);

  // Whether the device draws tokens by itself; else it finds the most likely ones.
  bool draws_tokens() const { return model_->backend_info().draws_tokens; }
  // Feeds tokens like feed(), but no logits leave the device: it chooses the token behind them, as `draw` says, for
  // follow() to go on from. REQUIRES: draws_tokens().
  Status feed_and_draw(std::span<const TokenId> tokens, const TokenDraw& draw,
                       const std::function<bool()>& cancelled = {});

  // How the k-th token behind those fed is chosen, counted from 0.
  using DrawAt = std::function<TokenDraw(int k)>;
  // Gives up to n tokens behind those fed to `take` as they come, until that says no: first the one that the last step
  // chose, then those of further steps, the most likely ones or as `draw_at` says. Each goes into the next step on the
  // device: no logits leave it, and two steps are under way while a token is looked at. The last token given is not
  // fed; but recurrent states are up to two tokens ahead where `take` said no. REQUIRES: something was fed, the last
  // thing by feed() or feed_and_draw() where `take` said no before; draws_tokens() for draw_at.
  // Fails if n - 1 tokens exceed the room; then nothing is fed. Fails where no logit can be chosen.
  Status follow(int n, const std::function<bool(TokenId)>& take, const DrawAt& draw_at = {});

  // The next token fed takes `position`; before it stand the keys and values last fed there. Recurrent states and
  // layers with a window go back only to the start: at any other position the former stay as they are and the latter
  // see what was fed last, which is enough for measuring speed. REQUIRES: every position before it has been fed.
  void move_to(int position);

  // What it takes beside the model, once it is full: caches; values of a step.
  size_t cache_bytes() const { return cache_bytes_; }
  size_t activation_bytes() const { return activation_bytes_; }

  int position() const { return position_; }  // tokens fed
  int context() const { return context_; }
  const Plan& plan() const { return *plan_; }

 private:
  Sequence() = default;
  Status check_room(size_t n_tokens) const;
  enum class Logits { none, last, all };
  void start(std::span<const TokenId> tokens, Logits logits, const TokenDraw* draw = nullptr);
  Result<StepOutput> step(std::span<const TokenId> tokens, Logits logits, const TokenDraw* draw = nullptr);
  Result<StepOutput> finish_step();

  const ModelInstance* model_ = nullptr;
  int context_ = 0, chunk_tokens_ = 0, position_ = 0;
  int n_filled_ = 0;  // positions ever fed
  TokenId next_ = 0;  // after the last of them, as the device chose it
  size_t cache_bytes_ = 0, activation_bytes_ = 0;
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
  std::vector<std::vector<PageId>> pages_;  // per group: 0, 1, 2, ... and, where it has a window, from 0 on again
  std::vector<PageTable> page_tables_;
  std::vector<int32_t> positions_, output_rows_, logit_rows_;  // of the step
};

}  // namespace zinc
