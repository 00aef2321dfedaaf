// A tiny model on a backend, for tests of the memory that it takes: loaded, and laid out on Backend::without_memory.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/tiny_model.h"

namespace zinc {

class MeasuredModel {
 public:
  struct Parts {
    std::unique_ptr<DeviceWeights> weights;
    std::unique_ptr<CacheMemory> cache;
    std::unique_ptr<Plan> plan;
    size_t bytes() const { return weights->device_bytes() + cache->device_bytes() + plan->device_bytes(); }
  };

  MeasuredModel(const BackendInfo& backend, const std::string& model)
      : bytes_(make_gguf(tiny_model(model))),
        file_(std::move(GgufFile::parse(std::as_bytes(std::span(bytes_)), "tiny.gguf").value())),
        model_(std::move(read_model(file_).value())),
        backend_(std::move(backend.open(2).value())) {
    sizes_.n_pages.assign(page_groups(model_.caches).size(), kPages);
    sizes_.max_length = kTinyContext;
    sizes_.n_slots = 6;
    sizes_.kv_format = find_format("f16");
  }

  Backend& backend() { return *backend_; }
  // Prepared for steps of all sizes. `backend`: this one, or its without_memory().
  Parts load(Backend& backend, const Bucket& bucket) {
    const Graph* const graph = &model_.graph;
    Parts parts;
    parts.weights = std::move(backend.upload({&graph, 1}, [](auto) {}).value());
    parts.cache = std::move(backend.allocate_cache(model_.caches, sizes_).value());
    parts.plan = std::move(backend.compile(model_.graph, *parts.weights, *parts.cache, bucket).value());
    ZINC_CHECK(parts.plan->wait_until_prepared().ok());
    return parts;
  }

  // The inputs of a step of one sequence from position 0 on; valid until the next call.
  StepInputs step(int n_tokens, bool wants_all) {
    tokens_.assign(static_cast<size_t>(n_tokens), 1);
    positions_.resize(tokens_.size());
    for (size_t i = 0; i < positions_.size(); ++i) positions_[i] = static_cast<int32_t>(i);
    seq_begin_ = {0, n_tokens};
    rows_ = {n_tokens - 1};
    return {.tokens = tokens_,
            .positions = positions_,
            .seq_begin = seq_begin_,
            .slots = slots_,
            .page_tables = tables_,
            .output_rows = rows_,
            .logit_rows = wants_all ? std::span<const int32_t>(slots_) : std::span<const int32_t>(),
            .hidden = {},
            .wants_hidden = wants_all};
  }

 private:
  static constexpr int kPages = 100;
  std::string bytes_;
  GgufFile file_;
  Model model_;
  std::unique_ptr<Backend> backend_;
  CacheSizes sizes_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_, rows_;
  const std::vector<int32_t> slots_ = {0};  // and the only row with logits
  const std::vector<PageId> pages_ = std::vector<PageId>(kPages, 0);
  const std::vector<PageTable> tables_ =
      std::vector<PageTable>(page_groups(model_.caches).size(), PageTable{pages_, kPages});
};

// A backend and a tiny model: the parameter of a test.
struct MemoryCase {
  const BackendInfo* backend;
  std::string model;
};
inline std::string memory_case_name(const testing::TestParamInfo<MemoryCase>& info) {
  std::string name = fmt::format("{}_{}", info.param.backend->name, info.param.model);
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

}  // namespace zinc
