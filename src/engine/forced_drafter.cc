#include "engine/forced_drafter.h"

#include <algorithm>

namespace zinc {

// After the end of a known output the tokens are arbitrary.
Status ForcedDrafter::draft(std::span<DraftQuery> queries) {
  if (timed_) {
    if (Status drafted = timed_->draft(queries); !drafted.ok()) return drafted;
  }
  std::uniform_real_distribution<double> uniform;
  for (DraftQuery& query : queries) {
    query.draft.clear();
    const auto known = std::ranges::find_if(drafts_->sequences, [&](std::span<const TokenId> sequence) {
      return sequence.size() >= query.tokens.size() &&
             std::ranges::equal(sequence.first(query.tokens.size()), query.tokens);
    });
    for (size_t i = query.tokens.size(); query.draft.size() < static_cast<size_t>(query.max_tokens); ++i) {
      const TokenId right = known != drafts_->sequences.end() && i < known->size() ? (*known)[i] : 0;
      query.draft.push_back(uniform(random_) < drafts_->acceptance ? right : (right + 1) % drafts_->n_vocab);
    }
  }
  return ok_status();
}

}  // namespace zinc
