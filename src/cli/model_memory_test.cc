#include "cli/model_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "engine/engine.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_llama.h"

namespace zinc {
namespace {

class ModelMemoryOfFileTest : public testing::Test {
 protected:
  std::filesystem::path write(const char* name, const TinyLlama& model) {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << model.file().bytes();
    return path;
  }
  TestFolder folder_;
};

// `zinc list`, `zinc show` and the server judge by this: it must be what the engine does then.
TEST_F(ModelMemoryOfFileTest, measured_need_is_what_the_engine_plans_and_its_limit_is_the_least_that_works) {
  // Its KV cache is a large part, of which the engine grants half of what the rest leaves.
  const std::filesystem::path path = write("tiny.gguf", {.dim = 256, .n_heads = 8, .n_kv_heads = 8, .context = 8192});
  const Result<MemoryNeed> need = model_memory().measure(path);
  ASSERT_TRUE(need.ok()) << need.error().message;
  const auto planned_within = [&](size_t limit) {
    Result<ModelInstance> model = ModelInstance::open(path, {.backend = "", .memory_limit = kUnlimitedMemory});
    return chat_memory(model.value(), limit, 4096);
  };
  const Result<EngineMemory> planned = planned_within(need.value().limit_bytes);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_EQ(planned.value().bytes(), need.value().bytes);
  EXPECT_FALSE(planned_within(need.value().limit_bytes * 98 / 100).ok());
}

TEST_F(ModelMemoryOfFileTest, a_replaced_file_is_measured_again) {
  const auto measure = model_memory().measure;
  const std::filesystem::path path = write("tiny.gguf", TinyLlama{});
  const uint64_t small = measure(path).value().bytes;
  EXPECT_EQ(measure(path).value().bytes, small);
  std::ofstream(path, std::ios::binary) << "not a model";
  EXPECT_FALSE(measure(path).ok());
}

}  // namespace
}  // namespace zinc
