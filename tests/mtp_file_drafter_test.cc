// The separate MTP file of Gemma 4 as a drafter, on every available device: its logits are those of llama.cpp, and its
// drafts are those of its graph run alone behind the target's cache, whatever was drafted before and beside.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "base/atomic_file.h"
#include "base/json.h"
#include "engine/engine_memory.h"
#include "engine/mtp_file_drafter.h"
#include "tests/support/contains_all.h"
#include "tests/support/serving.h"
#include "tests/support/test_files.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_mtp_file.h"

namespace zinc {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kSequences = 3;

struct Subject {
  const BackendInfo* backend;
  std::string_view model;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend->name; }

bool is_slow(const BackendInfo& backend) { return backend.step_kernels != nullptr; }  // on the CPU, emulated or not

ModelInstance load_with_mtp_file(const Subject& subject) {
  LoadOptions options{.backend = std::string(subject.backend->name)};
  options.kv_format = find_format(subject.backend->default_kv_format);
  ModelInstance model = std::move(ModelInstance::open(model_path(subject.model), options).value());
  ZINC_CHECK(model.add_mtp_file(mtp_file_path(subject.model)).ok());
  ZINC_CHECK(model.upload().ok());
  return model;
}

class MtpFileDrafterTest : public testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<KvCache> make_cache() const {
    const CachePlan plan = plan_engine_memory(model_, size_t{1} << 40, options_).value().cache;
    return std::move(
        KvCache::create(
            model_.backend(), model_.model().caches,
            {.sizes = plan.sizes, .max_chunk_tokens = options_.step_tokens, .n_sequences = options_.max_sequences})
            .value());
  }
  std::unique_ptr<Plan> compile(const Graph& graph, KvCache& cache) const {
    return std::move(model_.backend().compile(graph, model_.weights(), cache.memory(), largest_step(options_)).value());
  }

  // The target's hidden states [n, dim] of tokens that it is fed.
  std::vector<float> feed(Plan& target, KvCache& cache, SequenceCache& sequence,
                          std::span<const TokenId> tokens) const {
    ZINC_CHECK(cache.grow(sequence, sequence.n_tokens + static_cast<int>(tokens.size())));
    StepArrays arrays(cache.windows().size());
    arrays.clear();
    arrays.add(sequence, sequence.n_tokens, tokens);
    arrays.request_hidden();
    target.start(arrays.inputs());
    const StepOutput output = target.wait().value();
    sequence.n_tokens += static_cast<int>(tokens.size());
    return {output.hidden.begin(), output.hidden.end()};
  }

  // One row of the draft graph at position `position`.
  struct Row {
    std::vector<float> logits, hidden;
    TokenId token;
  };
  static Row run_row(Plan& plan, const KvCache& cache, const SequenceCache& sequence, int position, TokenId token,
                     std::span<const float> hidden) {
    StepArrays arrays(cache.windows().size());
    arrays.clear();
    arrays.add(sequence, position, {&token, 1});
    arrays.request_logits();
    arrays.request_hidden();
    StepInputs inputs = arrays.inputs();
    inputs.hidden = hidden;
    plan.start(inputs);
    const StepOutput output = plan.wait().value();
    return {
        {output.logits.begin(), output.logits.end()}, {output.hidden.begin(), output.hidden.end()}, output.sampled[0]};
  }

  // The draft after `tokens`, of which the target was fed all but the last, in one step.
  Tokens draft_alone(std::span<const TokenId> tokens, int max_tokens) const {
    const std::unique_ptr<KvCache> cache = make_cache();
    const std::unique_ptr<Plan> target = compile(model_.model().graph, *cache);
    const std::unique_ptr<Plan> draft = compile(*model_.model().draft, *cache);
    SequenceCache sequence = std::move(cache->admit(tokens, 0)->sequence);
    const std::vector<float> all = feed(*target, *cache, sequence, tokens.first(tokens.size() - 1));
    const size_t dim = static_cast<size_t>(model_.model().config.dim);
    std::vector<float> hidden(all.end() - static_cast<ptrdiff_t>(dim), all.end());
    Tokens out;
    TokenId last = tokens.back();
    while (static_cast<int>(out.size()) < max_tokens) {
      Row row = run_row(*draft, *cache, sequence, static_cast<int>(tokens.size()) - 2, last, hidden);
      out.push_back(last = row.token);
      hidden = std::move(row.hidden);
    }
    cache->release(std::move(sequence));
    return out;
  }

  const ModelInstance model_ = load_with_mtp_file(GetParam());
  const EngineOptions options_ = {.max_sequences = kSequences, .context = 192, .step_tokens = 128};
};

// Of tests/data/oracle/expected/gemma4-assistant.json.
std::vector<float> floats_of(const json::value& list) {
  std::vector<float> out;
  for (const json::value& x : list.as_array()) out.push_back(x.to_number<float>());
  return out;
}
json::value recorded() {
  std::ifstream file(ZINC_SOURCE_DIR "/tests/data/oracle/expected/gemma4-assistant.json");
  return parse_json(std::string(std::istreambuf_iterator<char>(file), {})).value();
}

TEST_P(MtpFileDrafterTest, logits_are_those_of_llama_cpp) {
  // The recorded values have a GELU table of f16. Backends other than the reference have a KV cache of f16, and some
  // quantize the activations of the target's Q8_0 matmuls; that grows from round to round.
  const BackendInfo& backend = *GetParam().backend;
  const bool is_rounded = backend.matmul_activation_bits == 8 && GetParam().model.ends_with("q8_0");
  const double tolerance = backend.default_kv_format == "f32" ? 0.03 : is_rounded ? 0.6 : 0.15;
  const json::value all = recorded();
  for (const json::value& prompt : all.at(GetParam().model).as_array()) {
    Tokens tokens;
    for (const json::value& id : prompt.at("tokens").as_array()) tokens.push_back(id.to_number<TokenId>());
    const std::unique_ptr<KvCache> cache = make_cache();
    const std::unique_ptr<Plan> target = compile(model_.model().graph, *cache);
    const std::unique_ptr<Plan> draft = compile(*model_.model().draft, *cache);
    SequenceCache sequence = std::move(cache->admit(tokens, 0)->sequence);
    std::vector<float> hidden = feed(*target, *cache, sequence, tokens);
    hidden.erase(hidden.begin(), hidden.end() - model_.model().config.dim);
    for (const json::value& round : prompt.at("rounds").as_array()) {
      const Row row = run_row(*draft, *cache, sequence, static_cast<int>(tokens.size()) - 1,
                              round.at("token").to_number<TokenId>(), hidden);
      const std::vector<float> expected = floats_of(round.at("logits"));
      ASSERT_EQ(row.logits.size(), expected.size());
      double largest = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(double{row.logits[i]} - expected[i]));
      }
      EXPECT_LT(largest, tolerance) << tokens.size();
      hidden = row.hidden;
      if (is_rounded) break;
    }
    cache->release(std::move(sequence));
  }
}

// Sequences grow past the window, so that its pages are released, with steps of one or more tokens and without drafts.
TEST_P(MtpFileDrafterTest, drafts_are_those_of_the_graph_run_alone) {
  const size_t n_output = is_slow(*GetParam().backend) ? 6 : 50;
  const std::unique_ptr<KvCache> cache = make_cache();
  const std::unique_ptr<MtpFileDrafter> drafter =
      std::move(MtpFileDrafter::create(model_, *cache, largest_draft_step(options_)).value());
  const std::unique_ptr<Plan> target = compile(model_.model().graph, *cache);
  const Tokenizer tokenizer = std::move(Tokenizer::load(model_.file()).value());
  constexpr std::array<size_t, kSequences> kPrompts = {1, 50, 70};
  std::vector<Tokens> sequences;
  std::vector<SequenceCache> caches(kSequences);
  const auto feed_next = [&](size_t i, size_t n) {  // to the target
    const int begin = caches[i].n_tokens;
    const std::span<const TokenId> tokens = std::span(sequences[i]).subspan(static_cast<size_t>(begin), n);
    const std::vector<float> hidden = feed(*target, *cache, caches[i], tokens);
    drafter->observe({.id = i, .cache = &caches[i], .begin = begin, .tokens = tokens, .hidden = hidden});
  };
  for (size_t i = 0; i < kSequences; ++i) {
    sequences.push_back(random_tokens(tokenizer, kPrompts[i] + n_output, static_cast<uint32_t>(i)));
    caches[i] = std::move(cache->admit(std::span(sequences[i]).first(kPrompts[i]), 0)->sequence);
    feed_next(i, kPrompts[i]);
  }
  size_t n_drafts = 0;
  for (size_t round = 0;; ++round) {
    std::vector<DraftQuery> queries;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t n_fed = static_cast<size_t>(caches[i].n_tokens);
      if ((round + i) % 4 == 3 || n_fed == sequences[i].size()) continue;
      const int k = 1 + static_cast<int>((round + i) % 3);
      ASSERT_TRUE(cache->grow(caches[i], static_cast<int>(n_fed) + 1 + k));  // as before a verification
      queries.push_back(
          {.id = i, .tokens = std::span(sequences[i]).first(n_fed + 1), .cache = &caches[i], .max_tokens = k});
    }
    ASSERT_TRUE(drafter->draft(queries).ok());
    for (const DraftQuery& query : queries) {
      EXPECT_EQ(query.draft, draft_alone(query.tokens, query.max_tokens)) << query.id << " at " << query.tokens.size();
      ++n_drafts;
    }
    bool has_more = false;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t n_left = sequences[i].size() - static_cast<size_t>(caches[i].n_tokens);
      if (n_left == 0) continue;
      has_more = true;
      feed_next(i, std::min(1 + (round + i) % 2, n_left));
    }
    if (!has_more) break;
  }
  EXPECT_GT(n_drafts, n_output);
  drafter->remove(0);
  DraftQuery removed{.id = 0, .tokens = sequences[0], .cache = &caches[0], .max_tokens = 2};
  ASSERT_TRUE(drafter->draft({&removed, 1}).ok());
  EXPECT_EQ(removed.draft, Tokens());
  for (SequenceCache& sequence : caches) cache->release(std::move(sequence));
  for (const PagePool& pool : cache->pools().pages) EXPECT_EQ(pool.n_pinned(), 0);
}

TEST_P(MtpFileDrafterTest, outputs_are_those_without_drafts) {
  const ServedFile file{.name = GetParam().model, .backend = GetParam().backend->name};
  EngineOptions options{.max_sequences = 3, .context = 192, .step_tokens = 48};
  options.speculation = {.mode = SpeculationMode::off};
  const std::unique_ptr<Engine> plain = make_engine(file, options);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 5; ++i) {
    Request request{.prompt = random_tokens(plain->tokenizer(), 5 + 23 * i, i),
                    .options = greedy(is_slow(*GetParam().backend) ? 8 : 40)};
    request.options.n_top_logprobs = -1;
    requests.push_back(std::move(request));
  }
  requests[2].options.sampling = {.temperature = 1, .seed = 5};
  requests[4].prompt = requests[3].prompt;  // a prefix cache hit
  std::vector<std::shared_ptr<RecordingSink>> expected, outputs;
  for (const Request& request : requests) expected.push_back(submit(*plain, request));
  run_all(*plain);
  options.speculation = {.mode = SpeculationMode::mtp, .draft_model = mtp_file_path(GetParam().model)};
  options.speculation.ignores_cost = true;
  const std::unique_ptr<Engine> engine = make_engine(file, options);
  for (const Request& request : requests) outputs.push_back(submit(*engine, request));
  run_all(*engine);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << "request " << i;
  }
  EXPECT_EQ(pages_in_use(*engine), 0);
  EXPECT_EQ(engine->stats().speculation.error, "");
  EXPECT_GT(engine->stats().speculation.n_drafted_tokens, 0u);
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo* backend : available_backends()) {
    for (const std::string_view model : {"gemma4-f16", "gemma4-ple-q8_0"}) all.push_back({backend, model});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, MtpFileDrafterTest, testing::ValuesIn(subjects()), [](const auto& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ':'; }, '_');
  return name;
});

// ---- reading the file ----

class MtpFileTest : public testing::Test {
 protected:
  std::string error_of(const TinyModel& changed, const std::vector<TinyTensor>& tensors) const {
    return error_of(make_gguf(changed, tensors), target_);
  }
  static std::string error_of(const std::string& bytes, const Model& target) {
    const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "mtp.gguf").value());
    const Result<Graph> graph = read_mtp_file(file, target);
    return graph.ok() ? "" : graph.error().message;
  }
  std::string error_with(std::string_view key, TinyValue value) const {
    TinyModel changed = mtp_;
    std::ranges::find(changed.metadata, key, &TinyKey::name)->value = std::move(value);
    return error_of(changed, tensors_);
  }

  const GgufFile target_file_ = std::move(GgufFile::open(model_path("gemma4-f16")).value());
  const Model target_ = std::move(read_model(target_file_).value());
  const TinyModel mtp_ = tiny_mtp_file(target_file_);
  const std::vector<TinyTensor> tensors_ = find_mtp_tensors(mtp_, target_file_).value();
};

TEST_F(MtpFileTest, the_graph_reads_the_last_layers_of_the_target_and_writes_none) {
  const std::string bytes = make_gguf(mtp_, tensors_);
  const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "mtp.gguf").value());
  const Graph graph = std::move(read_mtp_file(file, target_).value());
  std::vector<int> layers;
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::attention) continue;
    EXPECT_FALSE(bool(node.in[1]));
    layers.push_back(node.as<AttentionParams>().cache_layer);
  }
  EXPECT_EQ(layers, (std::vector<int>{1, 1, 1, 2}));
  EXPECT_TRUE(std::ranges::equal(graph.caches(), target_.graph.caches()));
  EXPECT_EQ(graph.info(graph.find("token_embd.weight")).shape[1], target_.config.dim);
  EXPECT_EQ(graph.info(graph.find("mtp.token_embd.weight")).shape[1], 32);
  EXPECT_EQ(graph.info(graph.hidden()).shape, Shape({target_.config.dim}));
}

TEST_F(MtpFileTest, a_file_of_another_model_is_refused_with_the_difference) {
  EXPECT_TRUE(contains_all(error_with("embedding_length_out", 64u), {"mtp.gguf", "width 64", "56"}));
  EXPECT_TRUE(contains_all(error_with("attention.sliding_window", 21u), {"mtp.gguf", "a window of 21"}));
  EXPECT_TRUE(contains_all(error_with("nextn_predict_layers", 3u), {"nextn_predict_layers", "3", "4 layers"}));
  EXPECT_TRUE(contains_all(error_with("attention.key_length_swa", 32u), {"mtp.gguf", "blk.0.attn_q.weight"}));
  std::vector<TinyTensor> fewer = tensors_;
  fewer[0].shape = {target_.config.vocab_size - 1, 32};
  EXPECT_TRUE(contains_all(error_of(mtp_, fewer), {"mtp.gguf", "logits"}));
  TinyModel other = mtp_;
  other.architecture = "gemma4";
  EXPECT_TRUE(contains_all(error_of(other, tensors_), {"'gemma4'", "'gemma4-assistant'"}));
}

TEST_F(MtpFileTest, missing_or_wrong_keys_and_tensors_are_errors) {
  for (size_t i = 0; i < mtp_.metadata.size(); ++i) {
    const TinyKey& key = mtp_.metadata[i];
    TinyModel without = mtp_;
    without.metadata.erase(without.metadata.begin() + static_cast<ptrdiff_t>(i));
    const std::string error = error_of(without, tensors_);
    if (key.required) {
      EXPECT_TRUE(contains_all(error, {"mtp.gguf", key.name}));
      EXPECT_TRUE(contains_all(error_with(key.name, std::string("text")), {"mtp.gguf", key.name}));
    }
    for (const TinyValue& value : {TinyValue(0u), TinyValue(4000000000u), TinyValue(std::string("text"))}) {
      error_with(key.name, value);  // no crash
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].name.find("layer_output_scale") != std::string::npos) continue;
    std::vector<TinyTensor> changed = tensors_;
    changed[i].name = "unused.weight";
    EXPECT_TRUE(contains_all(error_of(mtp_, changed), {"mtp.gguf", tensors_[i].name}));
    changed[i] = {tensors_[i].name, {3, 5}};
    EXPECT_NE(error_of(mtp_, changed), "") << tensors_[i].name;
  }
}

TEST_F(MtpFileTest, it_is_not_a_model_and_other_families_have_none) {
  const std::filesystem::path path = mtp_file_path("gemma4-f16");
  const GgufFile file = std::move(GgufFile::open(path).value());
  EXPECT_TRUE(contains_all(read_model(file).error().message, {"MTP file", "'gemma4'", "--speculate mtp:FILE"}));
  const auto error = [&](std::string_view target, const std::filesystem::path& mtp_file) {
    ModelInstance model = std::move(ModelInstance::open(model_path(target), {.backend = "cpu"}).value());
    const Result<std::unique_ptr<Engine>> engine = Engine::create(
        std::move(model), {.context = 64, .speculation = {.mode = SpeculationMode::mtp, .draft_model = mtp_file}});
    return engine.ok() ? "" : engine.error().message;
  };
  EXPECT_EQ(error("gemma4-f16", path), "");
  EXPECT_TRUE(contains_all(error("gemma4-f16", {}), {"no MTP block", "mtp:FILE"}));
  EXPECT_TRUE(contains_all(error("qwen3-q8_0", path), {"'qwen3'", "no separate MTP file"}));
  EXPECT_TRUE(contains_all(error("gemma4-f16", model_path("gemma3-f16")), {"'gemma3'", "'gemma4-assistant'"}));
}

TEST_F(MtpFileTest, tokens_that_differ_are_refused) {
  const std::string path = mtp_file_path("gemma4-f16");
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const size_t token = bytes.find("<|im_start|>");
  ASSERT_NE(token, std::string::npos);
  bytes[token + 2] = 'x';
  const TestFolder folder;
  const std::filesystem::path other = folder / "other.gguf";
  ASSERT_TRUE(write_file_atomically(other, bytes).ok());
  ModelInstance model = std::move(ModelInstance::open(model_path("gemma4-f16"), {.backend = "cpu"}).value());
  ASSERT_TRUE(model.add_mtp_file(other).ok());
  EXPECT_TRUE(contains_all(check_mtp_file_tokens(model).error().message, {"'<|xm_start|>'", "'<|im_start|>'"}));
}

}  // namespace
}  // namespace zinc
