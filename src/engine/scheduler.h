// Chooses the sequences of the next step (continuous batching with chunked prefill): one row for each decoding request,
// then prompt tokens within the prefill token budget, split equally among clients. Long prompts have a smaller budget
// than short ones, which therefore do not wait for them. A request waits, prefills, decodes, and is removed; a
// preempted one waits and prefills again. Admission is fair by client: fewest running requests first, then least
// service. Plain data: no device, no clock, no memory; engine thread only.
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/prefill_budget.h"
#include "engine/request.h"

namespace zinc {

struct SchedulerLimits {
  int max_sequences = 1 << 20;       // requests that run at the same time, at most
  int step_tokens = 512;             // prompt tokens per step, at most
  int max_outputs = 1 << 20;         // output rows per step, at most; at least one per running request
  double max_decode_slowdown = 1.8;  // see PrefillBudget
  int scan_chunk_tokens = 1;         // see PromptSplit; at most step_tokens
  int tail_chunk_tokens = 0;         // see PromptSplit; divides scan_chunk_tokens; 0: as many

  int tail_chunk() const { return tail_chunk_tokens > 0 ? tail_chunk_tokens : scan_chunk_tokens; }
};

// How a prompt is split into prefill chunks. Where the recurrent scan processes whole scan chunks differently from
// single tokens, these positions decide which of them it gets, and so the bits of the result.
struct PromptSplit {
  std::vector<int> chunk_ends = {};  // ascending positions where a chunk has to end
  // A chunk that begins before it ends at a multiple of SchedulerLimits::scan_chunk_tokens, or behind it. A multiple of
  // that itself.
  int aligned_end = 0;
  // The same with tail_chunk_tokens, behind aligned_end.
  int tail_end = 0;
};

// One sequence's tokens in a step: a prefill chunk, or its last token and a draft after it.
struct ScheduledSequence {
  RequestId id = 0;
  int begin = 0, n_tokens = 0;
  bool samples_token = false;  // a decode row, or the last chunk of the prompt
};

enum class PromptOutput : uint8_t { last_token, all_tokens };  // the tokens of a prompt whose logits are wanted

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits)
      : limits_(limits), prefill_budget_(limits.step_tokens, limits.max_decode_slowdown) {}

  void enqueue(RequestId id, const std::string& client);
  std::vector<RequestId> admission_order() const;
  // `max_length`: positions it may use. REQUIRES: waiting, n_cached < n_prompt; n_cached is behind split.aligned_end or
  // a multiple of scan_chunk_tokens, as are the chunk ends before it.
  void admit(RequestId id, int n_prompt, int n_cached, PromptSplit split,
             PromptOutput output = PromptOutput::last_token, int max_length = std::numeric_limits<int>::max());
  // The last admitted request waits again, where it was in its client's queue: before all that arrived after it.
  // Never the oldest one, so that there is progress. REQUIRES: n_running() > 1, no step is in flight.
  RequestId preempt_youngest();
  void remove(RequestId id);  // in any state; no effect if unknown

  // The next step, decode rows first; empty: nothing to do. Valid until the next call. It continues after the tokens of
  // the step in flight, if there is one.
  std::span<const ScheduledSequence> schedule_step();
  // Whether the step after the one in flight may be started before that one has ended: no request waits longer for it
  // than for the steps of others anyway. REQUIRES: a step is in flight.
  bool may_schedule_ahead() const;
  // That step; empty also if its prompts wait for the time of a decode-only step: the one in flight may be it.
  std::span<const ScheduledSequence> schedule_ahead();
  // Adds drafted tokens to a decode row of the scheduled step.
  void add_draft(RequestId id, int n_tokens);
  // After the step: these last tokens of the request are not part of its sequence.
  void reject_draft(RequestId id, int n_tokens);
  // The step scheduled last. Valid until the next call of schedule_step().
  std::span<const ScheduledSequence> scheduled() const { return step_; }
  void start_step();                   // the scheduled step was started
  void complete_step(double seconds);  // the oldest step that was started

  bool is_full() const { return n_running() == limits_.max_sequences; }
  int n_waiting() const;
  int n_running() const { return static_cast<int>(running_.size()); }
  int n_prefilling() const;
  int n_decoding() const { return n_running() - n_prefilling(); }

 private:
  struct Running {
    RequestId id;
    std::string client;
    int n_prompt, n_cached, n_fed;  // n_fed: with the tokens of steps in flight
    PromptSplit split;
    PromptOutput output;
    int max_length;
    bool was_passed_over = false;  // no token of its prompt was in the last step

    int n_new() const { return n_prompt - n_cached; }
    bool is_prefilling() const { return n_fed < n_prompt; }
    int n_until_chunk_end() const;
  };
  struct Client {
    double service = 0;             // tokens computed for it; a new client starts at the minimum of the others
    std::deque<RequestId> waiting;  // ascending
    int n_running = 0;
    int n_overtaken = 0;  // requests that are newer than its oldest waiting one and were admitted first
  };
  // A prompt and its tokens in the next step.
  struct Chunk {
    const Running* request;
    PromptLength length;
    int n_tokens = 0;
  };
  std::vector<Chunk> next_chunks() const;
  void fill_chunks(std::span<Chunk> chunks, int n_decode) const;
  static int split_among_clients(std::span<Chunk> chunks, PromptLength length, int n_tokens);
  void limit_outputs(std::span<Chunk> chunks) const;
  int alignment_at(const Running& request, int position) const;
  void align_chunks(std::span<Chunk> chunks) const;
  void update_overtaken(RequestId by);
  void erase_if_idle(const std::string& client);

  SchedulerLimits limits_;
  PrefillBudget prefill_budget_;
  std::map<std::string, Client> clients_;
  std::deque<Running> running_;               // in order of admission
  bool last_admitted_was_overtaken_ = false;  // by kMaxOvertaken
  std::vector<ScheduledSequence> step_;
  std::deque<StepLoad> in_flight_;  // of the steps that were started, oldest first
  double prefill_token_s_ = 0;      // per prompt token, of the last step with many; 0: none yet
};

}  // namespace zinc
