#include "tests/support/step_runner.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/tiny_model.h"

namespace zinc {

struct StepRunner::Arrays {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, seq_begin = {0}, slots, row_slots, rope_scalings, rows;
  std::vector<std::vector<PageId>> pages;  // per group
  std::vector<PageTable> tables;
  std::vector<float> hidden;

  StepInputs inputs() const {
    return {.tokens = tokens,
            .positions = positions,
            .seq_begin = seq_begin,
            .slots = slots,
            .row_slots = row_slots,
            .rope_scalings = rope_scalings,
            .page_tables = tables,
            .output_rows = rows,
            .logit_rows = rows,
            .hidden = hidden,
            .wants_hidden = true};
  }
};

Result<std::unique_ptr<LoadedModel>> LoadedModel::read(std::string bytes) {
  auto loaded = std::make_unique<LoadedModel>();
  loaded->bytes_ = std::move(bytes);
  ZINC_TRY(file, GgufFile::parse(std::as_bytes(std::span(loaded->bytes_)), "tiny.gguf"));
  loaded->file_ = std::make_unique<GgufFile>(std::move(file));
  ZINC_TRY(model, read_model(*loaded->file_, Draft::load));
  loaded->model_ = std::move(model);
  return loaded;
}

Status LoadedModel::upload() {
  std::vector<const Graph*> graphs = {&model_.graph};
  if (model_.draft) graphs.push_back(&*model_.draft);
  ZINC_TRY(weights, backend_->upload(graphs, [](auto) {}));
  weights_ = std::move(weights);
  return ok_status();
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(std::string bytes, const BackendInfo& info, int n_threads) {
  ZINC_TRY(loaded, read(std::move(bytes)));
  loaded->backend_info_ = &info;
  ZINC_TRY(backend, info.open(n_threads));
  loaded->backend_ = std::move(backend);
  if (Status s = loaded->upload(); !s.ok()) return s.error();
  return std::move(loaded);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load_split(std::string bytes, const std::vector<std::string>& devices,
                                                             const std::function<split::Stages(const Graph&)>& stages) {
  ZINC_TRY(info, find_backend(devices.back()));
  std::vector<std::shared_ptr<Backend>> opened;
  for (const std::string& name : devices) {
    ZINC_TRY(backend, open_backend(name, 1));
    opened.push_back(std::move(backend));
  }
  return load_split(std::move(bytes), std::move(opened), *info, stages);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load_split(std::string bytes,
                                                             std::vector<std::shared_ptr<Backend>> devices,
                                                             const BackendInfo& last_device,
                                                             const std::function<split::Stages(const Graph&)>& stages) {
  ZINC_TRY(loaded, read(std::move(bytes)));
  loaded->backend_info_ = &last_device;
  const Graph& graph = loaded->model_.graph;
  ZINC_TRY(backend, split::make_split_backend(graph, stages(graph), std::move(devices)));
  loaded->backend_ = std::move(backend);
  if (Status s = loaded->upload(); !s.ok()) return s.error();
  return std::move(loaded);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load_tensor_parallel(std::string bytes,
                                                                       const std::vector<std::string>& devices) {
  ZINC_TRY(loaded, read(std::move(bytes)));
  ZINC_TRY(info, find_backend(devices.back()));
  loaded->backend_info_ = info;
  std::vector<std::shared_ptr<Backend>> opened;
  for (const std::string& name : devices) {
    ZINC_TRY(backend, open_backend(name, 1));
    opened.push_back(std::move(backend));
  }
  ZINC_TRY(shards, shard_graph(loaded->model_.graph, devices.size()));
  loaded->backend_ = split::make_tensor_backend(loaded->model_.graph, std::move(shards), std::move(opened));
  if (Status s = loaded->upload(); !s.ok()) return s.error();
  return std::move(loaded);
}

std::vector<TokenId> random_tokens(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % kTinyVocabulary);
  return tokens;
}

StepRunner::StepRunner(const LoadedModel& model, PageOrder order, const Format& kv_format, int min_class_tokens,
                       int n_rope_scalings)
    : groups_(page_groups(model.model().caches)) {
  const int scan_chunk_tokens = model.backend_info().scan_chunk_tokens;
  if (scan_chunk_tokens > 1 && state_bytes(model.model().caches) > 0)
    max_exact_chunk_ = static_cast<size_t>(scan_chunk_tokens) - 1;
  std::mt19937 random(1);
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<PageId> pages(kPages);
    std::iota(pages.rbegin(), pages.rend(), 0);
    if (order == PageOrder::shuffled) std::ranges::shuffle(pages, random);
    free_pages_.push_back(std::move(pages));
  }
  const CacheSizes sizes{
      .n_pages = std::vector<int>(groups_.size(), kPages), .n_slots = kSlots, .kv_format = &kv_format};
  Backend& backend = model.backend();
  cache_ = std::move(backend.allocate_cache(model.model().caches, sizes).value());
  const Bucket bucket{.max_tokens = kMaxTokens,
                      .max_seqs = kMaxSeqs,
                      .max_outputs = kMaxTokens,
                      .n_rope_scalings = n_rope_scalings,
                      .min_class_tokens = min_class_tokens};
  const auto compile = [&](const Graph& graph) {  // each step runs its own class
    std::unique_ptr<Plan> plan = std::move(backend.compile(graph, model.weights(), *cache_, bucket).value());
    ZINC_CHECK(plan->wait_until_prepared().ok());
    return plan;
  };
  plan_ = compile(model.model().graph);
  if (model.model().draft) draft_plan_ = compile(*model.model().draft);
}

TestSequence StepRunner::new_sequence(int slot) const {
  ZINC_CHECK(slot < kSlots);
  return {slot, std::vector<std::vector<PageId>>(groups_.size())};
}

PageId StepRunner::allocate_page(int group) {
  std::vector<PageId>& pages = free_pages_[static_cast<size_t>(group)];
  ZINC_CHECK(!pages.empty());
  const PageId page = pages.back();
  pages.pop_back();
  return page;
}

void StepRunner::add_pages(TestSequence& sequence, int32_t end_position) {
  const size_t n_pages = static_cast<size_t>((end_position + kPageTokens - 1) / kPageTokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    while (sequence.pages[g].size() < n_pages) sequence.pages[g].push_back(allocate_page(static_cast<int>(g)));
  }
}

std::unique_ptr<StepRunner::Arrays> StepRunner::prepare(const std::vector<SequenceTokens>& batch) {
  auto arrays = std::make_unique<Arrays>();
  const bool has_row_slots = std::ranges::any_of(batch, [](const auto& part) { return !part.row_slots.empty(); });
  for (const SequenceTokens& part : batch) {
    arrays->row_slots.insert(arrays->row_slots.end(), part.row_slots.begin(), part.row_slots.end());
    if (has_row_slots && part.row_slots.empty()) {
      arrays->row_slots.insert(arrays->row_slots.end(), part.tokens.size(), kNoSlot);
      arrays->row_slots.back() = part.sequence->slot;
    }
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      arrays->tokens.push_back(part.tokens[i]);
      arrays->positions.push_back(part.position + static_cast<int32_t>(i));
    }
    arrays->seq_begin.push_back(static_cast<int32_t>(arrays->tokens.size()));
    arrays->slots.push_back(part.sequence->slot);
    arrays->rope_scalings.push_back(part.sequence->rope_scaling);
    arrays->hidden.insert(arrays->hidden.end(), part.hidden.begin(), part.hidden.end());
    add_pages(*part.sequence, part.position + static_cast<int32_t>(part.tokens.size()));
  }
  arrays->rows.resize(arrays->tokens.size());
  std::iota(arrays->rows.begin(), arrays->rows.end(), 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    size_t stride = 0;
    for (const SequenceTokens& part : batch) stride = std::max(stride, part.sequence->pages[g].size());
    std::vector<PageId>& entries = arrays->pages.emplace_back();
    for (const SequenceTokens& part : batch) {
      entries.insert(entries.end(), part.sequence->pages[g].begin(), part.sequence->pages[g].end());
      entries.resize(entries.size() + stride - part.sequence->pages[g].size(), kNoPage);
    }
    arrays->tables.push_back({entries, static_cast<int>(stride)});
  }
  return arrays;
}

std::vector<SequenceOutput> StepRunner::run_step(Plan& plan, const std::vector<SequenceTokens>& batch) {
  const std::unique_ptr<Arrays> arrays = prepare(batch);
  plan.start(arrays->inputs());
  const StepOutput all = plan.wait().value();
  const size_t n_tokens = arrays->tokens.size();
  const size_t vocab = all.logits.size() / n_tokens, dim = all.hidden.size() / n_tokens;
  std::vector<SequenceOutput> out;
  size_t begin = 0;
  for (const SequenceTokens& part : batch) {
    const size_t n = part.tokens.size();
    const std::span<const float> logits = all.logits.subspan(begin * vocab, n * vocab);
    const std::span<const float> hidden = all.hidden.subspan(begin * dim, n * dim);
    const std::span<const TokenId> sampled = all.sampled.subspan(begin, n);
    out.push_back({{logits.begin(), logits.end()}, {hidden.begin(), hidden.end()}, {sampled.begin(), sampled.end()}});
    begin += n;
  }
  return out;
}

std::vector<SequenceOutput> StepRunner::step(const std::vector<SequenceTokens>& batch) {
  return run_step(*plan_, batch);
}
std::vector<float> StepRunner::last_logits(const std::vector<SequenceTokens>& batch) {
  const std::unique_ptr<Arrays> arrays = prepare(batch);
  StepInputs inputs = arrays->inputs();
  std::vector<int32_t> rows, logit_rows;
  for (size_t s = 0; s < batch.size(); ++s) {
    if (batch[s].has_output) rows.push_back(arrays->seq_begin[s + 1] - 1);
  }
  logit_rows.resize(rows.size());
  std::iota(logit_rows.begin(), logit_rows.end(), 0);
  inputs.output_rows = rows;
  inputs.logit_rows = logit_rows;
  inputs.wants_hidden = false;
  plan_->start(inputs);
  const StepOutput out = plan_->wait().value();
  return {out.logits.begin(), out.logits.end()};
}
std::vector<SequenceOutput> StepRunner::draft_step(const std::vector<SequenceTokens>& batch) {
  return run_step(*draft_plan_, batch);
}

void StepRunner::start(const std::vector<SequenceTokens>& batch) {
  in_flight_.push_back(prepare(batch));
  plan_->start(in_flight_.back()->inputs());
}

StepOutput StepRunner::wait() {
  StepOutput output = plan_->wait().value();
  in_flight_.pop_front();
  return output;
}

}  // namespace zinc
