// How a conformance case is built, run on a backend and compared with its expectation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/support/conformance.h"

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
  if (format.quantize) {
    std::vector<float> values(n_blocks * format.block_elems);
    std::uniform_real_distribution<float> even(-1, 1);
    for (float& x : values) x = even(random);
    format.quantize(values, out);
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

// ---- running a case ----

int n_slots(const Case& c) {
  int n = 0;
  for (const CaseStep& step : c.steps) {
    for (const TokenChunk& chunk : step.chunks) n = std::max(n, chunk.slot + 1);
  }
  return n;
}

int n_columns(const Case& c) {
  int n = 0;
  for (const CaseStep& step : c.steps) {
    for (const TokenChunk& chunk : step.chunks)
      n = std::max(n, (chunk.first_position + chunk.n_tokens - 1) / kPageTokens + 1);
  }
  return n;
}

// Pages are scattered (in reverse order); pages before the window of a chunk are released.
std::vector<PageId> page_entries(const Case& c, const CaseStep& step, int window) {
  const int columns = n_columns(c), n_pages = n_slots(c) * columns;
  std::vector<PageId> entries;
  for (const TokenChunk& chunk : step.chunks) {
    const int oldest = window > 0 ? std::max(0, chunk.first_position - window + 1) : 0;
    for (int column = 0; column < columns; ++column) {
      const bool is_past = (column + 1) * kPageTokens <= oldest;
      entries.push_back(is_past ? kNoPage : n_pages - 1 - (chunk.slot * columns + column));
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
    bucket.max_seqs = std::max(bucket.max_seqs, static_cast<int>(step.chunks.size()));
    for (const TokenChunk& chunk : step.chunks) {
      bucket.n_rope_scalings = std::max(bucket.n_rope_scalings, chunk.rope_scaling + 1);
    }
  }
  bucket.max_outputs = bucket.max_tokens;
  ZINC_TRY(plan, backend.compile(c.graph, *loaded.weights, *loaded.cache, bucket));
  loaded.plan = std::move(plan);
  if (Status s = loaded.plan->wait_until_prepared(); !s.ok()) return s.error();  // each step runs its own class
  return loaded;
}

Result<StepOutput> run_step(const Case& c, const CaseStep& step, Plan& plan) {
  std::vector<int32_t> positions, seq_begin = {0}, slots, rope_scalings, logit_rows(step.output_rows.size());
  for (const TokenChunk& chunk : step.chunks) {
    for (int t = 0; t < chunk.n_tokens; ++t) positions.push_back(chunk.first_position + t);
    seq_begin.push_back(static_cast<int32_t>(positions.size()));
    slots.push_back(chunk.slot);
    rope_scalings.push_back(chunk.rope_scaling);
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
              .rope_scalings = rope_scalings,
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
      return fmt::format("element {} is {}, expected {}: error {:.2e}, allowed {:.2e}", i, got[i], expected.values[i],
                         error, allowed);
    }
  }
  return "";
}

double largest_element(const CaseStep& step) {
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
  const double largest = largest_element(step);
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
    if ((*f)->gguf_id == kNoGgufType) continue;
    if ((*f)->quantize || std::filesystem::exists(blocks_path(**f))) formats.push_back(*f);
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

// ---- building a case ----

CaseBuilder::CaseBuilder(std::string_view name)
    : random_(std::accumulate(name.begin(), name.end(), 2166136261u,
                              [](uint32_t hash, char c) { return (hash ^ static_cast<uint8_t>(c)) * 16777619u; })),
      g_(std::string(name), case_.weights->source()) {}

std::vector<Value> CaseBuilder::inputs(std::initializer_list<Shape> shapes) {
  for (const Shape& shape : shapes) {
    widths_.push_back(shape.elems());
    generators_.push_back(
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

Value CaseBuilder::weight(const Shape& shape, const Format& format) {
  const std::string name = fmt::format("w{}", weight_names_.size());
  const size_t n_blocks = static_cast<size_t>(shape.elems()) / format.block_elems;
  case_.weights->add_blocks(name, shape, format, random_blocks(format, n_blocks, random_));
  const Value value = g_.weight(name, shape);
  weight_names_[value.id] = name;
  return value;
}

Value CaseBuilder::weight_of(const Shape& shape, const std::vector<float>& values) {
  const std::string name = fmt::format("w{}", weight_names_.size());
  case_.weights->add(name, shape, values);
  const Value value = g_.weight(name, shape);
  weight_names_[value.id] = name;
  return value;
}

Doubles CaseBuilder::dequantized(Value weight) const {
  const TensorView& view = *case_.weights->find(weight_names_.at(weight.id));
  std::vector<float> floats(static_cast<size_t>(view.shape.elems()));
  view.format->dequantize(view.bytes, floats);
  return Doubles(floats.begin(), floats.end());
}

void CaseBuilder::add_step(std::vector<TokenChunk> chunks, const Expect& expect,
                           const std::function<bool(int)>& is_output) {
  CaseStep step;
  step.chunks = std::move(chunks);
  for (const TokenChunk& chunk : step.chunks) {
    for (int t = 0; t < chunk.n_tokens; ++t) {
      Token token{chunk.slot,
                  chunk.first_position + t,
                  chunk.rope_scaling,
                  static_cast<TokenId>(random_() % static_cast<uint32_t>(n_vocabulary_)),
                  {}};
      for (size_t i = 0; i < widths_.size(); ++i) {
        Doubles& in = token.in.emplace_back();
        for (int64_t k = 0; k < widths_[i]; ++k) {
          step.hidden.push_back(generators_[i](random_));
          in.push_back(step.hidden.back());
        }
      }
      const int row = static_cast<int>(step.tokens.size());
      step.tokens.push_back(token.id);
      ExpectedRow expected = expect(token);
      if (is_output && !is_output(row)) continue;
      step.output_rows.push_back(row);
      step.expected.push_back(std::move(expected));
    }
  }
  case_.steps.push_back(std::move(step));
}

Case CaseBuilder::finish(Value out, std::vector<std::vector<TokenChunk>> steps, const Expect& expect,
                         const std::function<bool(int)>& is_output) {
  g_.logits(has_rows_ ? g_.flatten(out) : g_.rows(g_.flatten(out)));
  Result<Graph> graph = g_.finish();
  if (!graph.ok()) fmt::print(stderr, "{}\n", graph.error().message);
  ZINC_CHECK(graph.ok());
  case_.graph = std::move(graph.value());
  for (std::vector<TokenChunk>& chunks : steps) add_step(std::move(chunks), expect, is_output);
  return std::move(case_);
}

}  // namespace zinc::conformance
