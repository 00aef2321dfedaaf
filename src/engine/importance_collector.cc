#include "engine/importance_collector.h"

#include <algorithm>
#include <bit>

namespace zinc {
namespace {

constexpr size_t kMaxKeptBytes = size_t{2} << 30;  // of a step's activations
constexpr int kMinStepTokens = 16;
constexpr double kMaxSum = 1e30;    // the total of 1e8 windows is a float
constexpr size_t kRowsPerSum = 16;  // summed in float before they are added in double

// The output head reads the rows whose logits are requested; all rows are in the value that they are gathered from.
Value before_rows(const Graph& graph, Value v) {
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::rows && node.out[0] == v) return node.in[0];
  }
  return v;
}

size_t kept_bytes_per_token(const Graph& graph) {
  size_t n = 0;
  for (int32_t i = 0; i < graph.n_values(); ++i) {
    const ValueInfo& info = graph.info(Value{i});
    if (info.rows == Rows::tokens) n += static_cast<size_t>(info.shape.elems()) * sizeof(float);
  }
  return n;
}

void add_squares(std::span<const float> x, std::span<double> sums) {
  for (size_t j = 0; j < x.size(); ++j) sums[j] += double{x[j]} * double{x[j]};
}

// x: [rows, n_columns]
void add_all_squares(std::span<const float> x, std::span<float> row_sums, std::span<double> sums) {
  const size_t n = sums.size();
  for (size_t begin = 0; begin < x.size(); begin += kRowsPerSum * n) {
    std::ranges::fill(row_sums, 0.0F);
    const size_t end = std::min(x.size(), begin + kRowsPerSum * n);
    for (size_t at = begin; at < end; at += n) {
      for (size_t j = 0; j < n; ++j) row_sums[j] += x[at + j] * x[at + j];
    }
    for (size_t j = 0; j < n; ++j) sums[j] += row_sums[j];
  }
}

bool is_collected(std::string_view weight, bool is_output_head, const ImportanceOptions& options) {
  return weight.starts_with("blk.") || (is_output_head && options.has_output_head);
}

}  // namespace

ImportanceCollector::ImportanceCollector(const ModelInstance& model, ImportanceOptions options)
    : model_(&model),
      options_(std::move(options)),
      threads_(std::make_unique<ThreadPool>(options_.n_threads > 0 ? options_.n_threads : default_thread_count())) {}

Result<ImportanceCollector> ImportanceCollector::create(const ModelInstance& model, ImportanceOptions options) {
  ImportanceCollector collector(model, std::move(options));
  collector.find_inputs(model.model().graph);
  if (Status created = collector.create_runner(); !created.ok()) return created.error();
  return collector;
}

void ImportanceCollector::find_inputs(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::linear && node.op != Op::moe_linear) continue;
    const ValueInfo& weight = graph.info(node.in[1]);
    const Value x = before_rows(graph, node.in[0]);
    if (!is_collected(weight.name, x != node.in[0], options_)) continue;
    const Value ids = node.op == Op::moe_linear ? node.in[2] : Value{};
    const size_t n_mat = ids ? static_cast<size_t>(weight.shape[0]) : 1;
    const size_t n_columns = static_cast<size_t>(weight.shape.inner());
    const auto is_same = [&](const LayerInput& input) {
      return input.x == x && input.ids == ids && input.n_mat == n_mat && input.n_columns == n_columns;
    };
    auto found = std::ranges::find_if(inputs_, is_same);
    if (found == inputs_.end()) {
      LayerInput input{.x = x, .ids = ids, .n_mat = n_mat, .n_columns = n_columns};
      input.sums.resize(n_mat * n_columns);
      input.counts.resize(n_mat);
      input.row_sums.resize(n_columns);
      found = inputs_.insert(inputs_.end(), std::move(input));
    }
    found->weights.push_back(weight.name);
  }
}

// The activations of a step take much memory; a step with fewer tokens takes less.
Status ImportanceCollector::create_runner() {
  const size_t n_fitting = kMaxKeptBytes / kept_bytes_per_token(model_->model().graph);
  const int largest = std::min(options_.window, model_->backend_info().step_tokens);
  const int smallest = std::min(kMinStepTokens, largest);
  step_tokens_ = std::max(smallest, static_cast<int>(std::min(n_fitting, static_cast<size_t>(largest))));
  for (;;) {
    Result<ModelRunner> runner =
        ModelRunner::create(*model_, {.context = options_.window, .step_tokens = step_tokens_, .keep_values = true});
    if (runner.ok()) {
      runner_ = std::make_unique<ModelRunner>(std::move(runner.value()));
      return ok_status();
    }
    if (runner.error().code != ErrorCode::out_of_memory || step_tokens_ <= smallest) return runner.error();
    step_tokens_ = std::max(step_tokens_ / 2, smallest);
  }
}

ImportanceMatrix ImportanceCollector::empty_matrix() const {
  ImportanceMatrix matrix;
  matrix.chunk_size = options_.window;
  for (const LayerInput& input : inputs_) {
    for (const std::string& weight : input.weights) {
      matrix.entries[weight] = {.sums = std::vector<float>(input.n_mat * input.n_columns),
                                .counts = std::vector<int64_t>(input.n_mat)};
    }
  }
  return matrix;
}

Status ImportanceCollector::check_entries(const ImportanceMatrix& matrix) const {
  const ImportanceMatrix own = empty_matrix();
  const bool is_same = std::ranges::equal(own.entries, matrix.entries, [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.sums.size() == b.second.sums.size() && a.second.n_mat() == b.second.n_mat();
  });
  if (is_same) return ok_status();
  return fail(ErrorCode::invalid_input, "it has {} entries, and this run has {} others", matrix.entries.size(),
              own.entries.size());
}

// The input's rows of the step that has just been computed.
void ImportanceCollector::add_step(LayerInput& input) const {
  const Plan& plan = runner_->plan();
  const std::span<const float> x = plan.value(input.x);
  const size_t n = input.n_columns, n_rows = x.size() / n;
  if (!input.ids) {
    add_all_squares(x, input.row_sums, input.sums);
    input.counts[0] += static_cast<int64_t>(n_rows);
    return;
  }
  const std::span<const float> ids = plan.value(input.ids);  // [T, used], int32
  const size_t n_per_row = ids.size() / n_rows;              // a row of every token, or of every selected expert
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t expert = static_cast<size_t>(std::bit_cast<int32_t>(ids[i]));
    ZINC_CHECK(expert < input.n_mat);
    add_squares(x.subspan(i / n_per_row * n, n), std::span(input.sums).subspan(expert * n, n));
    ++input.counts[expert];
  }
}

Status ImportanceCollector::check_finite() const {
  for (const LayerInput& input : inputs_) {
    if (std::ranges::all_of(input.sums, [](double sum) { return sum <= kMaxSum; })) continue;
    return fail(ErrorCode::invalid_input,
                "the activations of '{}' are not finite; the file is damaged or overflows its format",
                input.weights.front());
  }
  return ok_status();
}

Status ImportanceCollector::add_window(std::span<const TokenId> tokens, ImportanceMatrix& matrix) {
  for (LayerInput& input : inputs_) {
    std::ranges::fill(input.sums, 0.0);
    std::ranges::fill(input.counts, 0);
  }
  runner_->move_to(0);
  while (!tokens.empty()) {
    if (options_.is_cancelled && options_.is_cancelled()) return fail(ErrorCode::cancelled, "interrupted");
    const size_t n = std::min(tokens.size(), static_cast<size_t>(step_tokens_));
    ZINC_TRY(logits, runner_->feed(tokens.first(n)));
    threads_->parallel_for(inputs_.size(), [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) add_step(inputs_[i]);
    });
    tokens = tokens.subspan(n);
  }
  if (Status finite = check_finite(); !finite.ok()) return finite;
  for (const LayerInput& input : inputs_) {
    for (const std::string& weight : input.weights) {
      ImportanceEntry& entry = matrix.entries.at(weight);
      for (size_t j = 0; j < input.sums.size(); ++j) {
        entry.sums[j] = static_cast<float>(double{entry.sums[j]} + input.sums[j]);
      }
      for (size_t m = 0; m < input.n_mat; ++m) entry.counts[m] += input.counts[m];
    }
  }
  ++matrix.chunk_count;
  return ok_status();
}

std::vector<RarelyUsedExperts> rarely_used_experts(const ImportanceMatrix& matrix) {
  std::vector<RarelyUsedExperts> all;
  for (const auto& [name, entry] : matrix.entries) {
    if (entry.n_mat() == 1 || name.find("ffn_down_exps") == std::string::npos) continue;
    RarelyUsedExperts rare{.weight = name, .n_experts = static_cast<int>(entry.n_mat())};
    for (const int64_t count : entry.counts) {
      if (count < kRareExpertRows) ++(count == 0 ? rare.n_unused : rare.n_rare);
    }
    if (rare.n_unused + rare.n_rare > 0) all.push_back(rare);
  }
  return all;
}

}  // namespace zinc
