#include "tests/support/serving.h"

#include <algorithm>
#include <random>

#include "base/atomic_file.h"
#include "engine/model_runner.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_model.h"

namespace zinc {

namespace {

// Tiny models have no vocabulary of their own.
GgufWriter tiny_vocabulary() {
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < kTinyVocabulary; ++i) tokens.push_back(fmt::format("t{}", i));
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2").add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{});
  return writer;
}

}  // namespace

std::filesystem::path model_path(std::string_view name) {
  constexpr std::string_view kTiny = "tiny ";
  if (!name.starts_with(kTiny)) {
    return std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/oracle/models" / fmt::format("{}.gguf", name);
  }
  TinyModel model = tiny_model(name.substr(kTiny.size()));
  std::ranges::find(model.metadata, "context_length", &TinyKey::name)->value = uint32_t{1024};  // as the others have
  return write_tiny_model(model);
}

std::filesystem::path write_tiny_model(const TinyModel& model) {
  static const TestFolder folder;  // until the process ends: model files are mapped
  const std::filesystem::path path = folder / fmt::format("tiny {}.gguf", model.name);
  const std::string bytes = make_gguf(model, find_tensors(model).value(), tiny_vocabulary());
  ZINC_CHECK(write_file_atomically(path, bytes).ok());
  return path;
}

namespace {

ModelInstance open_model(const ServedFile& file) {
  const LoadOptions options{.backend = std::string(file.backend),
                            .n_threads = file.n_threads,
                            .kv_format = find_format(file.kv_format),
                            .draft = file.draft,
                            .placement = file.placement};
  return std::move(ModelInstance::open(model_path(file.name), options).value());
}

}  // namespace

ModelInstance load_model(const ServedFile& file) {
  ModelInstance model = open_model(file);
  ZINC_CHECK(model.upload().ok());
  return model;
}

std::unique_ptr<Engine> make_engine(const ServedFile& file, const EngineOptions& options) {
  return std::move(Engine::create(open_model(file), options).value());
}

std::vector<TokenId> random_tokens(const Tokenizer& tokenizer, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  while (tokens.size() < n) {
    const TokenId id = static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.n_vocab()));
    if (!tokenizer.is_eog(id)) tokens.push_back(id);
  }
  return tokens;
}

GenerationOptions greedy(int max_tokens) {
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  options.n_top_logprobs = 5;
  return options;
}

std::shared_ptr<RecordingSink> submit(Engine& engine, Request request) {
  auto output = std::make_shared<RecordingSink>();
  request.sink = output;
  const Result<RequestId> id = engine.submit(std::move(request));
  ZINC_CHECK(id.ok());
  return output;
}

void run_all(Engine& engine) {
  while (engine.step()) {
  }
}

int pages_in_use(const Engine& engine) {
  int n = 0;
  for (const PageUse& use : engine.stats().pages) n += use.n_in_use;
  return n;
}

RecordingSink generate_alone(const ModelInstance& model, const Request& request, int context) {
  const Tokenizer tokenizer = std::move(Tokenizer::load(model.file()).value());
  ModelRunner runner = std::move(ModelRunner::create(model, {.context = context}).value());
  Sampler sampler;
  OutputState answer(tokenizer, request.options, request.prompt);
  RecordingSink output;
  std::span<const float> fed = runner.feed(request.prompt).value();
  for (;;) {
    std::vector<float> logits(fed.begin(), fed.end());
    const OutputState::TokenResult step = answer.accept(logits, sampler, runner.position() < runner.context()).value();
    if (step.is_output) output.tokens(step.text, {&answer.last(), 1});
    if (step.reason) {
      output.outcome.reason = *step.reason;
      break;
    }
    fed = runner.feed({&step.id, 1}).value();
  }
  output.text += answer.finish();
  return output;
}

bool same_output(const RecordingSink& a, const RecordingSink& b) {
  const auto same_token = [](const OutputToken& x, const OutputToken& y) {
    const auto same = [](const TokenLogprob& p, const TokenLogprob& q) {
      return p.token == q.token && p.logprob == q.logprob;
    };
    return x.id == y.id && x.logprob == y.logprob && std::ranges::equal(x.top, y.top, same);
  };
  return a.text == b.text && a.outcome.reason == b.outcome.reason &&
         std::ranges::equal(a.output_tokens, b.output_tokens, same_token);
}

}  // namespace zinc
