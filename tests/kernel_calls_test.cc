// The kernels of a step, for every tiny model, as a person can read them: tests/data/kernel_calls. A change of fusion,
// of a grid, of shared memory or of a barrier is a change of these files. Lowered without a GPU.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "backend/gpu/layout_device.h"
#include "backend/simt/host/lowering.h"
#include "backend/vulkan/lowering.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

constexpr Bucket kBucket = {.max_tokens = 128, .max_seqs = 2, .max_outputs = 2};

CacheSizes cache_sizes(const Model& model) {
  return {.n_pages = std::vector<int>(page_groups(model.caches).size(), 40),
          .max_length = kTinyContext,
          .n_slots = 2,
          .kv_format = find_format("f16")};
}

// A model's weights and caches on a device without memory.
struct Layout {
  Layout(const Model& model, const gpu::KernelFormats& formats) {
    std::vector<const Graph*> graphs = {&model.graph};
    if (model.draft) graphs.push_back(&*model.draft);
    gpu::LayoutUploader uploader(formats);
    weights = std::move(gpu::Weights::upload(graphs, device, uploader, [](auto) {}).value());
    cache = std::move(gpu::Cache::allocate(model.caches, cache_sizes(model), device, formats).value());
  }
  gpu::LayoutDevice device;
  std::unique_ptr<gpu::Weights> weights;
  std::unique_ptr<gpu::Cache> cache;
};

const simt::host::DeviceLimits kH200 = {
    .name = "H200", .major = 9, .minor = 0, .n_sms = 132, .max_shared_bytes = 232448, .has_clusters = true};
const simt::host::DeviceLimits kRtx4090 = {
    .name = "RTX 4090", .major = 8, .minor = 9, .n_sms = 128, .max_shared_bytes = 101376, .has_clusters = false};

std::string cuda_step(const Model& model, const Graph& graph, const gpu::StepClass& sizes,
                      const simt::host::DeviceLimits& gpu) {
  using namespace simt::host;
  Layout layout(model, kernel_formats("cuda"));
  const Bucket bucket = bucket_of(sizes, kBucket);
  const auto workspace =
      std::move(Workspace::allocate(graph, *layout.weights, *layout.cache, layout.device, gpu, bucket).value());
  const auto calls = std::move(Lowering(graph, *layout.weights, *layout.cache, gpu, *workspace).run().value());
  std::string text;
  for (const KernelCall& call : calls) {
    const Launch& launch = call.launch;
    text += fmt::format("  {:<44} {:>14} blocks of {}", call.kernel + " " + call.program.format,
                        fmt::format("{}", fmt::join(launch.grid, " x ")), launch.threads);
    if (launch.cluster > 1) text += fmt::format(" in clusters of {}", launch.cluster);
    if (launch.shared_bytes > 0) text += fmt::format(", {} bytes", launch.shared_bytes);
    text += "\n";
  }
  return text;
}

std::string vulkan_step(const Model& model, const Graph& graph, const gpu::StepClass& sizes) {
  using namespace vulkan;
  Capabilities nvidia;
  nvidia.vendor_id = 0x10DE;
  nvidia.n_multiprocessors = 132;
  nvidia.coopmat_k = 32;
  nvidia.has_coopmat_f16 = true;
  nvidia.shared_bytes = 48 << 10;
  Layout layout(model, kernel_formats());
  const Bucket bucket = bucket_of(sizes, kBucket);
  const auto workspace =
      std::move(Workspace::allocate(graph, *layout.weights, *layout.cache, layout.device, nvidia, bucket).value());
  const Program program =
      std::move(Lowering(graph, *layout.weights, *layout.cache, nvidia, true, *workspace).run().value());
  std::string text;
  for (const Dispatch& dispatch : program.dispatches) {
    text += fmt::format("  {:<44} {:>14} workgroups{}{}\n", dispatch.kernel.module,
                        fmt::format("{}", fmt::join(dispatch.grid, " x ")),
                        dispatch.needs_barrier ? ", after a barrier" : "", dispatch.n_arrivals > 0 ? ", counted" : "");
  }
  return text;
}

std::string steps_of(const Model& model, const Graph& graph, std::string_view what) {
  std::string text;
  // Decode, a small batch, a long prompt: the matmuls of each have kernels of their own.
  for (const gpu::StepClass& sizes :
       {gpu::StepClass{1, 1}, gpu::StepClass{4, 2}, gpu::StepClass{16, 2}, gpu::StepClass{128, 1}}) {
    const std::string rows = sizes.max_tokens == 1 ? "1 row" : fmt::format("{} rows", sizes.max_tokens);
    for (const simt::host::DeviceLimits& gpu : {kH200, kRtx4090}) {
      text += fmt::format("{}cuda, {}, {}\n{}", what, gpu.name, rows, cuda_step(model, graph, sizes, gpu));
    }
    text += fmt::format("{}vulkan, NVIDIA, {}\n{}", what, rows, vulkan_step(model, graph, sizes));
  }
  return text;
}

class KernelCalls : public testing::TestWithParam<std::string> {};

TEST_P(KernelCalls, of_a_step_are_those_of_the_golden_file) {
  const std::string bytes = make_gguf(tiny_model(GetParam()));
  const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "tiny.gguf").value());
  const Model model = std::move(read_model(file, Draft::load).value());
  std::string steps = steps_of(model, model.graph, "");
  if (model.draft) steps += steps_of(model, *model.draft, "draft, ");
  std::string name = GetParam() + ".txt";
  std::ranges::replace(name, ' ', '_');
  const std::filesystem::path golden = std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/kernel_calls" / name;
  std::ifstream in(golden);
  const std::string expected{std::istreambuf_iterator<char>(in), {}};
  if (steps == expected) return;
  const std::filesystem::path actual = std::filesystem::temp_directory_path() / ("kernel_calls_" + name);
  std::ofstream(actual) << steps;
  ADD_FAILURE() << "other kernels than in " << golden << "; if this is intended: cp " << actual.string() << " "
                << golden.string();
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const TinyModel& model : tiny_models()) out.push_back(model.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(TinyModels, KernelCalls, testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
