// The engine under load, without a network: what 64 streams at once give together beside one alone, and how long the
// longest pause of running streams is while a prompt of thousands of tokens arrives. Usage: serving_bench MODEL.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "engine/engine.h"

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

struct Stamps : RequestSink {
  void progress(const PromptProgress&) override {}
  void tokens(std::string_view, std::span<const AnswerToken>) override { at.push_back(Clock::now()); }
  void end(const Outcome& what) override {
    outcome = what;
    has_ended = true;
  }
  std::vector<Clock::time_point> at;
  Outcome outcome;
  bool has_ended = false;
};

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::shared_ptr<Stamps> ask(Engine& engine, size_t n_prompt, int max_tokens, std::mt19937& random) {
  auto stamps = std::make_shared<Stamps>();
  Request request;
  for (size_t i = 0; i < n_prompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(engine.limits().n_vocab)));
  }
  request.answer.sampling.temperature = 0;
  request.answer.max_tokens = max_tokens;
  request.answer.ignore_eos = true;
  request.sink = stamps;
  const Result<RequestId> id = engine.submit(std::move(request));
  if (!id.ok()) {
    fmt::print(stderr, "{}\n", id.error().message);
    std::exit(1);
  }
  return stamps;
}

// Tokens per second of n streams, all of them decoding.
double throughput(Engine& engine, int n_streams, std::mt19937& random) {
  constexpr int kTokens = 32;
  std::vector<std::shared_ptr<Stamps>> all;
  for (int i = 0; i < n_streams; ++i) all.push_back(ask(engine, 16, kTokens, random));
  while (std::ranges::any_of(all, [](const auto& s) { return s->at.empty(); })) engine.step();
  size_t n_before = 0;
  for (const auto& s : all) n_before += s->at.size();
  const Clock::time_point start = Clock::now();
  while (engine.step()) {
  }
  const double elapsed = seconds(Clock::now() - start);
  size_t n_after = 0;
  for (const auto& s : all) n_after += s->at.size();
  return static_cast<double>(n_after - n_before) / elapsed;
}

void measure_gaps(Engine& engine, int n_streams, size_t n_prompt, std::mt19937& random) {
  std::vector<std::shared_ptr<Stamps>> all;
  for (int i = 0; i < n_streams; ++i) all.push_back(ask(engine, 16, engine.limits().context - 16, random));
  while (all.front()->at.size() < 40) engine.step();
  const size_t n_before = all.front()->at.size();
  const std::shared_ptr<Stamps> prompt = ask(engine, n_prompt, 4, random);
  while (!prompt->has_ended && !all.front()->has_ended) engine.step();
  const std::vector<Clock::time_point>& at = all.front()->at;
  std::vector<double> plain, loaded;
  for (size_t i = 1; i < at.size(); ++i) (i < n_before ? plain : loaded).push_back(seconds(at[i] - at[i - 1]));
  std::ranges::sort(plain);
  std::ranges::sort(loaded);
  const double median = plain[plain.size() / 2];
  fmt::print(
      "{:2} streams, a prompt of {} arrives: plain step {:.1f} ms (largest {:.1f}); while it is read median {:.1f} ms, "
      "99 % {:.1f} ms, largest {:.1f} ms = {:.2f} plain steps; prompt read in {:.2f} s\n",
      n_streams, n_prompt, 1e3 * median, 1e3 * plain.back(), 1e3 * loaded[loaded.size() / 2],
      1e3 * loaded[loaded.size() * 99 / 100], 1e3 * loaded.back(), loaded.back() / median,
      prompt->outcome.timings.prefill_s);
}

int run(const char* path) {
  Result<ModelInstance> model = ModelInstance::load(path, {});
  if (!model.ok()) {
    fmt::print(stderr, "{}\n", model.error().message);
    return 1;
  }
  Result<std::unique_ptr<Engine>> made =
      Engine::create(std::move(model.value()), {.max_sequences = 64, .cache_bytes = size_t{2} << 30});
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", made.error().message);
    return 1;
  }
  Engine& engine = *made.value();
  fmt::print("context {}, cache {} MiB\n", engine.limits().context, engine.limits().cache_bytes >> 20);
  std::mt19937 random(1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  throughput(engine, 8, random);  // wakes the processor
  const double one = throughput(engine, 1, random);
  for (const int n : {8, 64}) {
    const double many = throughput(engine, n, random);
    fmt::print("{:2} streams: {:.1f} tokens/s, {:.2f} times one stream's {:.1f}\n", n, many, many / one, one);
  }
  const size_t n_prompt = std::min<size_t>(8000, static_cast<size_t>(engine.limits().context) - 8);
  for (const int n : {16, 1}) {
    std::unique_ptr<Engine> fresh;
    Result<ModelInstance> again = ModelInstance::load(path, {});
    fresh = std::move(
        Engine::create(std::move(again.value()), {.max_sequences = 64, .cache_bytes = size_t{2} << 30}).value());
    measure_gaps(*fresh, n, n_prompt, random);
  }
  return 0;
}

}  // namespace
}  // namespace zinc

int main(int argc, char** argv) {
  if (argc == 2) return zinc::run(argv[1]);
  fmt::print(stderr, "usage: serving_bench MODEL\n");
  return 2;
}
