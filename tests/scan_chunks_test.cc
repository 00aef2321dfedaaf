// Which positions are processed as whole scan chunks, or use experts copied for whole prompt chunks, follows from the
// prompt alone, whatever the steps, the prefix cache, preemptions and drafts are (ADR 0042, 0054). The device is fake:
// it hashes what a hybrid model on a GPU depends on, or a model without recurrent layers (rounds % 4), so that one
// token that was processed otherwise changes the rest of the output. tests/batch_invariance_test.cc runs real kernels.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <random>

#include "engine/engine_loop.h"
#include "engine/forced_drafter.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

constexpr int kScanChunk = 64, kStreamedChunk = 192;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15ull)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 29) * 0x94D049BB133111EBull;
  return x ^ x >> 32;
}

// The recurrent state of each slot, and one hash per position of a page.
struct HashMemory : CacheMemory {
  HashMemory(const CacheSizes& sizes, bool has_recurrent_layers)
      : has_states(has_recurrent_layers),
        states(static_cast<size_t>(sizes.n_slots)),
        pages(static_cast<size_t>(sizes.n_pages.at(0))) {}
  size_t device_bytes() const override { return 0; }
  void copy_page(int, PageId from, PageId to) override { pages.at(at(to)) = pages.at(at(from)); }
  void copy_state(int from, int to) override { states.at(at(to)) = states.at(at(from)); }
  size_t page_bytes(int) const override { return kPageTokens * sizeof(uint64_t); }
  size_t state_bytes() const override { return has_states ? sizeof(uint64_t) : 0; }
  Status read_page(int, PageId, std::span<std::byte>) override { return ok_status(); }
  Status write_page(int, PageId, std::span<const std::byte>) override { return ok_status(); }
  Status read_state(int, std::span<std::byte>) override { return ok_status(); }
  Status write_state(int, std::span<const std::byte>) override { return ok_status(); }

  static size_t at(int32_t i) { return static_cast<size_t>(i); }
  bool has_states;
  std::vector<uint64_t> states;
  std::vector<std::array<uint64_t, kPageTokens>> pages;
};

struct HashBackend : Backend {
  DeviceInfo info() const override { return {}; }
  DevicePeaks measure_peaks() override { return {}; }
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const>, const ReleaseFilePages&) override {
    return fail(ErrorCode::unsupported, "no weights");
  }
  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    auto made = std::make_unique<HashMemory>(sizes, layers.size() > 1);
    memory = made.get();
    return std::unique_ptr<CacheMemory>(std::move(made));
  }
  Result<std::unique_ptr<Plan>> compile(const Graph&, DeviceWeights&, CacheMemory&, const Bucket&) override {
    return fail(ErrorCode::unsupported, "no plans");
  }
  std::unique_ptr<Backend> without_memory() override { return nullptr; }
  HashMemory* memory = nullptr;
};

class HashPlan final : public Plan {
 public:
  // streamed_chunk: of the rows whose experts another device computes.
  HashPlan(HashMemory& memory, size_t n_vocab, int streamed_chunk, int& n_steps)
      : memory_(memory), n_vocab_(n_vocab), streamed_chunk_(streamed_chunk), n_steps_(n_steps) {}
  size_t device_bytes() const override { return 0; }
  std::span<const float> value(Value) const override { return {}; }

  void start(const StepInputs& in) override {
    ++n_steps_;
    Output out;
    size_t next_output = 0;
    for (size_t s = 0; s < in.slots.size(); ++s) {
      const size_t first = at(in.seq_begin[s]), end = at(in.seq_begin[s + 1]);
      const int begin = in.positions[first], n = static_cast<int>(end - first);
      const int streamed_end = begin % streamed_chunk_ == 0 ? begin + n - n % streamed_chunk_ : begin;
      uint64_t state = begin == 0 ? 0 : memory_.states.at(at(in.slots[s]));
      for (size_t row = first; row < end; ++row) {
        const int position = in.positions[row], chunk = position - position % kScanChunk;
        const bool is_scanned = chunk >= begin && chunk + kScanChunk <= begin + n;
        const TokenId token = in.tokens[row] == kFromDevice ? last_.at(in.slots[s]) : in.tokens[row];
        const bool is_streamed = position < streamed_end;
        if (!memory_.has_states) state = static_cast<uint64_t>(position);
        state = mix(state, static_cast<uint64_t>(token) * 4 + (is_scanned && memory_.has_states) * 2 + is_streamed);
        entry(in, s, position) = state;
        if (const int slot = in.state_slot(s, row); slot != kNoSlot) memory_.states.at(at(slot)) = state;
        if (next_output == in.output_rows.size() || at(in.output_rows[next_output]) != row) continue;
        ++next_output;
        add_output(out, attention(in, s, position));
        last_[in.slots[s]] = out.sampled.back();
      }
    }
    for (const int32_t row : in.logit_rows) {
      out.logits.resize(out.logits.size() + n_vocab_);
      float* logits = out.logits.data() + out.logits.size() - n_vocab_;
      logits[out.sampled[at(row)]] = 4;
    }
    in_flight_.push_back(std::move(out));
  }
  Result<StepOutput> wait() override {
    returned_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    return StepOutput{returned_.sampled, returned_.logits, {}};
  }

 private:
  struct Output {
    std::vector<TokenId> sampled;
    std::vector<float> logits;
  };
  static size_t at(int32_t i) { return static_cast<size_t>(i); }
  uint64_t& entry(const StepInputs& in, size_t s, int position) {
    const PageTable& table = in.page_tables[0];
    const PageId page = table.entries[s * at(table.stride) + at(position / kPageTokens)];
    return memory_.pages.at(at(page))[at(position % kPageTokens)];
  }
  uint64_t attention(const StepInputs& in, size_t s, int position) {
    uint64_t sum = 0;
    for (int p = 0; p <= position; ++p) sum = mix(sum, entry(in, s, p));
    return sum;
  }
  void add_output(Output& out, uint64_t hash) const { out.sampled.push_back(static_cast<TokenId>(hash % n_vocab_)); }

  HashMemory& memory_;
  size_t n_vocab_;
  int streamed_chunk_;
  int& n_steps_;
  std::map<int32_t, TokenId> last_;
  std::deque<Output> in_flight_;
  Output returned_;
};

struct LoopSetup {
  int n_pages = 200, n_slots = 32, n_sequences = 1, step_tokens = 512;
  int prompt_chunk = kScanChunk;  // kStreamedChunk: experts in host memory are copied for whole chunks of so many
  bool has_states = true, can_sample_on_device = true;
  std::vector<std::vector<TokenId>> drafts = {};  // known sequences; empty: no drafts
};

class ScanChunksTest : public testing::Test {
 protected:
  class Loop {
   public:
    Loop(const ScanChunksTest& test, const LoopSetup& setup)
        : tokenizer_(test.tokenizer_), queue_(1000, setup.n_sequences) {
      const CacheSizes sizes{.n_pages = {setup.n_pages}, .n_slots = setup.n_slots};
      auto cache = std::move(
          KvCache::create(
              backend_, std::span(kLayers).first(setup.has_states ? 2 : 1),
              {.sizes = sizes, .max_chunk_tokens = setup.step_tokens, .n_draft_slots = setup.drafts.empty() ? 0 : 16})
              .value());
      auto plan = std::make_unique<HashPlan>(*backend_.memory, static_cast<size_t>(tokenizer_.n_vocab()),
                                             setup.prompt_chunk, n_steps);
      std::unique_ptr<Speculation> speculation;
      if (!setup.drafts.empty()) {
        auto drafts = std::make_shared<ForcedDrafts>(
            ForcedDrafts{.sequences = setup.drafts, .acceptance = 0.8, .n_vocab = tokenizer_.n_vocab()});
        speculation = std::make_unique<Speculation>(
            SpeculationOptions{.mode = SpeculationMode::draft, .ignores_cost = true},
            std::make_unique<ForcedDrafter>(nullptr, std::move(drafts)), setup.step_tokens);
      }
      loop_ = std::make_unique<EngineLoop>(
          queue_, std::move(cache), std::move(plan),
          LoopOptions{.max_sequences = setup.n_sequences,
                      .checkpoint_interval = 2 * setup.prompt_chunk,
                      .n_vocab = tokenizer_.n_vocab(),
                      .can_sample_on_device = setup.can_sample_on_device,
                      .scheduler = {.step_tokens = setup.step_tokens,
                                    .scan_chunk_tokens = setup.prompt_chunk,
                                    .tail_chunk_tokens = setup.has_states ? kScanChunk : 0}},
          std::move(speculation));
    }
    std::shared_ptr<RecordingSink> submit(Request request) {
      const auto output = std::make_shared<RecordingSink>();
      request.sink = output;
      const int max_length = static_cast<int>(request.prompt.size()) + request.options.max_tokens - 1;
      auto state = std::make_unique<RequestState>(std::move(request), tokenizer_);
      state->max_length = max_length;
      EXPECT_TRUE(queue_.put(std::move(state)).ok());
      return output;
    }
    bool step() { return loop_->step(); }
    void run() {
      while (step()) {
      }
    }
    EngineStats stats() const { return loop_->stats(); }
    int n_steps = 0;

   private:
    const Tokenizer& tokenizer_;
    HashBackend backend_;
    SubmissionQueue queue_;
    std::unique_ptr<EngineLoop> loop_;
  };

  std::vector<TokenId> tokens(size_t n, uint32_t seed) const { return random_tokens(tokenizer_, n, seed); }
  static Request request(std::vector<TokenId> prompt, int max_tokens) {
    Request made{.prompt = std::move(prompt), .options = greedy(max_tokens)};
    made.options.n_top_logprobs = -1;
    return made;
  }
  std::shared_ptr<RecordingSink> alone(const Request& request, const LoopSetup& setup = {}) const {
    Loop loop(*this, {.prompt_chunk = setup.prompt_chunk, .has_states = setup.has_states});
    const std::shared_ptr<RecordingSink> output = loop.submit(request);
    loop.run();
    EXPECT_EQ(output->n_ends, 1);
    return output;
  }
  static std::vector<TokenId> with_output(std::vector<TokenId> prompt, const RecordingSink& output, size_t n) {
    for (size_t i = 0; i < std::min(n, output.output_tokens.size()); ++i) prompt.push_back(output.output_tokens[i].id);
    return prompt;
  }

  static inline const std::vector<LayerCache> kLayers = {
      {.attention = {.kv_heads = 1, .k_dim = 32, .v_dim = 32}, .recurrent = {}},
      {.attention = {}, .recurrent = {.conv_channels = 1, .conv_taps = 2, .heads = 1, .k_dim = 1, .v_dim = 1}}};
  const ModelInstance model_ = load_model({.name = "qwen3-q8_0"});
  const Tokenizer tokenizer_ = std::move(Tokenizer::load(model_.file()).value());
};

TEST_F(ScanChunksTest, a_prompt_is_not_cut_behind_its_last_whole_scan_chunk) {
  for (const size_t n_prompt : {5, 40, 63, 64}) {
    Loop loop(*this, {});
    loop.submit(request(tokens(n_prompt, 1), 1));
    loop.run();
    EXPECT_EQ(loop.n_steps, 1) << n_prompt;
  }
  Loop loop(*this, {});
  loop.submit(request(tokens(127, 1), 1));
  loop.run();
  EXPECT_EQ(loop.n_steps, 2) << "the first ends at the checkpoint of the last whole scan chunk";
}

TEST_F(ScanChunksTest, a_resumed_output_is_not_taken_from_a_prompt_that_contains_it) {
  const Request first = request(tokens(90, 1), 150);
  const std::shared_ptr<RecordingSink> expected = alone(first);
  const Request longer = request(with_output(first.prompt, *expected, 120), 100);
  Loop loop(*this, {.n_pages = 16, .n_sequences = 2});
  const std::shared_ptr<RecordingSink> other = loop.submit(longer);
  loop.step();
  const std::shared_ptr<RecordingSink> output = loop.submit(first);
  loop.run();
  EXPECT_GT(loop.stats().n_preempted, 0u);
  EXPECT_TRUE(same_output(*output, *expected));
  EXPECT_TRUE(same_output(*other, *alone(longer)));
}

TEST_F(ScanChunksTest, random_requests_have_the_output_of_a_single_sequence) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random()) % n; };
  uint64_t n_preempted = 0, n_cached = 0, n_accepted = 0;
  for (int round = 0; round < 100; ++round) {
    LoopSetup setup{.prompt_chunk = round % 3 == 0 ? kStreamedChunk : kScanChunk, .has_states = round % 4 != 0};
    std::vector<Request> requests;
    std::vector<std::shared_ptr<RecordingSink>> expected;
    for (uint32_t i = 0; i < 10; ++i) {
      std::vector<TokenId> prompt;
      const uint32_t kind = below(3);
      if (i > 0 && kind > 0) {  // a fork of an earlier one, or its next turn
        const uint32_t from = below(i);
        prompt = requests[from].prompt;
        if (kind == 1) prompt.resize(1 + below(static_cast<uint32_t>(prompt.size())));
        if (kind == 2) prompt = with_output(std::move(prompt), *expected[from], below(130));
      }
      const std::vector<TokenId> more = tokens(1 + below(150), below(1000));
      prompt.insert(prompt.end(), more.begin(), more.end());
      prompt.resize(std::min(prompt.size(), size_t{400}));
      Request made = request(prompt, 1 + static_cast<int>(below(250)));
      made.boundaries = {static_cast<int>(below(200)), static_cast<int>(below(400))};
      made.client = fmt::format("client {}", below(3));
      if (below(8) == 0) made.options.n_prompt_logprobs = 0;
      if (below(4) == 0) made.options.stop_tokens = tokens(5, below(1000));  // ends with a step in flight
      expected.push_back(alone(made, setup));
      requests.push_back(std::move(made));
    }
    setup.n_pages = 22 + static_cast<int>(below(20));
    setup.n_sequences = 1 + static_cast<int>(below(5));
    setup.step_tokens = setup.prompt_chunk + static_cast<int>(below(200));
    setup.can_sample_on_device = below(2) == 0;
    for (size_t i = 0; i < requests.size() && round % 2 == 0; ++i) {
      setup.drafts.push_back(with_output(requests[i].prompt, *expected[i], 250));
    }
    Loop loop(*this, setup);
    std::vector<std::shared_ptr<RecordingSink>> outputs;
    for (const Request& made : requests) {
      outputs.push_back(loop.submit(made));
      for (uint32_t n = below(20); n > 0; --n) loop.step();
    }
    loop.run();
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << "round " << round << ", request " << i;
      n_cached += static_cast<uint64_t>(outputs[i]->outcome.usage.n_cached);
    }
    n_preempted += loop.stats().n_preempted;
    n_accepted += loop.stats().speculation.n_accepted_tokens;
  }
  EXPECT_GT(n_preempted, 30u);
  EXPECT_GT(n_cached, 5000u);
  EXPECT_GT(n_accepted, 1000u);
}

}  // namespace
}  // namespace zinc
