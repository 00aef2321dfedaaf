// The Plan interface: for any batch, pages and slots, each sequence's logits are bit-identical to those of the sequence
// run alone. On every tiny model, and so on every kind of cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tests/support/step_runner.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

using Logits = std::vector<float>;

struct Subject {
  std::string backend, model;
  auto operator<=>(const Subject&) const = default;
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend; }

const LoadedModel& loaded(const Subject& subject, int n_threads = 1) {
  static std::map<std::pair<Subject, int>, std::unique_ptr<LoadedModel>> models;
  std::unique_ptr<LoadedModel>& model = models[{subject, n_threads}];
  if (!model) {
    const auto has_name = [&](const BackendInfo* b) { return b->name == subject.backend; };
    const std::vector<const BackendInfo*> backends = tested_backends();
    const BackendInfo& backend = **std::ranges::find_if(backends, has_name);
    model = std::move(LoadedModel::load(make_gguf(tiny_model(subject.model)), backend, n_threads).value());
  }
  return *model;
}

std::vector<TokenId> part(const std::vector<TokenId>& tokens, size_t begin, size_t end) {
  return {tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.begin() + static_cast<ptrdiff_t>(end)};
}

void append(Logits& out, const Logits& more) { out.insert(out.end(), more.begin(), more.end()); }

// Feeds tokens from position `begin` on in chunks (0: the largest exact chunk); returns the logits after each token.
Logits feed(StepRunner& runner, TestSequence& sequence, const std::vector<TokenId>& tokens, size_t begin,
            size_t chunk = 0) {
  if (chunk == 0) chunk = runner.max_exact_chunk();
  Logits out;
  for (size_t at = begin; at < tokens.size(); at += chunk) {
    const size_t end = std::min(tokens.size(), at + chunk);
    append(out, runner.step({{&sequence, static_cast<int32_t>(at), part(tokens, at, end)}})[0].logits);
  }
  return out;
}

Logits run_alone(const LoadedModel& model, const std::vector<TokenId>& tokens) {
  StepRunner runner(model);
  TestSequence sequence = runner.new_sequence(0);
  return feed(runner, sequence, tokens, 0);
}

// The logits after token `begin` and all later ones.
Logits tail(const Logits& logits, size_t begin) {
  return {logits.begin() + static_cast<ptrdiff_t>(begin * kTinyVocabulary), logits.end()};
}

// EXPECT_EQ on vectors of thousands of floats would print them.
void expect_equal(const Logits& got, const Logits& expected) {
  ASSERT_EQ(got.size(), expected.size());
  const auto [g, e] = std::ranges::mismatch(got, expected);
  if (g == got.end()) return;
  const size_t at = static_cast<size_t>(g - got.begin());
  ADD_FAILURE() << "first difference at row " << at / kTinyVocabulary << ", token " << at % kTinyVocabulary << ": "
                << *g << " instead of " << *e;
}

class StepTest : public testing::TestWithParam<Subject> {
 protected:
  const LoadedModel& model() const { return loaded(GetParam()); }
};
class RecurrentStepTest : public StepTest {};
class SlidingStepTest : public StepTest {};
class DraftStepTest : public StepTest {};
class StepClassTest : public StepTest {};  // of GPUs

TEST_P(StepTest, logits_differ_from_row_to_row_and_are_finite) {
  const Logits logits = run_alone(model(), random_tokens(80, 1));
  for (float x : logits) ASSERT_TRUE(std::isfinite(x));
  const Logits last = tail(logits, 79);
  for (size_t row = 0; row < 79; ++row) {
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(row * kTinyVocabulary);
    EXPECT_FALSE(std::equal(last.begin(), last.end(), begin)) << "row " << row;
  }
}

TEST_P(StepTest, prefill_chunks_and_decode_rows_in_one_step_do_not_affect_each_other) {
  const std::vector<TokenId> a = random_tokens(9, 1), b = random_tokens(75, 2), c = random_tokens(50, 3);
  StepRunner runner(model());
  TestSequence sa = runner.new_sequence(2), sb = runner.new_sequence(0), sc = runner.new_sequence(4);
  std::array<Logits, 3> got;
  struct Lengths {  // the length of each sequence after the step
    size_t a, b, c;
  };
  Lengths at{0, 0, 0};
  for (const Lengths& to : {Lengths{6, 20, 0}, Lengths{7, 21, 33}, Lengths{8, 70, 34}, Lengths{9, 75, 50}}) {
    std::vector<SequenceTokens> batch;
    std::vector<Logits*> outputs;
    const auto add = [&](TestSequence& s, const std::vector<TokenId>& tokens, size_t begin, size_t end, Logits& out) {
      if (begin == end) return;
      batch.push_back({&s, static_cast<int32_t>(begin), part(tokens, begin, end)});
      outputs.push_back(&out);
    };
    add(sc, c, at.c, to.c, got[2]);
    add(sa, a, at.a, to.a, got[0]);
    add(sb, b, at.b, to.b, got[1]);
    const std::vector<SequenceOutput> step = runner.step(batch);
    for (size_t i = 0; i < batch.size(); ++i) append(*outputs[i], step[i].logits);
    at = to;
  }
  expect_equal(got[0], run_alone(model(), a));
  expect_equal(got[1], run_alone(model(), b));
  expect_equal(got[2], run_alone(model(), c));
}

// On a GPU how the chunks of a row are distributed over blocks depends on the other rows.
// Backends leave out rows of the last layer that no output needs. The keys and values of all rows are in the cache.
TEST_P(StepTest, logits_of_last_rows_alone_are_those_of_steps_with_hidden_states) {
  constexpr size_t kLong = 150, kShort = 20;
  const std::vector<TokenId> a = random_tokens(kLong + 1, 61), b = random_tokens(kShort + 1, 62),
                             c = random_tokens(kShort + 1, 63);
  const auto run = [&](bool wants_all) {
    StepRunner runner(model());
    TestSequence first = runner.new_sequence(0), second = runner.new_sequence(1), third = runner.new_sequence(2);
    const std::vector<std::vector<SequenceTokens>> steps = {
        {{&third, 0, part(c, 0, 5), {}, false}},
        {{&first, 0, part(a, 0, kLong)}, {&second, 0, part(b, 0, kShort), {}, false}, {&third, 5, part(c, 5, kShort)}},
        {{&first, kLong, part(a, kLong, kLong + 1)},
         {&second, kShort, part(b, kShort, kShort + 1)},
         {&third, kShort, part(c, kShort, kShort + 1)}}};
    Logits out;
    for (const std::vector<SequenceTokens>& step : steps) {
      if (!wants_all) {
        append(out, runner.last_logits(step));
        continue;
      }
      const std::vector<SequenceOutput> all = runner.step(step);
      for (size_t s = 0; s < step.size(); ++s) {
        if (step[s].has_output) append(out, tail(all[s].logits, step[s].tokens.size() - 1));
      }
    }
    return out;
  };
  expect_equal(run(false), run(true));
}

TEST_P(StepTest, decode_rows_over_several_kv_chunks_do_not_affect_each_other) {
  constexpr size_t kDecoded = 3;
  const std::array<std::vector<TokenId>, 3> tokens = {random_tokens(290, 5), random_tokens(262, 6),
                                                      random_tokens(5, 7)};
  StepRunner runner(model());
  std::vector<TestSequence> sequences;
  std::array<Logits, 3> got;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sequences.push_back(runner.new_sequence(static_cast<int>(i)));
    feed(runner, sequences[i], part(tokens[i], 0, tokens[i].size() - kDecoded), 0);
  }
  for (size_t step = kDecoded; step > 0; --step) {
    std::vector<SequenceTokens> batch;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const size_t at = tokens[i].size() - step;
      batch.push_back({&sequences[i], static_cast<int32_t>(at), part(tokens[i], at, at + 1)});
    }
    const std::vector<SequenceOutput> outputs = runner.step(batch);
    for (size_t i = 0; i < tokens.size(); ++i) append(got[i], outputs[i].logits);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(got[i], tail(run_alone(model(), tokens[i]), tokens[i].size() - kDecoded));
  }
}

TEST_P(StepTest, any_chunk_size_gives_the_same_logits) {
  const std::vector<TokenId> tokens = random_tokens(100, 4);
  const Logits whole = run_alone(model(), tokens);
  for (const size_t chunk : {1u, 7u, 32u}) {
    SCOPED_TRACE(chunk);
    StepRunner runner(model());
    TestSequence sequence = runner.new_sequence(1);
    expect_equal(feed(runner, sequence, tokens, 0, chunk), whole);
  }
}

TEST_P(StepTest, any_chunk_size_gives_the_same_logits_with_an_f16_kv_cache) {
  const std::vector<TokenId> tokens = random_tokens(96, 22);
  const auto in_steps_of = [&](size_t n) {
    StepRunner runner(model(), StepRunner::PageOrder::shuffled, k_f16);
    TestSequence sequence = runner.new_sequence(0);
    return feed(runner, sequence, tokens, 0, n);
  };
  const Logits in_48 = in_steps_of(48);
  for (const size_t chunk : {1u, 7u, 32u}) {
    SCOPED_TRACE(chunk);
    expect_equal(in_steps_of(chunk), in_48);
  }
}

TEST_P(StepTest, any_chunk_size_gives_the_same_logits_with_a_quantized_kv_cache) {
  const std::vector<TokenId> tokens = random_tokens(70, 23);
  for (const std::string_view format : model().backend_info().kv_formats) {
    if (find_format(format)->block_elems == 1) continue;
    const auto in_steps_of = [&](size_t n) {
      StepRunner runner(model(), StepRunner::PageOrder::shuffled, *find_format(format));
      TestSequence sequence = runner.new_sequence(0);
      return feed(runner, sequence, tokens, 0, n);
    };
    const Logits in_35 = in_steps_of(35);
    for (const size_t chunk : {1u, 7u}) {
      SCOPED_TRACE(fmt::format("{} in steps of {}", format, chunk));
      expect_equal(in_steps_of(chunk), in_35);
    }
  }
}

TEST_P(StepTest, pages_may_be_in_any_order) {
  const std::vector<TokenId> tokens = random_tokens(100, 5);
  StepRunner runner(model(), StepRunner::PageOrder::shuffled);
  TestSequence sequence = runner.new_sequence(0);
  expect_equal(feed(runner, sequence, tokens, 0, 32), run_alone(model(), tokens));
}

TEST_P(StepTest, a_reused_slot_and_reused_pages_are_reset_at_position_0) {
  const std::vector<TokenId> first = random_tokens(70, 6), second = random_tokens(70, 7);
  StepRunner runner(model());
  TestSequence sequence = runner.new_sequence(0);
  feed(runner, sequence, first, 0);
  expect_equal(feed(runner, sequence, second, 0), run_alone(model(), second));
}

// Two sequences with a common prefix: full pages are shared, a partially filled one is copied.
TEST_P(StepTest, shared_and_copied_pages_work_for_a_second_sequence) {
  constexpr size_t kShared = 70;  // two full pages and 6 tokens of a third
  const std::vector<TokenId> beginning = random_tokens(kShared, 8);
  std::vector<TokenId> a = beginning, b = beginning;
  for (TokenId token : random_tokens(30, 9)) a.push_back(token);
  for (TokenId token : random_tokens(30, 10)) b.push_back(token);
  StepRunner runner(model());
  TestSequence sa = runner.new_sequence(0), sb = runner.new_sequence(3);
  feed(runner, sa, beginning, 0);
  for (size_t g = 0; g < runner.groups().size(); ++g) {
    sb.pages[g] = sa.pages[g];
    sb.pages[g][2] = runner.allocate_page(static_cast<int>(g));
    runner.cache().copy_page(static_cast<int>(g), sa.pages[g][2], sb.pages[g][2]);
  }
  runner.cache().copy_state(sa.slot, sb.slot);
  Logits got_a, got_b;
  for (size_t at = kShared; at < a.size(); at += 10) {  // both in one step, each writing its own pages
    const int32_t position = static_cast<int32_t>(at);
    const std::vector<SequenceOutput> step =
        runner.step({{&sa, position, part(a, at, at + 10)}, {&sb, position, part(b, at, at + 10)}});
    append(got_a, step[0].logits);
    append(got_b, step[1].logits);
  }
  expect_equal(got_a, tail(run_alone(model(), a), kShared));
  expect_equal(got_b, tail(run_alone(model(), b), kShared));
}

TEST_P(RecurrentStepTest, a_copied_state_continues_like_the_original) {
  constexpr size_t kPrefix = 37;
  const std::vector<TokenId> tokens = random_tokens(60, 11);
  const Logits expected = tail(run_alone(model(), tokens), kPrefix);
  StepRunner runner(model());
  TestSequence sequence = runner.new_sequence(0);
  feed(runner, sequence, part(tokens, 0, kPrefix), 0);
  runner.cache().copy_state(0, 5);
  expect_equal(feed(runner, sequence, tokens, kPrefix), expected);  // advances slot 0, not its copy
  sequence.slot = 5;
  expect_equal(feed(runner, sequence, tokens, kPrefix), expected);
}

TEST_P(RecurrentStepTest, whole_scan_chunks_give_identical_logits_close_to_those_of_single_tokens) {
  const std::vector<TokenId> tokens = random_tokens(200, 21);
  const Logits by_token = run_alone(model(), tokens);
  const auto in_steps_of = [&](size_t n) {
    StepRunner runner(model());
    TestSequence sequence = runner.new_sequence(0);
    return feed(runner, sequence, tokens, 0, n);
  };
  const Logits whole = in_steps_of(200);
  expect_equal(in_steps_of(64), whole);
  expect_equal(in_steps_of(128), whole);
  double largest = 0, difference = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    largest = std::max(largest, std::abs(double{by_token[i]}));
    difference = std::max(difference, std::abs(double{whole[i]} - double{by_token[i]}));
  }
  EXPECT_LE(difference, 2e-2 * largest);  // quantization to 8 bits may round differently
}

// A verification step: the host keeps the first rows of a sequence and continues from the state after the last of them.
struct Verification {
  size_t n_drafts, n_sequences;
  bool has_decode, has_prefill;  // of further sequences in the same step
};

class VerifiedSequences {
 public:
  VerifiedSequences(StepRunner& runner, const Verification& shape) : runner_(runner), shape_(shape) {
    static constexpr std::array<size_t, 3> kPrompts = {59, 5, 90};  // the first one's rows include positions 63 and 64
    for (size_t s = 0; s < shape.n_sequences; ++s) {
      sequences_.push_back(runner.new_sequence(next_slot_++));
      n_prompt_.push_back(kPrompts[s]);
      tokens_.push_back(random_tokens(kPrompts[s] + shape.n_drafts + 1, 70 + static_cast<uint32_t>(s)));
      feed(runner, sequences_[s], part(tokens_[s], 0, n_prompt_[s]), 0);
    }
  }

  // All rows in one step, with the other sequences; compares its outputs.
  void verify() {
    TestSequence decoded = runner_.new_sequence(next_slot_++), prefilled = runner_.new_sequence(next_slot_++);
    const std::vector<TokenId> decoded_tokens = random_tokens(12, 80), prompt = random_tokens(70, 81);
    feed(runner_, decoded, part(decoded_tokens, 0, 11), 0);
    std::vector<SequenceTokens> batch;
    if (shape_.has_prefill) batch.push_back({&prefilled, 0, prompt});
    for (size_t s = 0; s < sequences_.size(); ++s) {
      std::vector<int>& slots = row_slots_.emplace_back(1, sequences_[s].slot);
      while (slots.size() <= shape_.n_drafts) slots.push_back(next_slot_++);
      const int32_t position = static_cast<int32_t>(n_prompt_[s]);
      batch.push_back({&sequences_[s], position, part(tokens_[s], n_prompt_[s], tokens_[s].size()), {}, true, slots});
    }
    if (shape_.has_decode) batch.push_back({&decoded, 11, {decoded_tokens[11]}});
    const std::vector<SequenceOutput> outputs = runner_.step(batch);
    size_t at = 0;
    if (shape_.has_prefill) expect_equal(outputs[at++].logits, runner_.step({{&plain_, 0, prompt}})[0].logits);
    for (size_t s = 0; s < sequences_.size(); ++s, ++at) {
      expect_equal(outputs[at].logits, expected(tokens_[s], n_prompt_[s]));
      for (size_t row = 0; row <= shape_.n_drafts; ++row) {
        const auto begin = outputs[at].logits.begin() + static_cast<ptrdiff_t>(row * kTinyVocabulary);
        EXPECT_EQ(outputs[at].sampled[row], std::max_element(begin, begin + kTinyVocabulary) - begin);
      }
    }
    if (shape_.has_decode) expect_equal(outputs[at].logits, expected(decoded_tokens, 11));
    if (shape_.has_decode) expect_continues(decoded, decoded_tokens);
    if (shape_.has_prefill) expect_equal(step_of(prefilled, 70), step_of(plain_after(prompt), 70));
  }

  // Keeps n_rows of sequence s. REQUIRES: called with falling n_rows: pages hold the kept rows.
  void expect_kept(size_t s, size_t n_rows) {
    TestSequence kept = sequences_[s];
    kept.slot = row_slots_[s][n_rows - 1];
    expect_continues(kept, part(tokens_[s], 0, n_prompt_[s] + n_rows));
  }

 private:
  // The logits of a run without drafts.
  Logits expected(const std::vector<TokenId>& tokens, size_t begin) {
    return tail(feed(runner_, plain_, tokens, 0), begin);
  }
  void expect_continues(TestSequence& sequence, std::vector<TokenId> tokens) {
    const size_t begin = tokens.size();
    for (const TokenId token : random_tokens(3, 90 + static_cast<uint32_t>(begin))) tokens.push_back(token);
    expect_equal(feed(runner_, sequence, tokens, begin, 1), expected(tokens, begin));
  }
  TestSequence& plain_after(const std::vector<TokenId>& tokens) {
    runner_.step({{&plain_, 0, tokens}});
    return plain_;
  }
  Logits step_of(TestSequence& sequence, int32_t position) {
    return runner_.step({{&sequence, position, {7}}})[0].logits;
  }

  StepRunner& runner_;
  const Verification shape_;
  int next_slot_ = 1;
  TestSequence plain_ = runner_.new_sequence(0);
  std::vector<TestSequence> sequences_;
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<size_t> n_prompt_;
  std::vector<std::vector<int>> row_slots_;
};

TEST_P(RecurrentStepTest, after_any_rejected_row_a_sequence_continues_like_one_without_drafts) {
  for (const Verification& shape : {Verification{1, 1, false, false},
                                    {3, 1, false, false},
                                    {7, 1, false, false},
                                    {1, 3, true, false},
                                    {3, 3, true, true},
                                    {7, 3, false, false}}) {
    SCOPED_TRACE(fmt::format("{} drafted tokens of {} sequences", shape.n_drafts, shape.n_sequences));
    StepRunner runner(model());
    VerifiedSequences sequences(runner, shape);
    sequences.verify();
    for (size_t s = 0; s < shape.n_sequences; ++s) {
      for (size_t n_rows = shape.n_drafts + 1; n_rows > 0; --n_rows) sequences.expect_kept(s, n_rows);
    }
  }
}

TEST_P(RecurrentStepTest, only_slots_of_rows_are_written) {
  const std::vector<TokenId> tokens = random_tokens(30, 91);
  StepRunner runner(model());
  TestSequence sequence = runner.new_sequence(0);
  feed(runner, sequence, part(tokens, 0, 25), 0);
  runner.cache().copy_state(0, 9);
  const auto state_of = [&](int slot) {
    std::vector<std::byte> bytes(runner.cache().state_bytes());
    EXPECT_TRUE(runner.cache().read_state(slot, bytes).ok());
    return bytes;
  };
  const std::vector<std::byte> before = state_of(0), unused = state_of(5);
  runner.step({{&sequence, 25, part(tokens, 25, 28), {}, true, {kNoSlot, 4, 3}}});
  EXPECT_EQ(state_of(0), before);
  EXPECT_EQ(state_of(5), unused);
  sequence.slot = 4;
  expect_equal(feed(runner, sequence, tokens, 27, 1), tail(run_alone(model(), tokens), 27));
  sequence.slot = 3;
  expect_equal(feed(runner, sequence, tokens, 28, 1), tail(run_alone(model(), tokens), 28));
  sequence.slot = 9;  // into the sequence's own slot, not after its first row
  runner.step({{&sequence, 25, part(tokens, 25, 28), {}, true, {3, 9, 4}}});
  expect_equal(feed(runner, sequence, tokens, 27, 1), tail(run_alone(model(), tokens), 27));
}

TEST_P(RecurrentStepTest, the_recurrent_state_matters) {
  const std::vector<TokenId> tokens = random_tokens(60, 12);
  StepRunner runner(model());
  TestSequence sequence = runner.new_sequence(0);
  feed(runner, sequence, part(tokens, 0, 37), 0);
  sequence.slot = 5;  // never written
  EXPECT_NE(feed(runner, sequence, tokens, 37), tail(run_alone(model(), tokens), 37));
}

TEST_P(StepTest, pages_and_states_can_be_saved_to_host_memory_and_restored) {
  constexpr size_t kPrefix = 45;
  const std::vector<TokenId> tokens = random_tokens(70, 13);
  StepRunner runner(model());
  CacheMemory& cache = runner.cache();
  TestSequence sequence = runner.new_sequence(0);
  feed(runner, sequence, part(tokens, 0, kPrefix), 0);
  std::vector<std::byte> state(cache.state_bytes());
  ASSERT_TRUE(cache.read_state(0, state).ok());
  std::vector<std::vector<std::byte>> pages;
  for (size_t g = 0; g < runner.groups().size(); ++g) {
    for (PageId page : sequence.pages[g]) {
      pages.emplace_back(cache.page_bytes(static_cast<int>(g)));
      ASSERT_TRUE(cache.read_page(static_cast<int>(g), page, pages.back()).ok());
    }
  }
  feed(runner, sequence, random_tokens(70, 14), 0);  // overwrites everything
  TestSequence restored = runner.new_sequence(4);
  ASSERT_TRUE(cache.write_state(4, state).ok());
  size_t next = 0;
  for (size_t g = 0; g < runner.groups().size(); ++g) {
    for (size_t i = 0; i < 2; ++i, ++next) {
      restored.pages[g].push_back(runner.allocate_page(static_cast<int>(g)));
      ASSERT_TRUE(cache.write_page(static_cast<int>(g), restored.pages[g].back(), pages[next]).ok());
    }
  }
  expect_equal(feed(runner, restored, tokens, kPrefix), tail(run_alone(model(), tokens), kPrefix));
}

// Greedy decoding that waits for each token and sends it back.
struct Greedy {
  std::vector<TokenId> tokens;
  Logits logits;  // of the decode rows
};
Greedy decode_on_host(const LoadedModel& model, const std::vector<TokenId>& prompt, size_t n_steps) {
  StepRunner runner(model);
  TestSequence sequence = runner.new_sequence(0);
  Greedy out{{runner.step({{&sequence, 0, prompt}})[0].sampled.back()}, {}};
  for (size_t i = 0; i < n_steps; ++i) {
    const int32_t position = static_cast<int32_t>(prompt.size() + i);
    const SequenceOutput step = runner.step({{&sequence, position, {out.tokens.back()}}})[0];
    out.tokens.push_back(step.sampled[0]);
    append(out.logits, step.logits);
  }
  return out;
}

TEST_P(StepTest, tokens_fed_on_the_device_with_two_steps_in_flight_equal_tokens_fed_by_the_host) {
  constexpr size_t kSteps = 12;
  const std::vector<TokenId> prompt_a = random_tokens(40, 15), prompt_b = random_tokens(21, 16);
  StepRunner runner(model());
  TestSequence a = runner.new_sequence(1), b = runner.new_sequence(3);
  std::array<Greedy, 2> got;
  const auto record = [&](const StepOutput& out) {  // two decode rows
    for (size_t i = 0; i < 2; ++i) {
      got[i].tokens.push_back(out.sampled[i]);
      const std::span<const float> row = out.logits.subspan(i * kTinyVocabulary, kTinyVocabulary);
      got[i].logits.insert(got[i].logits.end(), row.begin(), row.end());
    }
  };
  runner.start({{&a, 0, prompt_a}, {&b, 0, prompt_b}});
  for (size_t i = 0; i < kSteps; ++i) {
    const int32_t step = static_cast<int32_t>(i);
    runner.start({{&a, 40 + step, {kFromDevice}}, {&b, 21 + step, {kFromDevice}}});
    const StepOutput out = runner.wait();
    if (i > 0) {
      record(out);
    } else {
      got[0].tokens.push_back(out.sampled[39]);
      got[1].tokens.push_back(out.sampled[60]);
    }
  }
  record(runner.wait());
  const Greedy expected_a = decode_on_host(model(), prompt_a, kSteps);
  const Greedy expected_b = decode_on_host(model(), prompt_b, kSteps);
  EXPECT_EQ(got[0].tokens, expected_a.tokens);
  EXPECT_EQ(got[1].tokens, expected_b.tokens);
  expect_equal(got[0].logits, expected_a.logits);
  expect_equal(got[1].logits, expected_b.logits);
}

TEST_P(StepTest, an_output_stays_valid_until_the_second_start_after_its_own) {
  const std::vector<TokenId> tokens = random_tokens(50, 17);
  const Logits expected = run_alone(model(), tokens);
  StepRunner runner(model());
  TestSequence sequence = runner.new_sequence(0);
  runner.start({{&sequence, 0, part(tokens, 0, 20)}});
  runner.start({{&sequence, 20, part(tokens, 20, 50)}});
  const StepOutput first = runner.wait();
  const StepOutput second = runner.wait();
  Logits got(first.logits.begin(), first.logits.end());
  got.insert(got.end(), second.logits.begin(), second.logits.end());
  expect_equal(got, expected);
}

TEST_P(StepTest, the_number_of_threads_does_not_change_the_logits) {
  const std::vector<TokenId> tokens = random_tokens(60, 18);
  expect_equal(run_alone(loaded(GetParam(), 2), tokens), run_alone(model(), tokens));
}

// Releases pages that are entirely older than the window of the step's first row.
void release_old_pages(const StepRunner& runner, TestSequence& sequence, int position) {
  for (size_t g = 0; g < runner.groups().size(); ++g) {
    const int window = runner.groups()[g].window;
    if (window == 0) continue;
    const int oldest = std::max(0, position - window + 1);
    for (int page = 0; page < oldest / kPageTokens; ++page) sequence.pages[g][static_cast<size_t>(page)] = kNoPage;
  }
}

TEST_P(SlidingStepTest, pages_older_than_the_window_are_never_read) {
  const std::vector<TokenId> tokens = random_tokens(130, 19);
  const Logits expected = run_alone(model(), tokens);
  for (const size_t chunk : {1u, 13u}) {  // with chunks of 1 every position is the first of its step
    SCOPED_TRACE(chunk);
    StepRunner runner(model());
    TestSequence sequence = runner.new_sequence(0);
    Logits got;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const int32_t position = static_cast<int32_t>(at);
      release_old_pages(runner, sequence, position);
      append(got, runner.step({{&sequence, position, part(tokens, at, at + chunk)}})[0].logits);
    }
    EXPECT_EQ(std::ranges::count(sequence.pages.back(), kNoPage), 3);  // of five pages; the window is 20
    expect_equal(got, expected);
  }
}

// Row k: token k with the trunk's hidden state of position k - 1.
Logits draft(StepRunner& runner, TestSequence& sequence, const std::vector<TokenId>& tokens,
             const std::vector<float>& hidden, size_t chunk) {
  const size_t dim = hidden.size() / tokens.size();
  Logits out;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t end = std::min(tokens.size(), at + chunk);
    const std::vector<float> rows(hidden.begin() + static_cast<ptrdiff_t>(at * dim),
                                  hidden.begin() + static_cast<ptrdiff_t>(end * dim));
    append(out, runner.draft_step({{&sequence, static_cast<int32_t>(at), part(tokens, at, end), rows}})[0].logits);
  }
  return out;
}

TEST_P(DraftStepTest, the_draft_graph_shares_pages_with_the_trunk_for_any_chunk_size) {
  const std::vector<TokenId> tokens = random_tokens(60, 20);
  StepRunner runner(model());
  TestSequence sequence = runner.new_sequence(0);
  const SequenceOutput trunk = runner.step({{&sequence, 0, part(tokens, 0, 40)}})[0];
  std::vector<float> hidden(trunk.hidden.size() / 40, 0.0f);  // zeros for the first row
  hidden.insert(hidden.end(), trunk.hidden.begin(), trunk.hidden.end());
  const std::vector<TokenId> drafted = part(tokens, 0, 41);
  const Logits whole = draft(runner, sequence, drafted, hidden, 41);
  for (const size_t chunk : {1u, 7u, 32u}) {
    SCOPED_TRACE(chunk);
    expect_equal(draft(runner, sequence, drafted, hidden, chunk), whole);
  }
  expect_equal(feed(runner, sequence, tokens, 40),
               tail(run_alone(model(), tokens), 40));  // the trunk's cache is unchanged
}

// Until its class is prepared, and if that fails, a step runs in a larger one (gpu::StepPlan).
TEST_P(StepClassTest, a_step_in_a_larger_class_gives_the_same_logits) {
  const std::vector<TokenId> tokens = random_tokens(33, 41);
  const auto in_classes_from = [&](int min_class_tokens) {
    StepRunner runner(model(), StepRunner::PageOrder::ascending, k_f16, min_class_tokens);
    TestSequence sequence = runner.new_sequence(2);
    Logits out;
    size_t at = 0;
    for (const size_t n : {1u, 3u, 20u, 8u, 1u}) {
      const std::vector<SequenceTokens> step = {{&sequence, static_cast<int32_t>(at), part(tokens, at, at + n)}};
      append(out, runner.step(step)[0].logits);
      at += n;
    }
    return out;
  };
  const Logits in_own_classes = in_classes_from(1);
  for (const int min_class_tokens : {32, StepRunner::kMaxTokens}) {
    SCOPED_TRACE(min_class_tokens);
    expect_equal(in_classes_from(min_class_tokens), in_own_classes);
  }
}

// The classes of a plan share their memory.
TEST_P(StepClassTest, steps_of_two_classes_in_flight_do_not_affect_each_other) {
  constexpr size_t kSteps = 8, kChunk = 5;  // of each sequence
  const std::vector<TokenId> a = random_tokens(kSteps, 42), b = random_tokens(kSteps * kChunk, 43);
  StepRunner runner(model());
  TestSequence sa = runner.new_sequence(0), sb = runner.new_sequence(3);
  Logits got_a, got_b;
  const auto wait_into = [&](Logits& out) {
    const StepOutput step = runner.wait();
    out.insert(out.end(), step.logits.begin(), step.logits.end());
  };
  for (size_t i = 0; i < kSteps; ++i) {
    runner.start({{&sa, static_cast<int32_t>(i), {a[i]}}});
    if (i > 0) wait_into(got_b);
    runner.start({{&sb, static_cast<int32_t>(i * kChunk), part(b, i * kChunk, (i + 1) * kChunk)}});
    wait_into(got_a);
  }
  wait_into(got_b);
  expect_equal(got_a, run_alone(model(), a));
  expect_equal(got_b, run_alone(model(), b));
}

bool has_state(const Model& model) { return state_bytes(model.caches) > 0; }
bool slides(const Model& model) { return page_groups(model.caches).back().window > 0; }
bool drafts(const Model& model) { return model.draft.has_value(); }

// Vulkan on the CPU compiles each kernel for seconds, and an emulated device is slow: there only one model of each kind
// (dense, experts, recurrent, windows, sinks) is tested; oracle_test covers all of them.
bool is_tested(const BackendInfo& backend, const std::string& model) {
  static constexpr std::array<std::string_view, 5> kOnCpuVulkan = {"qwen3", "qwen3moe", "qwen35moe", "gemma3",
                                                                   "gpt-oss"};
  const bool is_slow = &backend == cpu_vulkan() || &backend == emulated_vulkan();
  return !is_slow || std::ranges::find(kOnCpuVulkan, model) != kOnCpuVulkan.end();
}

// On every available backend. GoogleTest reports a suite without a model as uninstantiated, which fails.
std::vector<Subject> models_that(bool (*fits)(const Model&)) {
  std::vector<Subject> subjects;
  for (const BackendInfo* backend : available_backends()) {
    for (const TinyModel& model : tiny_models()) {
      const Subject subject{std::string(backend->name), model.name};
      if (!is_tested(*backend, model.name)) continue;
      if (fits(loaded(subject).model())) subjects.push_back(subject);
    }
  }
  return subjects;
}
std::vector<Subject> models_on_gpus() {
  std::vector<Subject> subjects = models_that([](const Model&) { return true; });
  std::erase_if(subjects, [](const Subject& s) { return !find_backend(s.backend).value()->step_kernels; });
  return subjects;
}
std::vector<Subject> all_models() {
  return models_that([](const Model&) { return true; });
}

std::string test_name(const testing::TestParamInfo<Subject>& info) {
  std::string name = info.param.backend + "_" + info.param.model;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(TinyModels, StepTest, testing::ValuesIn(all_models()), test_name);
INSTANTIATE_TEST_SUITE_P(TinyModels, RecurrentStepTest, testing::ValuesIn(models_that(has_state)), test_name);
INSTANTIATE_TEST_SUITE_P(TinyModels, SlidingStepTest, testing::ValuesIn(models_that(slides)), test_name);
INSTANTIATE_TEST_SUITE_P(TinyModels, DraftStepTest, testing::ValuesIn(models_that(drafts)), test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StepClassTest);  // without a GPU, emulated or on the CPU
INSTANTIATE_TEST_SUITE_P(TinyModels, StepClassTest, testing::ValuesIn(models_on_gpus()), test_name);

}  // namespace
}  // namespace zinc
