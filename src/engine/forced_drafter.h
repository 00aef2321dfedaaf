// Drafts with a chosen acceptance, for benchmarks and tests: the tokens are those of known outputs, each one right with
// a given probability. Another drafter, if there is one, drafts first: its time is part of the measurement.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "engine/drafter.h"

namespace zinc {

struct ForcedDrafts {
  std::vector<std::vector<TokenId>> sequences = {};  // prompt and output
  double acceptance = 1;
  int n_vocab = 0;
};

class ForcedDrafter : public Drafter {
 public:
  ForcedDrafter(std::unique_ptr<Drafter> timed, std::shared_ptr<const ForcedDrafts> drafts)
      : timed_(std::move(timed)), drafts_(std::move(drafts)) {}

  std::string_view name() const override { return timed_ ? timed_->name() : "known outputs"; }
  double seconds_per_token() const override { return timed_ ? timed_->seconds_per_token() : 0; }
  bool needs_hidden() const override { return timed_ && timed_->needs_hidden(); }
  Status draft(std::span<DraftQuery> queries) override;
  void observe(const AcceptedRows& rows) override {
    if (timed_) timed_->observe(rows);
  }
  void flush(RequestId id) override {
    if (timed_) timed_->flush(id);
  }
  void remove(RequestId id) override {
    if (timed_) timed_->remove(id);
  }

 private:
  std::unique_ptr<Drafter> timed_;  // nullptr: none
  std::shared_ptr<const ForcedDrafts> drafts_;
  std::mt19937 random_{1};
};

}  // namespace zinc
