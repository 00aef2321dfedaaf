#include "hub/catalog.h"

#include <gtest/gtest.h>

#include <set>

#include "hub/fit.h"
#include "hub/inventory.h"
#include "hub/journal.h"
#include "hub/source.h"
#include "model/architecture.h"
#include "tests/support/gguf_writer.h"

namespace zinc {
namespace {

TEST(Catalog, every_entry_is_complete_and_consistent) {
  std::set<std::string_view> ids;
  for (const CatalogModel& model : catalog_models()) {
    EXPECT_TRUE(ids.insert(model.id).second) << model.id;
    EXPECT_EQ(model_id_of(model.id), model.id) << "an id is a plain lower-case name";
    for (const std::string_view text :
         {model.name, model.architecture, model.parameters, model.quantization, model.license}) {
      EXPECT_FALSE(text.empty()) << model.id;
    }
    EXPECT_TRUE(parse_sha256(model.file.sha256)) << model.id;
    const Result<Source> source = parse_source(model.source);
    ASSERT_TRUE(source.ok()) << source.error().message;
    if (source.value().kind == SourceKind::hugging_face) {
      EXPECT_EQ(source.value().file, model.file.name) << model.id << ": the source names the file exactly";
    } else {
      EXPECT_FALSE(source.value().revision.empty()) << model.id << ": a package is pinned";
    }
  }
  EXPECT_TRUE(ids.contains(kDefaultModelId));
}

TEST(Catalog, lists_only_supported_architectures_and_all_families) {
  std::set<std::string_view> known, listed;
  for (const Architecture* const* a = kArchitectures; *a; ++a) known.insert((*a)->gguf_name);
  for (const CatalogModel& model : catalog_models()) {
    EXPECT_TRUE(known.contains(model.architecture)) << model.id;
    listed.insert(model.architecture);
  }
  for (const char* family : {"llama", "smollm3", "qwen2", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe",
                             "gemma3", "gemma4", "gpt-oss"}) {
    EXPECT_TRUE(listed.contains(family)) << family;
  }
}

TEST(Catalog, lookup_is_case_insensitive) {
  ASSERT_NE(find_catalog_model("Qwen3-8B"), nullptr);
  EXPECT_EQ(find_catalog_model("Qwen3-8B")->id, "qwen3-8b");
  EXPECT_EQ(find_catalog_model("qwen3-8"), nullptr);
  EXPECT_EQ(find_catalog_model(""), nullptr);
}

TEST(Catalog, aliases_name_models_of_the_catalog) {
  std::vector<std::string_view> names = catalog_alias_names();
  EXPECT_NE(std::ranges::find(names, "smollm2"), names.end());
  names.push_back("Qwen3");
  for (const std::string_view name : names) {
    EXPECT_NE(find_catalog_model(catalog_alias(name)), nullptr) << name;
  }
  EXPECT_EQ(catalog_alias("llama9"), "");
}

ModelEntry known_entry(const char* id, const char* family, const char* released, const char* parameters,
                       uint64_t n_bytes) {
  ModelEntry out;
  out.id = id, out.architecture = family, out.released = released, out.parameters = parameters;
  out.memory_bytes = n_bytes, out.is_known = true, out.fit = Fit::fits;
  return out;
}

std::vector<std::string> recommended_of(std::vector<ModelEntry> entries, const MemoryCapacity& memory) {
  mark_recommended(entries, memory);
  std::vector<std::string> out;
  for (const ModelEntry& entry : entries) {
    if (entry.is_recommended) out.push_back(entry.id);
  }
  return out;
}

TEST(Inventory, recommends_the_newest_model_of_each_family_that_fits_and_is_fast_enough) {
  std::vector<ModelEntry> entries = {
      known_entry("old", "a", "2024-01", "1B", 10),           known_entry("small", "b", "2026-02", "E2B", 5),
      known_entry("larger", "b", "2026-02", "E4B", 9),        known_entry("slow", "c", "2026-03", "9B", 10),
      known_entry("sparse", "d", "2026-03", "30B-A3.6B", 40), known_entry("huge", "e", "2026-04", "80B-A3B", 60),
      known_entry("tiny", "f", "2025-01", "135M", 1),         known_entry("mine", "g", "2026-05", "1B", 10),
      known_entry("tight", "h", "2026-05", "1B", 10),         known_entry("odd", "i", "2026-05", "many", 10)};
  entries[7].is_known = false;
  entries[8].fit = Fit::tight;
  const MemoryCapacity host{.n_bytes = 100, .n_available = 100};
  EXPECT_EQ(recommended_of(entries, host), (std::vector<std::string>{"larger", "sparse", "tiny"}));
  const MemoryCapacity gpu{.n_bytes = 100, .n_available = 100, .is_gpu = true};
  EXPECT_EQ(recommended_of(entries, gpu), (std::vector<std::string>{"sparse", "huge", "odd"})) << "all are fast there";
}

TEST(Fit, is_judged_by_total_and_free_memory) {
  const MemoryCapacity memory{.n_bytes = 100, .n_available = 60};
  EXPECT_EQ(judge_fit({0, 0}, memory), Fit::unknown);
  EXPECT_EQ(judge_fit({60, 60}, memory), Fit::fits);
  EXPECT_EQ(judge_fit({61, 61}, memory), Fit::tight);
  EXPECT_EQ(judge_fit({50, 61}, memory), Fit::tight) << "the engine would not grant it";
  EXPECT_EQ(judge_fit({100, 120}, memory), Fit::tight);
  EXPECT_EQ(judge_fit({101, 101}, memory), Fit::too_large);
  EXPECT_EQ(estimated_need(0).bytes, 0u);
  EXPECT_GT(estimated_need(1'000'000'000).bytes, 1'100'000'000u);
}

}  // namespace
}  // namespace zinc
