// Serving in tests: an engine on one of our own model files, sinks that remember what they were told, and the same
// answer made the plain way, by one sequence with a cache of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"

namespace zinc {

// What a request came to. Written by the engine thread; read once n_ends is 1.
struct Told : RequestSink {
  void progress(const PromptProgress& at) override { last_progress = at; }
  void tokens(std::string_view piece, std::span<const AnswerToken> more) override {
    text += piece;
    made.insert(made.end(), more.begin(), more.end());
    if (n_ends > 0) ++n_after_end;
  }
  void end(const Outcome& what) override {
    outcome = what;
    ++n_ends;
  }

  std::string text;
  std::vector<AnswerToken> made;
  PromptProgress last_progress;
  Outcome outcome;
  int n_ends = 0, n_after_end = 0;
};

struct ServedFile {
  std::string_view name;  // of tests/data/oracle/models, or "tiny " and one of tests/support/tiny_model.h
  std::string_view kv_format = "f16";
  std::string_view backend = "cpu";
  int n_threads = 1;
};
ModelInstance load_model(const ServedFile& file);
std::unique_ptr<Engine> make_engine(const ServedFile& file, const EngineOptions& options);

// Random tokens of the engine's vocabulary that are no end tokens.
std::vector<TokenId> draw_tokens(const Tokenizer& tokenizer, size_t n, uint32_t seed);

AnswerOptions greedy(int max_tokens);  // with the log-probabilities of the five likeliest, end tokens ignored

std::shared_ptr<Told> submit(Engine& engine, Request request);  // REQUIRES: it is taken
void run_all(Engine& engine);                                   // until there is nothing to do
int pages_in_use(const Engine& engine);                         // of all groups, held by running requests

// The answer to a request from a cold start; what an engine must give whoever else is served.
Told answer_alone(const ModelInstance& model, const Request& request, int context);

// Whether two answers are the same to the last bit: tokens, log-probabilities, text, reason.
bool same_answer(const Told& a, const Told& b);

}  // namespace zinc
