// Drafts tokens for speculative decoding. A verification step feeds a sequence's draft after its last token; the engine
// keeps the drafted tokens that it would have sampled itself. A wrong draft costs time and never changes an output.
// Engine thread only.
#pragma once

#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cache/kv_cache.h"
#include "engine/request.h"

namespace zinc {

// One sequence of the next step.
struct DraftQuery {
  RequestId id = 0;
  std::span<const TokenId> tokens = {};  // prompt and output; the last one has not been fed to the target model
  const SequenceCache* cache = nullptr;  // has pages for the last token and max_tokens further ones
  int max_length = 0;                    // of the sequence at its end
  int max_tokens = 0;
  std::vector<TokenId> draft = {};  // the result; may be shorter than max_tokens, or empty
};

// Tokens of one sequence that the target model was fed and that are part of the sequence: a prefill chunk, or the
// accepted rows of a verification step.
struct AcceptedRows {
  RequestId id = 0;
  const SequenceCache* cache = nullptr;
  int begin = 0;                         // position of the first token
  std::span<const TokenId> tokens = {};  // [n]
  std::span<const float> hidden = {};    // [n, dim]: the target model's hidden states, if needs_hidden()
};

// Times the rounds of a draft; each adds a token. The first one also feeds earlier tokens and does not count.
class RoundTimer {
 public:
  void end_round() {
    last_ = std::chrono::steady_clock::now();
    if (n_rounds_++ == 0) first_ = last_;
  }
  double seconds_per_round() const {  // 0: there was one at most
    return n_rounds_ < 2 ? 0 : std::chrono::duration<double>(last_ - first_).count() / (n_rounds_ - 1);
  }

 private:
  std::chrono::steady_clock::time_point first_, last_;
  int n_rounds_ = 0;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;  // "ngram"
  virtual bool needs_hidden() const { return false; }
  // Whether a draft is likely to exist, as far as that is known without computing it. The query's last token may be
  // older than the one it will draft after.
  virtual bool has_draft(const DraftQuery& query) {
    static_cast<void>(query);
    return true;
  }
  // Drafts for all sequences of a step at once.
  virtual Status draft(std::span<DraftQuery> queries) = 0;
  // Of the last draft(), per drafted token, without earlier tokens that it had to feed first; 0: not measured.
  virtual double seconds_per_token() const { return 0; }
  // After every step, for each of its sequences. A position may come again with another token: then the tokens from
  // there on are replaced (a preempted request that is resumed).
  virtual void observe(const AcceptedRows& rows) { static_cast<void>(rows); }
  // Before the sequence's pages are inserted into the prefix cache: writes what is still to be written to them.
  virtual void flush(RequestId id) { static_cast<void>(id); }
  virtual void remove(RequestId id) { static_cast<void>(id); }  // the sequence has ended or was preempted
};

}  // namespace zinc
