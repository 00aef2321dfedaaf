// Every case on every backend.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/support/conformance.h"
#include "tests/support/tested_backends.h"

namespace zinc::conformance {
namespace {

// ---- weights ----

std::filesystem::path blocks_path(const Format& format) {
  std::string name(format.name);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return std::filesystem::path(ZINC_SOURCE_DIR) / "tests" / "data" / "quants" / (name + ".bin");
}

std::vector<std::byte> random_blocks(const Format& format, size_t n_blocks, std::mt19937& random) {
  std::vector<std::byte> out(n_blocks * format.block_bytes);
  if (format.encode) {
    std::vector<float> numbers(n_blocks * format.block_elems);
    std::uniform_real_distribution<float> even(-1, 1);
    for (float& x : numbers) x = even(random);
    format.encode(numbers, out);
    return out;
  }
  std::ifstream file(blocks_path(format), std::ios::binary);
  const std::string data(std::istreambuf_iterator<char>(file), {});
  const size_t n_known = data.size() / format.block_bytes;
  ZINC_CHECK(n_known > 0);
  for (size_t i = 0; i < n_blocks; ++i) {
    const char* block = data.data() + (random() % n_known) * format.block_bytes;
    std::memcpy(out.data() + i * format.block_bytes, block, format.block_bytes);
  }
  return out;
}

// ---- running ----

int n_slots(const Case& c) {
  int n = 0;
  for (const CaseStep& step : c.steps) {
    for (const TokenRun& run : step.runs) n = std::max(n, run.slot + 1);
  }
  return n;
}

int n_columns(const Case& c) {
  int n = 0;
  for (const CaseStep& step : c.steps) {
    for (const TokenRun& run : step.runs) n = std::max(n, (run.first_position + run.n_tokens - 1) / kPageTokens + 1);
  }
  return n;
}

// Pages lie scattered (the last comes first), and pages before the window of a run are given back.
std::vector<PageId> page_entries(const Case& c, const CaseStep& step, int window) {
  const int columns = n_columns(c), n_pages = n_slots(c) * columns;
  std::vector<PageId> entries;
  for (const TokenRun& run : step.runs) {
    const int oldest = window > 0 ? std::max(0, run.first_position - window + 1) : 0;
    for (int column = 0; column < columns; ++column) {
      const bool is_past = (column + 1) * kPageTokens <= oldest;
      entries.push_back(is_past ? kNoPage : n_pages - 1 - (run.slot * columns + column));
    }
  }
  return entries;
}

struct Loaded {
  std::unique_ptr<DeviceWeights> weights;
  std::unique_ptr<CacheMemory> cache;
  std::unique_ptr<Plan> plan;
};

Result<Loaded> load(const Case& c, Backend& backend) {
  Loaded loaded;
  const Graph* const graph = &c.graph;
  ZINC_TRY(weights, backend.upload({&graph, 1}, [](auto) {}));
  loaded.weights = std::move(weights);
  const std::vector<PageGroup> groups = page_groups(c.graph.caches());
  const CacheSizes sizes{.n_pages = std::vector<int>(groups.size(), n_slots(c) * n_columns(c)),
                         .n_slots = n_slots(c),
                         .kv_format = c.kv_format};
  ZINC_TRY(cache, backend.allocate_cache(c.graph.caches(), sizes));
  loaded.cache = std::move(cache);
  Bucket bucket;
  for (const CaseStep& step : c.steps) {
    bucket.max_tokens = std::max(bucket.max_tokens, static_cast<int>(step.tokens.size()));
    bucket.max_seqs = std::max(bucket.max_seqs, static_cast<int>(step.runs.size()));
  }
  bucket.max_outputs = bucket.max_tokens;
  ZINC_TRY(plan, backend.compile(c.graph, *loaded.weights, *loaded.cache, bucket));
  loaded.plan = std::move(plan);
  return loaded;
}

Result<StepOutput> run_step(const Case& c, const CaseStep& step, Plan& plan) {
  std::vector<int32_t> positions, seq_begin = {0}, slots, logit_rows(step.output_rows.size());
  for (const TokenRun& run : step.runs) {
    for (int t = 0; t < run.n_tokens; ++t) positions.push_back(run.first_position + t);
    seq_begin.push_back(static_cast<int32_t>(positions.size()));
    slots.push_back(run.slot);
  }
  std::vector<std::vector<PageId>> entries;
  for (const PageGroup& group : page_groups(c.graph.caches())) entries.push_back(page_entries(c, step, group.window));
  std::vector<PageTable> tables;
  for (const std::vector<PageId>& group : entries) tables.push_back({group, n_columns(c)});
  std::iota(logit_rows.begin(), logit_rows.end(), 0);
  plan.start({.tokens = step.tokens,
              .positions = positions,
              .seq_begin = seq_begin,
              .slots = slots,
              .page_tables = tables,
              .output_rows = step.output_rows,
              .logit_rows = logit_rows,
              .hidden = step.hidden});
  return plan.wait();
}

std::string compare_row(std::span<const float> got, const ExpectedRow& expected, double allowed) {
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double error = std::abs(got[i] - expected.values[i]);
    if (!(error <= allowed)) {
      return fmt::format("number {} is {}, expected {}: off by {:.2e}, allowed {:.2e}", i, got[i], expected.values[i],
                         error, allowed);
    }
  }
  return "";
}

double largest_number(const CaseStep& step) {
  double largest = 1e-3;
  for (const ExpectedRow& row : step.expected) {
    for (double x : row.values) largest = std::max(largest, std::abs(x));
  }
  return largest;
}

std::string compare_step(const StepOutput& output, const CaseStep& step, double tolerance) {
  const size_t width = step.expected.front().values.size();
  if (output.logits.size() != width * step.expected.size() || output.sampled.size() != step.expected.size()) {
    return fmt::format("{} logits and {} sampled tokens, expected {} rows of {}", output.logits.size(),
                       output.sampled.size(), step.expected.size(), width);
  }
  const double largest = largest_number(step);
  for (size_t r = 0; r < step.expected.size(); ++r) {
    const std::span<const float> row = output.logits.subspan(r * width, width);
    const double allowed = tolerance * std::max(largest, step.expected[r].magnitude);
    const std::string mismatch = compare_row(row, step.expected[r], allowed);
    if (!mismatch.empty()) return fmt::format("token {}: {}", step.output_rows[r], mismatch);
    const auto first = std::ranges::max_element(row) - row.begin();
    if (output.sampled[r] != first) return fmt::format("row {}: sampled {}, expected {}", r, output.sampled[r], first);
  }
  return "";
}

}  // namespace

std::vector<const Format*> weight_formats() {
  std::vector<const Format*> formats;
  for (const Format* const* f = kFormats; *f; ++f) {
    if ((*f)->gguf_id == kNotInFiles) continue;
    if ((*f)->encode || std::filesystem::exists(blocks_path(**f))) formats.push_back(*f);
  }
  return formats;
}

std::string first_mismatch(const Case& c, Backend& backend) {
  const Result<Loaded> loaded = load(c, backend);
  if (!loaded.ok()) return loaded.error().message;
  for (size_t i = 0; i < c.steps.size(); ++i) {
    const Result<StepOutput> output = run_step(c, c.steps[i], *loaded.value().plan);
    if (!output.ok()) return output.error().message;
    const std::string mismatch = compare_step(output.value(), c.steps[i], c.tolerance);
    if (!mismatch.empty()) return fmt::format("step {}: {}", i, mismatch);
  }
  return "";
}

// ---- making ----

CaseMaker::CaseMaker(std::string_view name)
    : random_(std::accumulate(name.begin(), name.end(), 2166136261u,
                              [](uint32_t hash, char c) { return (hash ^ static_cast<uint8_t>(c)) * 16777619u; })),
      g_(std::string(name), case_.weights->source()) {}

std::vector<Value> CaseMaker::inputs(std::initializer_list<Shape> shapes) {
  for (const Shape& shape : shapes) {
    widths_.push_back(shape.elems());
    draws_.push_back(
        [even = std::uniform_real_distribution<float>(-1, 1)](std::mt19937& r) mutable { return even(r); });
  }
  const Value all = g_.hidden_in(std::accumulate(widths_.begin(), widths_.end(), int64_t{0}));
  std::vector<Value> values;
  int64_t begin = 0;
  for (const Shape& shape : shapes) {
    values.push_back(g_.view(g_.slice(all, begin, shape.elems()), shape));
    begin += shape.elems();
  }
  return values;
}

Value CaseMaker::weight(const Shape& shape, const Format& format) {
  const std::string name = fmt::format("w{}", weight_names_.size());
  const size_t n_blocks = static_cast<size_t>(shape.elems()) / format.block_elems;
  case_.weights->add_blocks(name, shape, format, random_blocks(format, n_blocks, random_));
  const Value value = g_.weight(name, shape);
  weight_names_[value.id] = name;
  return value;
}

Value CaseMaker::weight_of(const Shape& shape, const std::vector<float>& numbers) {
  const std::string name = fmt::format("w{}", weight_names_.size());
  case_.weights->add(name, shape, numbers);
  const Value value = g_.weight(name, shape);
  weight_names_[value.id] = name;
  return value;
}

Numbers CaseMaker::numbers(Value weight) const {
  const TensorView& view = *case_.weights->find(weight_names_.at(weight.id));
  std::vector<float> decoded(static_cast<size_t>(view.shape.elems()));
  view.format->decode(view.bytes, decoded);
  return Numbers(decoded.begin(), decoded.end());
}

void CaseMaker::add_step(std::vector<TokenRun> runs, const Expect& expect, const std::function<bool(int)>& wanted) {
  CaseStep step;
  step.runs = std::move(runs);
  for (const TokenRun& run : step.runs) {
    for (int t = 0; t < run.n_tokens; ++t) {
      Token token{
          run.slot, run.first_position + t, static_cast<TokenId>(random_() % static_cast<uint32_t>(n_vocabulary_)), {}};
      for (size_t i = 0; i < widths_.size(); ++i) {
        Numbers& in = token.in.emplace_back();
        for (int64_t k = 0; k < widths_[i]; ++k) {
          step.hidden.push_back(draws_[i](random_));
          in.push_back(step.hidden.back());
        }
      }
      const int row = static_cast<int>(step.tokens.size());
      step.tokens.push_back(token.id);
      ExpectedRow expected = expect(token);
      if (wanted && !wanted(row)) continue;
      step.output_rows.push_back(row);
      step.expected.push_back(std::move(expected));
    }
  }
  case_.steps.push_back(std::move(step));
}

Case CaseMaker::finish(Value out, std::vector<std::vector<TokenRun>> steps, const Expect& expect,
                       const std::function<bool(int)>& wanted) {
  g_.logits(has_rows_ ? g_.flat(out) : g_.rows(g_.flat(out)));
  Result<Graph> graph = g_.finish();
  if (!graph.ok()) fmt::print(stderr, "{}\n", graph.error().message);
  ZINC_CHECK(graph.ok());
  case_.graph = std::move(graph.value());
  for (std::vector<TokenRun>& runs : steps) add_step(std::move(runs), expect, wanted);
  return std::move(case_);
}

namespace {

std::vector<CaseSource> all_cases() {
  std::vector<CaseSource> all;
  for (const auto& family :
       {linear_cases, norm_rope_cases, attention_cases, elementwise_cases, moe_cases, recurrent_cases, fused_cases}) {
    std::ranges::move(family(), std::back_inserter(all));
  }
  return all;
}

std::string identifier(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// Rounding to 8 bits moves a number by up to 1/254 of the largest of its block.
constexpr double kEightBitTolerance = 4e-3;

bool multiplies_quantized(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    const bool multiplies = node.op == Op::linear || node.op == Op::moe_linear;
    return multiplies && graph.info(node.in[1]).weight.format->block_elems > 1;
  });
}

// Rounding to halves moves a number by up to 1/2048 of itself.
constexpr double kHalfTolerance = 5e-4;

class Conformance : public testing::TestWithParam<std::tuple<const BackendInfo*, CaseSource>> {};

TEST_P(Conformance, the_backend_computes_what_is_expected) {
  const auto& [info, source] = GetParam();
  if (!info->usable()) GTEST_SKIP() << info->name << " does not run on this machine";
  Result<std::unique_ptr<Backend>> backend = info->open(0);
  ASSERT_TRUE(backend.ok()) << backend.error().message;  // usable, so it must open
  Case c = source.make(source.name);
  if (info->product_bits == 8 && multiplies_quantized(c.graph)) c.tolerance = std::max(c.tolerance, kEightBitTolerance);
  if (info->attention_bits == 16 && c.kv_format->name != "f32") c.tolerance = std::max(c.tolerance, kHalfTolerance);
  if (c.kv_format == &k_fp8 && !info->keeps_fp8) {
    const std::string refusal = first_mismatch(c, *backend.value());
    EXPECT_NE(refusal.find("as 'fp8'; it has f32, f16 and q8_0"), std::string::npos) << refusal;
    return;
  }
  EXPECT_EQ(first_mismatch(c, *backend.value()), "") << source.name;
}
INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         testing::Combine(testing::ValuesIn(tested_backends()), testing::ValuesIn(all_cases())),
                         [](const auto& info) {
                           return identifier(
                               fmt::format("{} {}", std::get<0>(info.param)->name, std::get<1>(info.param).name));
                         });

TEST(ConformanceCheck, sees_one_wrong_number_in_any_row) {
  std::unique_ptr<Backend> backend = std::move(find_backend("reference").value()->open(1).value());
  Case c = elementwise_cases().front().make("check");
  ASSERT_EQ(first_mismatch(c, *backend), "");
  double& last = c.steps.back().expected.back().values.back();
  last += 1e-3;
  EXPECT_NE(first_mismatch(c, *backend), "");
}

TEST(ConformanceCheck, every_op_has_a_case) {
  std::array<bool, kOpCount> seen{};
  for (const CaseSource& source : all_cases()) {
    const Case c = source.make(source.name);
    for (const Node& node : c.graph.nodes()) seen[static_cast<size_t>(node.op)] = true;
  }
  for (size_t op = 0; op < kOpCount; ++op) EXPECT_TRUE(seen[op]) << op_name(static_cast<Op>(op));
}

}  // namespace
}  // namespace zinc::conformance
