#include "engine/speculation_bench.h"

#include <algorithm>
#include <chrono>

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

struct RecordedSequence : RequestSink {
  void progress(const PromptProgress&) override {}
  void tokens(std::string_view, std::span<const OutputToken> more) override {
    for (const OutputToken& token : more) ids.push_back(token.id);
  }
  void end(const Outcome& what) override { outcome = what; }

  std::vector<TokenId> ids;
  std::optional<Outcome> outcome;
};

}  // namespace

std::string SpeculationTest::name() const {
  return fmt::format("pp{} tg{} b{} a{:.2g}", n_prompt, n_gen, n_sequences, acceptance);
}

Result<SpeculationBench> SpeculationBench::prepare(ModelInstance model, std::span<const SpeculationTest> tests,
                                                   SpeculationOptions speculation, std::function<bool()> cancelled) {
  EngineOptions options{.max_sequences = 1, .step_tokens = model.backend_info().step_tokens};
  for (const SpeculationTest& test : tests) {
    options.max_sequences = std::max(options.max_sequences, test.n_sequences);
    options.context = std::max(options.context, test.n_prompt + test.n_gen + 1);
  }
  options.queue_limit = options.max_sequences;
  // A mode with a model drafter: the forced one takes its place where there is none.
  if (speculation.mode != SpeculationMode::mtp) speculation.mode = SpeculationMode::draft;
  auto drafts = std::make_shared<ForcedDrafts>();
  drafts->n_vocab = static_cast<int>(model.model().config.vocab_size);
  speculation.replace_drafter = [drafts](std::unique_ptr<Drafter> timed) {
    return std::make_unique<ForcedDrafter>(std::move(timed), drafts);
  };
  options.speculation = std::move(speculation);
  ZINC_TRY(engine, Engine::create(std::move(model), options));
  if (Status prepared = engine->wait_until_prepared(); !prepared.ok()) return prepared.error();
  return SpeculationBench(std::move(engine), std::move(drafts), std::move(cancelled));
}

Result<SpeculationBench::Run> SpeculationBench::run(const SpeculationTest& test,
                                                    std::span<const std::vector<TokenId>> prompts,
                                                    std::optional<SpeculationMode> mode) {
  std::vector<std::shared_ptr<RecordedSequence>> sequences;
  for (const std::vector<TokenId>& prompt : prompts) {
    sequences.push_back(std::make_shared<RecordedSequence>());
    Request request{.prompt = prompt, .speculation = mode, .sink = sequences.back()};
    request.options.sampling.temperature = 0;
    request.options.max_tokens = test.n_gen;
    request.options.ignore_eos = true;
    ZINC_TRY(id, engine_->submit(std::move(request)));
    static_cast<void>(id);
  }
  const auto has_started = [](const auto& sequence) { return !sequence->ids.empty(); };
  const auto has_ended = [](const auto& sequence) { return sequence->outcome.has_value(); };
  std::optional<Clock::time_point> start;
  while (!std::ranges::all_of(sequences, has_ended)) {
    if (cancelled_ && cancelled_()) return fail(ErrorCode::cancelled, "interrupted");
    engine_->step();
    if (!start && std::ranges::all_of(sequences, has_started)) start = Clock::now();
  }
  Run done{.seconds = std::chrono::duration<double>(Clock::now() - start.value_or(Clock::now())).count()};
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (const std::optional<Error>& error = sequences[i]->outcome->error) return *error;
    done.sequences.push_back(prompts[i]);
    done.sequences.back().insert(done.sequences.back().end(), sequences[i]->ids.begin(), sequences[i]->ids.end());
  }
  return done;
}

Result<SpeculationTimes> SpeculationBench::measure(const SpeculationTest& test) {
  const auto n_vocab = static_cast<unsigned>(engine_->limits().n_vocab);
  std::vector<std::vector<TokenId>> prompts(static_cast<size_t>(test.n_sequences));
  for (std::vector<TokenId>& prompt : prompts) {
    prompt.resize(static_cast<size_t>(test.n_prompt));
    for (TokenId& token : prompt) token = static_cast<TokenId>(random_() % n_vocab);
  }
  ZINC_TRY(plain, run(test, prompts, SpeculationMode::off));
  drafts_->sequences = plain.sequences;
  drafts_->acceptance = test.acceptance;
  const SpeculationStats before = engine_->stats().speculation;
  ZINC_TRY(drafted, run(test, prompts, std::nullopt));
  const SpeculationStats after = engine_->stats().speculation;
  if (!after.error.empty()) return fail(ErrorCode::unavailable, "{}", after.error);
  if (drafted.sequences != plain.sequences) {
    return fail(ErrorCode::unavailable, "{}: the output with drafts differs from the one without", test.name());
  }
  return SpeculationTimes{.plain_s = plain.seconds,
                          .drafted_s = drafted.seconds,
                          .n_drafted = after.n_drafted_tokens - before.n_drafted_tokens,
                          .n_accepted = after.n_accepted_tokens - before.n_accepted_tokens};
}

}  // namespace zinc
