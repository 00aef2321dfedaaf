// From a graph to kernel launches, for steps of up to so many tokens and outputs: one function per op, found in a
// table, in files by family. Decides everything a step would otherwise have to: which kernel, which grid, what is
// fused.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/room.h"

namespace zinc::cuda {

constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct StepClass {
  int max_tokens = 1, max_outputs = 1;
};

class Lowering {
 public:
  Lowering(const Graph& graph, const CudaWeights& weights, const CudaCache& cache, Device& device, const Room& room,
           StepClass sizes)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), room_(room), sizes_(sizes) {}

  Result<std::vector<Launch>> run();
  // The programs that run() takes kernels from, without compiling them.
  Result<std::vector<KernelProgram>> programs();

 private:
  Status lower_all();
  using Lower = Status (Lowering::*)(int node);
  static Lower find(Op op);

  Status lower_embed(int i);
  Status lower_hidden_in(int i);
  Status lower_nothing(int i);
  Status lower_norm(int i);
  Status lower_rope(int i);
  Status lower_attention(int i);
  Status lower_gated_act(int i);
  Status lower_moe_route(int i);
  Status lower_moe_combine(int i);
  Status lower_short_conv(int i);
  Status lower_delta_net(int i);
  Status lower_elementwise(int i);
  Status lower_slice(int i);
  Status lower_concat(int i);
  Status lower_rows(int i);
  Status lower_sample(int i);

  Status lower_rope_tables();
  Status lower_products(const ProductGroup& group);
  Status lower_alike(const ProductGroup& group);  // of one format
  bool is_one_row(const ProductGroup& group) const;
  Status lower_one_row(const ProductGroup& group);
  Status lower_mix(const MixGroup& mix);
  Status lower_delta_one(const DeltaGroup& group);
  Status lower_add_normed(const AddNormed& group);
  simt::DeltaParams delta_params(const Node& n) const;
  Status check_delta(const simt::DeltaParams& params) const;
  simt::ConvParams conv_params(const Node& n) const;
  struct RowLaunch;
  Status emit_row_launch(RowLaunch& launch);
  simt::ProductPart product_part(const ProductGroup& group, size_t i) const;
  bool is_spread(int i) const;  // the product's segments are added up by whoever reads it
  void fill_source(const ProductGroup& group, RowLaunch& launch) const;
  void fill_sum(const ProductGroup& group, RowLaunch& launch) const;
  simt::Rounded made_form(Value x, const DeviceMatrix& matrix) const;
  simt::Rounded form_of(const RoundedForm& form, Value v) const;
  void fill_route(int route, RowLaunch& launch) const;
  const ProductGroup* find_router_beside(const ProductGroup& gate) const;  // nullptr: none
  void add_router_beside(const ProductGroup& gate, RowLaunch& launch);
  const float* other_operand(int add, Value result) const;
  Status fill_inputs(const ProductGroup& group, bool is_small, simt::LinearParams& params);
  void fill_parts(const ProductGroup& group, simt::LinearParams& params) const;
  Status lower_panels(const ProductGroup& group, simt::LinearParams params, int n_rows);
  Status lower_matrix_cores(const ProductGroup& group, simt::LinearParams params, int n_rows);
  Status lower_floats(const simt::LinearParams& params, const DeviceMatrix& matrix, int n_rows);
  Result<simt::Rounded> rounded(Value v, const DeviceMatrix& matrix);
  // What its maker leaves of a value: the rounded form alone where nobody reads the floats.
  struct Written {
    float* floats = nullptr;
    simt::Rounded rounded{};
    int block = 0;
  };
  Written written(Value v, int64_t n_in);
  Status lower_heads(const HeadGroup& group, const simt::KvLayer& kv);
  Status lower_attend(simt::AttentionParams& params);
  Status lower_attend_units(simt::AttentionParams params, int n_warps);
  Status lower_delta_chunks(simt::DeltaParams params, const char* by_token);
  Status lower_attend_one(const HeadGroup& group);
  // A program of a file of attention, for keys and values as the cache keeps them.
  KernelProgram kept_program(std::string file) const;
  simt::AttentionParams attention_params(const Node& n) const;
  const float* sliced(const HeadChain& chain) const { return room_.floats(chain.x) + slice_begin(chain); }
  int64_t slice_begin(const HeadChain& chain) const {
    return chain.slice < 0 ? 0 : node(chain.slice).as<SliceParams>().begin;
  }
  simt::HeadPart head_part(const HeadChain& chain) const;
  Status add(const KernelProgram& program, const char* kernel, Launch launch, int64_t x, int64_t y, int64_t z,
             size_t shared_bytes);
  template <class P>
  Status emit(const KernelProgram& program, const char* kernel, const P& params, int64_t x, int64_t y = 1,
              int64_t z = 1, size_t shared_bytes = 0) {
    return add(program, kernel, Launch::of(nullptr, params, 1), x, y, z, shared_bytes);
  }
  // One thread, or one warp, each.
  template <class P>
  Status emit_threads(const char* file, const char* kernel, const P& params, int64_t n_threads) {
    return emit({file, ""}, kernel, params, div_up(n_threads, simt::kThreads));
  }
  template <class P>
  Status emit_warps(const char* file, const char* kernel, const P& params, int64_t n_warps) {
    return emit({file, ""}, kernel, params, div_up(n_warps, simt::kWarps));
  }

  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  const int* n_rows(Value v) const {
    return room_.step().counts + (info(v).rows == Rows::outputs ? simt::kOutputs : simt::kTokens);
  }
  const DeviceMatrix& matrix_of(int i) const { return *weights_.matrix(info(node(i).in[1]).name); }
  bool is_small(Value v, int64_t per_row) const { return max_rows(v) * per_row <= kMaxSplitTokens; }
  // Activations of a tile on matrix cores.
  int matrix_tile_columns() const { return device_.has_warpgroups() ? simt::kWideColumns : simt::kTileColumns; }
  // Products come as simt/product.cu's, with the norms before them: where its rings fit, twice (Hopper and Blackwell of
  // data centres; other parts have half the shared memory).
  bool is_one_row() const {
    constexpr int kRingBytes = 200 << 10;
    return sizes_.max_tokens == 1 && device_.has_bulk_copies() && device_.max_shared_bytes() >= kRingBytes;
  }
  // Blocks of a launch among those of a step of one row. Each multiprocessor holds a block of two launches, one that
  // works and one that waits with its weights at hand; a launch that leaves one out or takes it whole puts the next
  // out of step. What has no work waits too.
  int64_t one_per_multiprocessor(int64_t n_blocks) const {
    return std::max<int64_t>(n_blocks, device_.n_multiprocessors());
  }
  const float* vector(Value v) const { return v ? weights_.vector(info(v).name) : nullptr; }

  const Graph& graph_;
  const CudaWeights& weights_;
  const CudaCache& cache_;
  Device& device_;
  const Room& room_;
  StepClass sizes_;
  std::vector<Launch> launches_;
  bool is_listing_ = false;
  // The last launch, if the next one starts only when its wait is over (ProductShape::starts_next_late): what came
  // before it is complete by then, and what it writes itself is not.
  struct LateStart {
    std::vector<std::span<const float>> written;
    const int* found_experts;  // whose experts it finds by itself
    bool writes_to(std::span<const float> row) const;
  };
  std::optional<LateStart> late_start_;
  const ProductGroup* router_beside_ = nullptr;  // that ran with an earlier gate, until its experts are found
  std::vector<KernelProgram> programs_;          // while listing
  std::vector<const RoundedForm*> made_;         // forms written so far
};

}  // namespace zinc::cuda
