// Compiles, without a GPU, the programs that models of published sizes launch on each GPU architecture: none may spill
// registers. The lowering itself lists them, on the fake driver.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "backend/cuda/fake_driver_api.h"
#include "backend/cuda/plan.h"
#include "base/thread_pool.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/kernel_compiles.h"
#include "tests/support/tiny_model.h"

namespace zinc::cuda {
namespace {

struct Gpu {
  const char* architecture;
  int major, minor, shared_bytes, n_sms;
};
// sm_89 launches what sm_86 does; backend_kernels_test compiles every kernel for both.
constexpr Gpu kGpus[] = {{"sm_75", 7, 5, 65536, 40},
                         {"sm_80", 8, 0, 166912, 108},
                         {"sm_86", 8, 6, 101376, 84},
                         {"sm_90a", 9, 0, 232448, 132},
                         {"sm_120", 12, 0, 101376, 170}};

// A model of a published size, with two layers of each kind.
struct Published {
  TinyModel model;
  int64_t vocabulary;
  const Format* matrices;  // nullptr: as in Q4_K_M; else this format, and mxfp4 for experts
};

using Keys = std::vector<TinyKey>;
Keys transformer(uint32_t dim, uint32_t n_layers, uint32_t n_heads, uint32_t n_kv_heads, const Keys& more) {
  Keys keys = {{"context_length", 16384u},
               {"embedding_length", dim},
               {"block_count", n_layers},
               {"attention.head_count", n_heads},
               {"attention.layer_norm_rms_epsilon", 1e-6f},
               {"rope.freq_base", 1e6f}};
  if (n_kv_heads > 0) keys.push_back({"attention.head_count_kv", n_kv_heads});
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<Published> published_models() {
  const auto heads = [](uint32_t n) { return TinyKey{"attention.key_length", n}; };
  const auto wide = [](uint32_t n) { return TinyKey{"feed_forward_length", n}; };
  const auto output = [](int64_t vocabulary, int64_t dim) {
    return std::vector<TinyTensor>{{"output.weight", {vocabulary, dim}}};
  };
  const auto gemma4 = [&](uint32_t swa_heads, uint32_t full_heads, Keys more) {
    more.insert(more.end(),
                {{"attention.head_count_kv", std::vector<uint32_t>{swa_heads, swa_heads, full_heads, full_heads}},
                 heads(512),
                 {"attention.key_length_swa", 256u},
                 {"rope.dimension_count", 512u},
                 {"rope.dimension_count_swa", 256u},
                 {"rope.freq_base_swa", 10000.0f},
                 {"attention.sliding_window", 1024u},
                 {"attention.sliding_window_pattern", std::vector<bool>{true, true, false, false}},
                 {"final_logit_softcapping", 30.0f}});
    return more;
  };
  std::vector<TinyTensor> oss = output(201088, 2880);
  oss.insert(oss.end(), {{"blk.*.attn_q.bias", {4096}},
                         {"blk.*.attn_k.bias", {512}},
                         {"blk.*.attn_v.bias", {512}},
                         {"blk.*.attn_output.bias", {2880}}});
  return {
      {{"smollm2-135m", "llama", transformer(576, 2, 9, 3, {wide(1536)})}, 49152, nullptr},
      {{"qwen3-0.6b", "qwen3", transformer(1024, 2, 16, 8, {heads(128), wide(3072)})}, 151936, nullptr},
      {{"qwen3-8b", "qwen3", transformer(4096, 2, 32, 8, {heads(128), wide(12288)}), output(151936, 4096)},
       151936,
       nullptr},
      {{"qwen36-35b-a3b", "qwen35moe",
        transformer(2048, 8, 16, 2,
                    {heads(256),
                     {"rope.dimension_count", 64u},
                     {"full_attention_interval", 4u},
                     {"ssm.conv_kernel", 4u},
                     {"ssm.inner_size", 4096u},
                     {"ssm.state_size", 128u},
                     {"ssm.time_step_rank", 32u},
                     {"ssm.group_count", 16u},
                     {"expert_count", 256u},
                     {"expert_used_count", 8u},
                     {"expert_feed_forward_length", 512u},
                     {"expert_shared_feed_forward_length", 512u}}),
        output(248320, 2048)},
       248320,
       nullptr},
      {{"gpt-oss-20b", "gpt-oss",
        transformer(2880, 2, 64, 8,
                    {heads(64),
                     {"attention.sliding_window", 128u},
                     {"expert_count", 32u},
                     {"expert_used_count", 4u},
                     {"expert_feed_forward_length", 2880u},
                     {"rope.scaling.type", std::string("yarn")},
                     {"rope.scaling.factor", 32.0f},
                     {"rope.scaling.original_context_length", 4096u}}),
        oss},
       201088,
       find_format("q8_0")},
      {{"gemma4-26b-a4b",
        "gemma4",
        transformer(
            2816, 4, 16, 0,
            gemma4(
                8, 2,
                {wide(2112), {"expert_count", 128u}, {"expert_used_count", 8u}, {"expert_feed_forward_length", 704u}})),
        {{"blk.*.ffn_gate_inp.weight", {128, 2816}},
         {"blk.*.ffn_gate_up_exps.weight", {128, 1408, 2816}},
         {"blk.*.ffn_down_exps.scale", {128}},
         {"blk.*.layer_output_scale.weight", {1}}}},
       262144,
       nullptr},
      {{"gemma4-31b",
        "gemma4",
        transformer(5376, 4, 32, 0, gemma4(16, 4, {wide(21504)})),
        {{"blk.*.layer_output_scale.weight", {1}}}},
       262144,
       nullptr},
  };
}

// Rows that are not a multiple of 256 use the nearest format with blocks of 32.
const Format& format_of(const TinyTensor& tensor, const Format* matrices) {
  const auto named = [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; };
  if (tensor.shape.n_dims() == 1 || named("ffn_gate_inp") || named("ssm_conv1d")) return k_f32;
  if (matrices) return tensor.shape.n_dims() == 3 ? *find_format("mxfp4") : *matrices;
  const bool is_odd = tensor.name.starts_with("blk.") && (tensor.name[4] - '0') % 2 != 0;
  const bool has_more = named("output.weight") || named("token_embd") ||
                        (is_odd && (named("attn_v") || named("attn_qkv") || named("ffn_down")));
  const bool is_whole = tensor.shape.inner() % 256 == 0;
  return *find_format(has_more ? (is_whole ? "q6_k" : "q8_0") : is_whole ? "q4_k" : "q5_0");
}

// A GGUF file of zeros; untouched pages use no memory.
class ZeroFile {
 public:
  ZeroFile(const Published& from, const std::vector<TinyTensor>& tensors) {
    GgufWriter writer;
    add_metadata(writer, from.model);
    uint64_t offset = 0;
    for (const TinyTensor& tensor : tensors) {
      const Format& format = format_of(tensor, from.matrices);
      GgufTensorRecord record{.name = tensor.name, .dims = {}, .type = format.gguf_id, .data = {}, .offset = offset};
      for (int i = tensor.shape.n_dims() - 1; i >= 0; --i)
        record.dims.push_back(static_cast<uint64_t>(tensor.shape[i]));
      writer.add_record(std::move(record));
      offset += (row_bytes(format, static_cast<size_t>(tensor.shape.elems())) + 31) / 32 * 32;
    }
    const std::string head = writer.bytes();
    n_bytes_ = head.size() + offset;
    bytes_.reset(static_cast<std::byte*>(std::calloc(n_bytes_, 1)));
    ZINC_CHECK(bytes_ != nullptr);
    std::memcpy(bytes_.get(), head.data(), head.size());
  }
  Result<GgufFile> parse() const { return GgufFile::parse({bytes_.get(), n_bytes_}, "published.gguf"); }

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  size_t n_bytes_ = 0;
};

// The tensors of a published model, discovered as for tiny models.
std::vector<TinyTensor> tensors_of(const Published& from) {
  const int64_t dim = std::get<uint32_t>(from.model.find("embedding_length")->value);
  std::vector<TinyTensor> tensors = {{"token_embd.weight", {from.vocabulary, dim}}};
  const uint32_t n_layers = std::get<uint32_t>(from.model.find("block_count")->value);
  for (const TinyTensor& optional : from.model.optional_tensors) {
    const bool is_of_all = optional.name.starts_with("blk.*.");
    for (uint32_t l = 0; l < (is_of_all ? n_layers : 1); ++l) {
      tensors.push_back(optional);
      if (is_of_all) tensors.back().name = fmt::format("blk.{}.{}", l, optional.name.substr(6));
    }
  }
  for (;;) {
    const ZeroFile zeros(from, tensors);
    const GgufFile file = std::move(zeros.parse().value());
    const Result<Model> model = read_model(file);
    if (model.ok()) return tensors;
    const std::optional<TinyTensor> missing = missing_tensor(model.error().message);
    EXPECT_TRUE(missing) << from.model.name << ": " << model.error().message;
    if (!missing) return {};
    tensors.push_back(*missing);
  }
}

class LaunchedPrograms : public testing::TestWithParam<Gpu> {
 protected:
  LaunchedPrograms() : threads_(1) {
    FakeDriver& driver = FakeDriver::current();
    driver = FakeDriver();
    driver.major = GetParam().major;
    driver.minor = GetParam().minor;
    driver.shared_bytes = GetParam().shared_bytes;
    driver.n_sms = GetParam().n_sms;
    driver.has_clusters = driver.major >= 9 ? 1 : 0;
    driver.free_bytes = size_t{1} << 40;
    driver.keeps_bytes = false;
    device_ = std::move(Device::open(FakeDriver::api(), {}, [this](const KernelProgram& program) {
                          const std::lock_guard lock(mutex_);
                          programs_.emplace(program.source(), program);
                          return std::vector<char>(1);
                        }).value());
  }

  // Every KV cache format on the architectures with kernels of their own, f16 on the others: an attention kernel of the
  // same source spills there too, or nowhere.
  static bool has_all_kv_formats(const Gpu& gpu) { return (gpu.major == 8 && gpu.minor == 0) || gpu.major == 9; }

  // Collects the programs of all step sizes.
  void collect(const Graph& graph, std::span<const LayerCache> caches) {
    const Graph* const of[] = {&graph};
    const auto weights = upload_weights(of, *device_, threads_, [](auto) {});
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    for (const gpu::KvFormat& kv_format : kernel_formats().kv_formats) {
      if (kv_format.name != std::string_view("f16") && !has_all_kv_formats(GetParam())) continue;
      const CacheSizes sizes{.n_pages = std::vector<int>(page_groups(caches).size(), 512),
                             .n_slots = 2,
                             .kv_format = find_format(kv_format.name)};
      const auto cache = gpu::Cache::allocate(caches, sizes, *device_, kernel_formats());
      ASSERT_TRUE(cache.ok()) << cache.error().message;
      auto plan = CudaPlan::compile(graph, *weights.value(), *cache.value(), *device_,
                                    {.max_tokens = 2048, .max_seqs = 8, .max_outputs = 8});
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const Status prepared = plan.value()->wait_until_prepared();
      ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    }
  }

  ThreadPool threads_;
  std::mutex mutex_;
  std::map<std::string, KernelProgram> programs_;
  std::unique_ptr<Device> device_;
};

TEST_P(LaunchedPrograms, of_published_models_do_not_spill_registers) {
  if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  static std::map<std::string, std::vector<TinyTensor>> tensors;
  for (const Published& published : published_models()) {
    std::vector<TinyTensor>& found = tensors[published.model.name];
    if (found.empty()) found = tensors_of(published);
    ASSERT_FALSE(found.empty());
    const ZeroFile zeros(published, found);
    const GgufFile file = std::move(zeros.parse().value());
    const Model model = std::move(read_model(file).value());
    SCOPED_TRACE(published.model.name);
    collect(model.graph, model.caches);
  }
  std::vector<KernelProgram> all;
  for (const auto& [text, program] : programs_) {
    if (program.file != "pack") all.push_back(program);
  }
  EXPECT_GE(all.size(), 10u);
  RecordProperty("programs", static_cast<int>(all.size()));
  for (const std::string& message : compile_failures(all, GetParam().architecture)) ADD_FAILURE() << message;
}
INSTANTIATE_TEST_SUITE_P(, LaunchedPrograms, testing::ValuesIn(kGpus),
                         [](const auto& info) { return std::string(info.param.architecture); });

}  // namespace
}  // namespace zinc::cuda
