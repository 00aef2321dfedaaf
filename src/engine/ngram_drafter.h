// Prompt lookup: drafts the tokens that followed an earlier occurrence of the sequence's last tokens, in the sequence
// itself or in the predicted output that the request came with. Runs on the host, in microseconds.
#pragma once

#include <map>

#include "engine/drafter.h"
#include "engine/ngram_index.h"

namespace zinc {

class NgramDrafter : public Drafter {
 public:
  std::string_view name() const override { return "ngram"; }
  // The output that the request expects; searched before the sequence itself. REQUIRES: before the first draft.
  void set_prediction(RequestId id, int prompt_size, std::span<const TokenId> prediction);
  bool has_draft(const DraftQuery& query) override;
  Status draft(std::span<DraftQuery> queries) override;
  void remove(RequestId id) override { sequences_.erase(id); }

 private:
  struct Sequence {
    NgramIndex tokens;               // prompt and output
    std::vector<TokenId> predicted;  // the prediction; empty: none
    NgramIndex prediction;           // its first tokens, more with every call
    size_t prompt_size = 0;
    size_t n_predicted = 0;  // tokens of the prediction up to the end of the last match
    size_t n_output = 0;     // tokens of the output then
  };
  struct Match {
    const NgramIndex* index = nullptr;  // nullptr: none
    size_t at = 0;                      // of the first drafted token
  };
  Match find(Sequence& sequence, std::span<const TokenId> tokens);

  std::map<RequestId, Sequence> sequences_;
};

}  // namespace zinc
