#include "engine/draft_model.h"

#include <algorithm>

#include "base/pluralize.h"
#include "base/sanitize_for_terminal.h"
#include "engine/engine_memory.h"
#include "engine/token_difference.h"
#include "graph/rope.h"

namespace zinc {
namespace {

std::string special_text(const std::optional<TokenId>& id) { return id ? fmt::format("token {}", *id) : "no token"; }

// The first difference of two vocabularies; empty: none. The words "draft" and "target" name the models.
std::string vocabulary_difference(const Tokenizer& draft, const Tokenizer& target) {
  if (std::string difference = token_difference(draft, target); !difference.empty()) return difference;
  for (TokenId id = 0; id < target.n_vocab(); ++id) {
    if (draft.is_control(id) == target.is_control(id)) continue;
    return fmt::format("token {}, '{}', is a control token in only one of them", id,
                       sanitize_for_terminal(target.bytes(id)));
  }
  if (draft.bos() != target.bos()) {
    return fmt::format("its BOS is {}, the model's is {}", special_text(draft.bos()), special_text(target.bos()));
  }
  if (draft.eos() != target.eos()) {
    return fmt::format("its EOS is {}, the model's is {}", special_text(draft.eos()), special_text(target.eos()));
  }
  return "";
}

size_t n_common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

Status check_draft_model(const ModelInstance& draft, const ModelInstance& target) {
  const std::string& name = draft.file().name();
  if (state_bytes(draft.model().caches) > 0) {
    return fail(ErrorCode::unsupported,
                "{}: a model with recurrent layers ({}) cannot be a draft model, because its states cannot return to "
                "the last accepted token; use a model with attention in every layer",
                name, draft.model().architecture->gguf_name);
  }
  ZINC_TRY(draft_tokens, Tokenizer::load(draft.file()));
  ZINC_TRY(target_tokens, Tokenizer::load(target.file()));
  std::string difference = vocabulary_difference(draft_tokens, target_tokens);
  const int64_t n_draft = draft.model().config.vocab_size, n_target = target.model().config.vocab_size;
  if (difference.empty() && n_draft != n_target) {
    difference = fmt::format("it has {} logits, the model {}", n_draft, n_target);
  }
  if (difference.empty()) return ok_status();
  return fail(ErrorCode::unsupported,
              "{}: a draft model must have the vocabulary of the model, but {}; use a smaller model of the same family",
              name, difference);
}

Result<std::unique_ptr<DraftModelDrafter>> DraftModelDrafter::create(ModelInstance model,
                                                                     const DraftModelOptions& options) {
  ZINC_CHECK(state_bytes(model.model().caches) == 0);
  if (Status s = model.upload(); !s.ok()) return s.error();
  std::unique_ptr<DraftModelDrafter> drafter(new DraftModelDrafter(std::move(model), options));
  const ModelInstance& instance = drafter->model_;
  ZINC_TRY(cache, KvCache::create(instance.backend(), instance.model().caches,
                                  {.sizes = options.cache,
                                   .max_chunk_tokens = options.max_chunk_tokens,
                                   .n_sequences = options.step.max_seqs}));
  drafter->cache_ = std::move(cache);
  drafter->arrays_.fill(StepArrays(drafter->cache_->windows().size()));
  const Graph& graph = instance.model().graph;
  drafter->rope_contexts_ = rope_contexts(graph, options.cache.max_length);
  ZINC_TRY(plan, instance.backend().compile(graph, instance.weights(), drafter->cache_->memory(),
                                            with_rope_scalings(options.step, graph, options.cache.max_length)));
  drafter->plan_ = std::move(plan);
  return drafter;
}

DraftModelDrafter::~DraftModelDrafter() = default;

// Admitted at its first draft, and again if tokens before the last draft have changed: the pages behind a window are
// gone. nullptr: its pages do not fit now.
DraftModelDrafter::DraftSequence* DraftModelDrafter::find_or_admit(const DraftQuery& query) {
  const std::span<const TokenId> before_last = query.tokens.first(query.tokens.size() - 1);
  if (const auto found = sequences_.find(query.id); found != sequences_.end()) {
    DraftSequence& sequence = found->second;
    const int n_shared = static_cast<int>(n_common(sequence.fed, before_last));
    if (n_shared >= sequence.cache.n_tokens) {
      sequence.cache.n_tokens = n_shared;
      return &sequence;
    }
    cache_->release(std::move(sequence.cache));
    sequences_.erase(found);
  }
  const int rope_scaling = rope_scaling_for(rope_contexts_, query.max_length);  // may be another than the target's
  std::optional<Admission> admission = cache_->admit(query.tokens, static_cast<int>(before_last.size()),
                                                     with_rope_scaling(query.cache->cache_namespace, rope_scaling));
  if (!admission) return nullptr;
  SequenceCache cache = std::move(admission->sequence);
  cache.cache_share = query.cache->cache_share;
  cache.rope_scaling = rope_scaling;
  const std::span<const TokenId> cached = before_last.first(static_cast<size_t>(cache.n_tokens));
  DraftSequence& sequence = sequences_[query.id];
  sequence = {std::move(cache), {cached.begin(), cached.end()}};
  return &sequence;
}

// Sequences with the fewest new tokens first: prompts get what those that only continue leave of the step.
std::vector<DraftModelDrafter::Entry> DraftModelDrafter::schedule(std::span<DraftQuery> queries) {
  std::vector<Entry> entries;
  for (DraftQuery& query : queries) {
    query.draft.clear();
    const bool fits = std::ssize(query.tokens) <= options_.cache.max_length;
    if (query.max_tokens <= 0 || query.tokens.empty() || !fits) continue;
    DraftSequence* const sequence = find_or_admit(query);
    if (!sequence) continue;
    entries.push_back({&query, sequence, static_cast<int>(query.tokens.size()) - sequence->cache.n_tokens});
  }
  std::ranges::stable_sort(entries, {}, &Entry::n_new);
  int n_left = options_.step.max_tokens;
  for (Entry& entry : entries) {
    const int begin = entry.sequence->cache.n_tokens, max_chunk = options_.max_chunk_tokens;
    const int n_rows = std::min({entry.n_new, max_chunk, n_left});
    // The rows of drafted tokens, but the last, are fed too.
    const int n_free = std::min(max_chunk, options_.cache.max_length - begin) - entry.n_new;
    const int n_drafted = n_rows == entry.n_new ? std::min(entry.query->max_tokens, n_free + 1) : 0;
    if (n_rows == 0 || !cache_->grow(entry.sequence->cache, begin + n_rows + std::max(0, n_drafted - 1))) continue;
    entry.n_fed = n_rows;
    entry.n_drafted = n_drafted;
    n_left -= n_rows;
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.n_fed == 0; });
  return entries;
}

// Round 0 feeds what the cache lacks, round r the drafted token r - 1, which is on the device.
void DraftModelDrafter::start_step(std::span<const Entry> entries, int round) {
  StepArrays& arrays = arrays_[static_cast<size_t>(round) % arrays_.size()];
  arrays.clear();
  for (const Entry& entry : entries) {
    const SequenceCache& cache = entry.sequence->cache;
    const TokenId from_device = kFromDevice;
    if (round == 0) {
      const std::span<const TokenId> tokens = entry.query->tokens;
      arrays.add(cache, cache.n_tokens,
                 tokens.subspan(static_cast<size_t>(cache.n_tokens), static_cast<size_t>(entry.n_fed)));
    } else if (round < entry.n_drafted) {
      arrays.add(cache, cache.n_tokens + entry.n_fed + round - 1, {&from_device, 1});
    }
    if (round < entry.n_drafted) arrays.request_greedy_token();
  }
  plan_->start(arrays.inputs());
}

// Two steps are in flight: the device does not wait for the host between them.
Status DraftModelDrafter::run_rounds(std::span<const Entry> entries) {
  int n_rounds = 1;
  for (const Entry& entry : entries) n_rounds = std::max(n_rounds, entry.n_drafted);
  Status failed = ok_status();
  RoundTimer timer;
  start_step(entries, 0);
  for (int round = 0, n_started = 1; round < n_started; ++round) {
    if (failed.ok() && n_started < n_rounds) start_step(entries, n_started++);
    const Result<StepOutput> output = plan_->wait();
    timer.end_round();
    if (!output.ok()) {
      if (failed.ok()) failed = output.error();
      continue;
    }
    size_t row = 0;
    for (const Entry& entry : entries) {
      if (round < entry.n_drafted) entry.query->draft.push_back(output.value().sampled[row++]);
    }
  }
  seconds_per_token_ = timer.seconds_per_round();
  return failed;
}

Status DraftModelDrafter::draft(std::span<DraftQuery> queries) {
  const std::vector<Entry> entries = schedule(queries);
  if (entries.empty()) return ok_status();
  const Status done = run_rounds(entries);
  for (const Entry& entry : entries) {
    std::vector<TokenId>&fed = entry.sequence->fed, &draft = entry.query->draft;
    const std::span<const TokenId> tokens = entry.query->tokens;
    fed.resize(static_cast<size_t>(entry.sequence->cache.n_tokens));
    if (!done.ok()) {
      draft.clear();
      continue;
    }
    const auto first_new = tokens.begin() + entry.sequence->cache.n_tokens;
    fed.insert(fed.end(), first_new, first_new + entry.n_fed);
    if (!draft.empty()) fed.insert(fed.end(), draft.begin(), draft.end() - 1);
    draft.erase(std::ranges::find_if(draft, [](TokenId id) { return id < 0; }), draft.end());  // no finite logit
    cache_->prefault_pages(entry.n_fed);
  }
  return done;
}

void DraftModelDrafter::remove(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  DraftSequence& sequence = found->second;
  const std::span<const TokenId> shared = std::span(sequence.fed).first(static_cast<size_t>(sequence.cache.n_tokens));
  cache_->finish(std::move(sequence.cache), shared);
  sequences_.erase(found);
}

}  // namespace zinc
