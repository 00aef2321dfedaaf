// A fixture with a plan on the fake driver (fake_driver.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include "backend/cuda/fake_driver_api.h"
#include "backend/cuda/plan.h"
#include "base/thread_pool.h"
#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc::cuda {

inline FakeDriver& fake() { return FakeDriver::current(); }

inline constexpr int kDim = 64, kVocab = 96, kWindow = 40;

// Two layers, one with a sliding window, so that there are two page groups.
class CudaPlanTest : public testing::Test {
 protected:
  CudaPlanTest() : threads_(1) {
    fake() = FakeDriver();
    weights_set_.add("embd", {kVocab, kDim}).add("norm", {kDim});
    for (const char* name : {"q", "k", "v", "o"}) weights_set_.add(name, {kDim, kDim}, *find_format("q8_0"));
    set_graph_of_two_layers();
  }

  void set_graph_of_two_layers() {
    GraphBuilder g("fake", weights_set_.source());
    Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    for (const int layer : {0, 1}) {
      const Value h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
      const auto heads = [&](const char* name) { return g.heads(g.linear(h, g.weight(name, {kDim, kDim})), 2); };
      const Value q = heads("q"), k = heads("k"), v = heads("v");
      const Value a = g.attention({q, k, v}, {.cache_layer = layer, .scale = 1, .window = layer == 0 ? 0 : kWindow});
      x = g.add(x, g.linear(a, g.weight("o", {kDim, kDim})));
    }
    set_graph(g, x, {20, 20});
  }

  // Finishes the graph with x as its last hidden state; n_pages per page group.
  void set_graph(GraphBuilder& g, Value x, std::vector<int> n_pages) {
    g.logits(g.linear(g.rows(x), g.weight("embd", {kVocab, kDim})));
    cache_.reset();
    weights_.reset();
    n_groups_ = n_pages.size();
    graph_ = std::move(g.finish().value());
    device_ = std::move(Device::open(FakeDriver::api(), {}, [](const KernelProgram& program) {
                          const std::string& shape = program.shape;  // stands in for machine code
                          return std::vector<char>(shape.c_str(), shape.c_str() + shape.size() + 1);
                        }).value());
    const Graph* const graph = &graph_;
    weights_ = std::move(upload_weights({&graph, 1}, *device_, threads_, [](auto) {}).value());
    const CacheSizes sizes{.n_pages = std::move(n_pages), .n_slots = 3, .kv_format = find_format("f16")};
    cache_ = std::move(gpu::Cache::allocate(graph_.caches(), sizes, *device_, kernel_formats()).value());
  }

  // Prepared for steps of all sizes.
  std::unique_ptr<Plan> compile(const Bucket& bucket) {
    std::unique_ptr<Plan> plan = std::move(CudaPlan::compile(graph_, *weights_, *cache_, *device_, bucket).value());
    EXPECT_TRUE(plan->wait_until_prepared().ok());
    return plan;
  }

  // One sequence, tokens from `position` on; its pages count down from 19.
  void start(Plan& plan, int position, int n_tokens, std::vector<int32_t> logit_rows = {}) {
    tokens_.assign(static_cast<size_t>(n_tokens), 1);
    positions_.resize(tokens_.size());
    std::iota(positions_.begin(), positions_.end(), position);
    pages_.resize(20);
    std::iota(pages_.rbegin(), pages_.rend(), 0);
    seq_begin_ = {0, n_tokens};
    output_rows_ = {n_tokens - 1};
    logit_rows_ = std::move(logit_rows);
    tables_.assign(n_groups_, PageTable{pages_, 20});
    plan.start({.tokens = tokens_,
                .positions = positions_,
                .seq_begin = seq_begin_,
                .slots = slots_,
                .page_tables = tables_,
                .output_rows = output_rows_,
                .sampling = sampling_,
                .logit_rows = logit_rows_,
                .hidden = {}});
  }

  static std::vector<std::string> kernels_of(const std::vector<FakeLaunch>& graph) {
    std::vector<std::string> names;
    for (const FakeLaunch& launch : graph) names.push_back(launch.kernel);
    return names;
  }

  template <class P>
  static P params_of(const FakeLaunch& launch) {
    P params;
    std::memcpy(&params, launch.params.data(), sizeof(params));
    return params;
  }

  static bool is_gemv(const FakeLaunch& launch) { return launch.kernel.starts_with("gemv"); }
  // A struct of ints that the gemv launches are compiled for, in order: their kShape or kPdl.
  template <class Shape>
  static std::vector<Shape> gemv_constants(const std::vector<FakeLaunch>& graph, const std::string& name) {
    std::vector<Shape> shapes;
    for (const FakeLaunch& launch : graph) {
      if (!is_gemv(launch)) continue;
      std::array<int, sizeof(Shape) / sizeof(int)> fields{};
      const std::string start = name + " = {";
      std::istringstream text(launch.code.substr(launch.code.find(start) + start.size()));
      char comma;
      for (int& field : fields) text >> field >> comma;
      EXPECT_TRUE(text) << launch.code;
      shapes.push_back(std::bit_cast<Shape>(fields));
    }
    return shapes;
  }
  static std::vector<simt::GemvShape> gemv_shapes(const std::vector<FakeLaunch>& graph) {
    return gemv_constants<simt::GemvShape>(graph, "kShape");
  }
  static std::vector<simt::GemvPdl> gemv_pdl(const std::vector<FakeLaunch>& graph) {
    return gemv_constants<simt::GemvPdl>(graph, "kPdl");
  }
  template <class Shape>
  static std::vector<int> of_each(int Shape::*what, const std::vector<Shape>& shapes) {
    std::vector<int> fields;
    for (const Shape& shape : shapes) fields.push_back(shape.*what);
    return fields;
  }
  // A policy of the gemv launches that have it: "Prologue".
  static std::vector<std::string> gemv_policies(const std::vector<FakeLaunch>& graph, const std::string& name) {
    std::vector<std::string> types;
    for (const FakeLaunch& launch : graph) {
      const std::string start = "using " + name + " = ";
      const size_t at = launch.code.find(start);
      if (!is_gemv(launch) || at == std::string::npos) continue;
      const size_t begin = at + start.size();
      types.push_back(launch.code.substr(begin, launch.code.find(';', begin) - begin));
    }
    return types;
  }

  static simt::Step step_of(const std::vector<FakeLaunch>& graph) {
    for (const FakeLaunch& launch : graph) {
      if (launch.kernel != "embed") continue;
      return params_of<simt::EmbedParams>(launch).step;
    }
    return {};
  }

  ThreadPool threads_;
  WeightSet weights_set_;
  size_t n_groups_ = 0;
  Graph graph_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<gpu::Weights> weights_;
  std::unique_ptr<gpu::Cache> cache_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_, slots_ = {2}, output_rows_, logit_rows_;
  std::vector<PageId> pages_;
  std::vector<PageTable> tables_;
  std::vector<DeviceSampling> sampling_;
};

}  // namespace zinc::cuda
