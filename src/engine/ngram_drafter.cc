#include "engine/ngram_drafter.h"

#include <algorithm>

namespace zinc {
namespace {

// Tokens that one call adds to each index of a sequence: a long prompt or prediction is spread over several steps.
constexpr size_t kMaxIndexedTokens = 4096;

void extend(NgramIndex& index, std::span<const TokenId> tokens) {
  const std::span<const TokenId> unindexed = tokens.subspan(index.size());
  index.append(unindexed.first(std::min(unindexed.size(), kMaxIndexedTokens)));
}

}  // namespace

void NgramDrafter::set_prediction(RequestId id, int prompt_size, std::span<const TokenId> prediction) {
  Sequence& sequence = sequences_[id];
  sequence.prompt_size = static_cast<size_t>(prompt_size);
  sequence.predicted.assign(prediction.begin(), prediction.end());
}

// An output that is still too short for a match is compared with the start of the prediction. Later the output usually
// goes on where it matched before.
NgramDrafter::Match NgramDrafter::find(Sequence& sequence, std::span<const TokenId> tokens) {
  extend(sequence.tokens, tokens);
  extend(sequence.prediction, sequence.predicted);
  const NgramIndex& prediction = sequence.prediction;
  if (prediction.size() > 0) {
    const std::span<const TokenId> output = tokens.subspan(sequence.prompt_size);
    if (output.size() < NgramIndex::kNgramTokens) {
      size_t n = 0;
      while (n < output.size() && n < prediction.size() && output[n] == prediction[n]) ++n;
      if (n == output.size() && n < prediction.size()) return {&prediction, n};
    } else {
      const size_t expected = sequence.n_predicted + (output.size() - sequence.n_output);
      const int64_t at =
          prediction.matches(output, expected) ? static_cast<int64_t>(expected) : prediction.find(output, expected);
      if (at >= 0) {
        sequence.n_predicted = static_cast<size_t>(at);
        sequence.n_output = output.size();
        return {&prediction, static_cast<size_t>(at)};
      }
    }
  }
  const int64_t at = sequence.tokens.find(tokens, tokens.size());
  return at >= 0 ? Match{&sequence.tokens, static_cast<size_t>(at)} : Match{};
}

bool NgramDrafter::has_draft(const DraftQuery& query) {
  return find(sequences_[query.id], query.tokens).index != nullptr;
}

// A repetition that reaches the end of the sequence goes on with the drafted tokens.
Status NgramDrafter::draft(std::span<DraftQuery> queries) {
  for (DraftQuery& query : queries) {
    const Match match = find(sequences_[query.id], query.tokens);
    if (match.index == nullptr) continue;
    const NgramIndex& index = *match.index;
    const bool repeats = &index == &sequences_[query.id].tokens && index.size() == query.tokens.size();
    for (size_t i = match.at; query.draft.size() < static_cast<size_t>(query.max_tokens); ++i) {
      if (i < index.size()) {
        query.draft.push_back(index[i]);
      } else if (repeats) {
        query.draft.push_back(query.draft[i - index.size()]);
      } else {
        break;
      }
    }
  }
  return ok_status();
}

}  // namespace zinc
