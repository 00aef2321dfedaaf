#include "hub/resolve.h"

#include <gtest/gtest.h>

#include "hub/inventory.h"
#include "hub/ollama_store.h"
#include "tests/support/contains_all.h"
#include "tests/support/fault_server.h"
#include "tests/support/hub_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

class HubTest : public HubServerFixture {
 protected:
  Result<fs::path> resolve(const std::string& name) { return resolve_model(settings_, name, hooks()); }
  std::string refusal(const std::string& name) {
    const Result<fs::path> path = resolve(name);
    EXPECT_FALSE(path.ok()) << name;
    return path.ok() ? path.value().string() : path.error().message;
  }

  // In huggingface_hub's layout.
  fs::path put_in_hf_cache(const std::string& commit, const std::string& name, std::string_view bytes) const {
    const fs::path repo = settings_.hf_cache / "models--org--repo";
    put(repo / "refs" / "main", commit);
    const fs::path blob = put(repo / "blobs" / sha256_of(bytes), bytes);
    fs::create_directories(repo / "snapshots" / commit);
    fs::create_symlink(fs::path("../../blobs") / blob.filename(), repo / "snapshots" / commit / name);
    return repo / "snapshots" / commit / name;
  }

  fs::path put_in_ollama(const fs::path& name_and_tag, std::string_view bytes, std::string_view digest = "",
                         const char* host = "registry.example") const {
    const std::string hex = digest.empty() ? sha256_of(bytes) : std::string(digest);
    put(settings_.ollama_stores[0] / "manifests" / host / name_and_tag,
        fmt::format(R"({{"layers":[{{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:00"}},
          {{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:{}"}}]}})",
                    hex));
    return put(settings_.ollama_stores[0] / "blobs" / ("sha256-" + sha256_of(bytes)), bytes);
  }
};

TEST_F(HubTest, path_is_used_as_is_and_folder_is_not_a_model) {
  const fs::path file = put(root_ / "some" / "model.gguf", model_);
  EXPECT_EQ(resolve(file.string()).value(), file);
  EXPECT_TRUE(names_model(settings_, file.string()));
  EXPECT_FALSE(names_model(settings_, (root_ / "some").string()));
  EXPECT_TRUE(names_model(settings_, "absent.gguf"));
  EXPECT_EQ(resolve("absent.gguf").value(), "absent.gguf") << "opening it reports the error";
  EXPECT_FALSE(names_model(settings_, "What is a model?"));
  EXPECT_FALSE(names_model(settings_, std::string(100'000, 'x')));
  EXPECT_FALSE(names_model(settings_, "hf:not a repository"));
}

TEST_F(HubTest, unknown_name_is_rejected_with_a_suggestion) {
  EXPECT_TRUE(contains_all(refusal("qwen3-8c"), {"'qwen3-8c'", "did you mean 'qwen3-8b'?", "zinc list"}));
  EXPECT_TRUE(contains_all(refusal("qwen3.5-2"), {"several models begin with 'qwen3.5-2'", "qwen3.5-27b, qwen3.5-2b"}));
  EXPECT_FALSE(contains_all(refusal("something else entirely"), {"did you mean"}));
  EXPECT_TRUE(contains_all(refusal("smolm2"), {"did you mean 'smollm2'?"})) << "Ollama's name";
  EXPECT_TRUE(contains_all(refusal("someone/some-GGUF:Q8_0"), {"did you mean 'hf:someone/some-GGUF:Q8_0'?"}));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HubTest, repository_without_a_file_uses_the_default_quantization) {
  const Result<fs::path> path = resolve("hf:org/repo");
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(path.value(), settings_.cache / "models" / "m-q4_k_m" / "m-Q4_K_M.gguf");
  EXPECT_EQ(contents(path.value()), model_);
  EXPECT_EQ(server_.requests().front().headers.at("authorization"), "Bearer secret");
  const size_t n_requests = server_.requests().size();
  EXPECT_EQ(resolve("hf:org/repo").value(), path.value());
  EXPECT_EQ(resolve("m-q4_k_m").value(), path.value()) << "an installed model has a name";
  EXPECT_TRUE(names_model(settings_, "m-q4_k_m"));
  EXPECT_EQ(resolve("M-Q4K").value(), path.value()) << "and its beginning is enough";
  EXPECT_EQ(full_model_name(settings_, "llama3.2"), "llama-3.2-3b-instruct");
  EXPECT_EQ(server_.requests().size(), n_requests) << "and needs no network";
}

TEST_F(HubTest, a_quantization_or_a_file_of_a_repository_can_be_named) {
  EXPECT_EQ(resolve("hf:org/repo:q8_0").value().filename(), "m-Q8_0.gguf");
  EXPECT_EQ(resolve("hf:org/repo:m-Q4_K_M.gguf").value().filename(), "m-Q4_K_M.gguf");
  EXPECT_TRUE(contains_all(refusal("hf:org/repo:Q5_K_M"), {"Q5_K_M", "m-Q4_K_M.gguf", "m-Q8_0.gguf"}));
  EXPECT_TRUE(contains_all(refusal("hf:org/absent"), {"no such file", "404"}));
  EXPECT_TRUE(contains_all(refusal("hf:org/repo:absent.gguf"), {"404"}));
}

TEST_F(HubTest, url_names_its_file) {
  const Result<fs::path> path = resolve(server_.url("/files/m-Q8_0.gguf?key=1"));
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(path.value().filename(), "m-Q8_0.gguf");
  for (const ServedRequest& request : server_.requests()) EXPECT_FALSE(request.headers.contains("authorization"));
}

TEST_F(HubTest, offline_uses_only_local_models) {
  ASSERT_TRUE(resolve("hf:org/repo:Q8_0").ok());
  settings_.offline = true;
  const size_t n_requests = server_.requests().size();
  EXPECT_TRUE(resolve("hf:org/repo:Q8_0").ok());
  EXPECT_TRUE(contains_all(refusal("hf:org/repo:Q4_K_M"), {"HF_HUB_OFFLINE is set"}));
  EXPECT_EQ(server_.requests().size(), n_requests);
}

TEST_F(HubTest, remove_deletes_only_the_model_folder) {
  ASSERT_TRUE(resolve("hf:org/repo:Q8_0").ok());
  const ModelStore store(settings_);
  EXPECT_GE(store.remove("m-q8_0").value(), model_.size());
  EXPECT_TRUE(store.list().empty());
  EXPECT_FALSE(store.remove("m-q8_0").ok());
  put(root_ / "precious" / "file", "x");
  for (const char* name : {"..", "../../precious", "", ".", "/", "a/b"}) EXPECT_FALSE(store.remove(name).ok()) << name;
  fs::create_directories(settings_.cache / "models");
  fs::create_directory_symlink(root_ / "precious", settings_.cache / "models" / "link");
  EXPECT_FALSE(store.remove("link").ok());
  EXPECT_TRUE(fs::exists(root_ / "precious" / "file"));
}

TEST_F(HubTest, invalid_manifest_is_ignored) {
  ASSERT_TRUE(resolve("hf:org/repo:Q8_0").ok());
  const fs::path manifest = settings_.cache / "models/m-q8_0/manifest.json";
  const std::string good = contents(manifest);
  for (const std::string& bad : {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
                                 std::string(R"({"format":1,"files":[]})"),
                                 std::string(R"({"format":1,"files":[{"name":"../../x","bytes":1,"sha256":""}]})")}) {
    put(manifest, bad);
    EXPECT_FALSE(ModelStore(settings_).find("m-q8_0")) << bad;
  }
  EXPECT_TRUE(resolve("hf:org/repo:Q8_0").ok());
  EXPECT_TRUE(ModelStore(settings_).find("m-q8_0"));
}

TEST_F(HubTest, default_model_is_the_chosen_one_or_the_catalogs) {
  EXPECT_EQ(default_model_name(settings_), kDefaultModelId);
  const fs::path file = put(root_ / "mine.gguf", model_);
  const ModelStore store(settings_);
  ASSERT_TRUE(store.set_default_model(file.string()).ok());
  EXPECT_EQ(resolve("").value(), file);
  ASSERT_TRUE(store.set_default_model("").ok());
  EXPECT_EQ(default_model_name(settings_), kDefaultModelId);
  put(settings_.config / "default-model.json", "{nonsense");
  EXPECT_EQ(default_model_name(settings_), kDefaultModelId);
}

TEST_F(HubTest, hugging_face_cache_is_used_without_copying) {
  const fs::path cached = put_in_hf_cache("c0ffee", "m-Q8_0.gguf", model_);
  EXPECT_EQ(resolve("hf:org/repo:m-Q8_0.gguf").value(), cached);
  EXPECT_EQ(resolve("hf:org/repo:Q8_0").value(), cached);
  EXPECT_EQ(resolve("hf:org/repo@c0ffee:Q8_0").value(), cached);
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_FALSE(fs::exists(settings_.cache));
  EXPECT_EQ(list_hf_cache(settings_.hf_cache).front().first, "hf:org/repo:m-Q8_0.gguf");
}

TEST_F(HubTest, repository_without_a_file_ignores_other_cached_files_unless_offline) {
  const fs::path small = put_in_hf_cache("c0ffee", "m-Q2_K.gguf", model_);
  EXPECT_EQ(resolve("hf:org/repo").value().filename(), "m-Q4_K_M.gguf");
  fs::remove_all(settings_.cache);
  settings_.offline = true;
  EXPECT_EQ(resolve("hf:org/repo").value(), small) << "the only one available offline";
  EXPECT_TRUE(contains_all(messages_, {"m-Q2_K.gguf"}));
  const fs::path usual = put_in_hf_cache("c0ffee", "m-Q4_K_M.gguf", model_ + "x");
  settings_.offline = false;
  const size_t n_requests = server_.requests().size();
  EXPECT_EQ(resolve("hf:org/repo").value(), usual);
  EXPECT_EQ(server_.requests().size(), n_requests) << "the default quantization needs no listing";
}

TEST_F(HubTest, single_file_of_a_repository_is_used_from_the_cache_after_listing) {
  files_ = {{"m-BF16.gguf", model_}};
  const fs::path cached = put_in_hf_cache("c0ffee", "m-BF16.gguf", model_);
  EXPECT_EQ(resolve("hf:org/repo").value(), cached);
  EXPECT_EQ(n_asked(server_, "m-BF16.gguf"), 0u);
  EXPECT_TRUE(ModelStore(settings_).list().empty());
}

TEST_F(HubTest, incomplete_file_in_the_hugging_face_cache_is_not_used) {
  const fs::path cached = put_in_hf_cache("c0ffee", "m-Q8_0.gguf", model_);
  fs::remove(fs::canonical(cached));  // the link points nowhere
  const Result<fs::path> path = resolve("hf:org/repo:m-Q8_0.gguf");
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(path.value(), settings_.cache / "models/m-q8_0/m-Q8_0.gguf");
}

TEST_F(HubTest, cached_file_with_another_hash_does_not_match) {
  put_in_hf_cache("c0ffee", "m-Q8_0.gguf", model_);
  const Source source = parse_source("hf:org/repo:m-Q8_0.gguf").value();
  EXPECT_TRUE(find_in_hf_cache(settings_.hf_cache, source, sha256_of(model_)));
  EXPECT_FALSE(find_in_hf_cache(settings_.hf_cache, source, sha256_of("another")));
}

TEST_F(HubTest, ollama_models_are_used_without_copying) {
  const fs::path blob = put_in_ollama("library/qwen3/8b", model_);
  put_in_ollama("someone/special/latest", model_);
  EXPECT_EQ(resolve("ollama:qwen3:8b").value(), blob);
  EXPECT_EQ(resolve("ollama:someone/special").value(), blob);
  EXPECT_TRUE(contains_all(refusal("ollama:qwen3:4b"), {"did you mean ollama:qwen3:8b"}));
  EXPECT_EQ(list_ollama_models(settings_.ollama_stores).size(), 2u);
  settings_.ollama_stores = {root_ / "nothing"};
  EXPECT_TRUE(contains_all(refusal("ollama:qwen3:8b"), {"OLLAMA_MODELS"}));
}

TEST_F(HubTest, ollama_models_of_two_hosts_with_one_name_are_disambiguated) {
  const fs::path first = put_in_ollama("x/y/latest", model_);
  const fs::path second = put_in_ollama("x/y/latest", "another", "", "hf.example");
  EXPECT_EQ(resolve("ollama:registry.example/x/y").value(), first);
  EXPECT_EQ(resolve("ollama:hf.example/x/y:latest").value(), second);
  EXPECT_TRUE(
      contains_all(refusal("ollama:x/y"), {"ollama:registry.example/x/y:latest", "ollama:hf.example/x/y:latest"}));
  const std::vector<ModelEntry> entries = list_models(settings_, {});
  EXPECT_EQ(std::ranges::count(entries, "ollama:x/y:latest", &ModelEntry::id), 0);
  EXPECT_EQ(std::ranges::count(entries, "ollama:hf.example/x/y:latest", &ModelEntry::id), 1);
}

TEST_F(HubTest, invalid_ollama_manifests_are_skipped) {
  put_in_ollama("library/good/latest", model_);
  put_in_ollama("library/escapes/latest", model_, "../../../../etc/passwd");
  put_in_ollama("library/short/latest", model_, "abc");
  put_in_ollama("library/gone/latest", "another", sha256_of("a blob that is not there"));
  put(settings_.ollama_stores[0] / "manifests/registry.example/library/broken/latest", "{");
  put(settings_.ollama_stores[0] / "manifests/stray", "{}");
  const std::vector<OllamaModel> models = list_ollama_models(settings_.ollama_stores);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "good");
}

TEST_F(HubTest, list_has_catalog_installed_and_external_models) {
  ASSERT_TRUE(resolve("hf:org/repo:Q4_K_M").ok());
  put_in_ollama("library/qwen3/8b", model_);
  put_in_hf_cache("c0ffee", "m-Q8_0.gguf", model_);
  MemoryCapacity memory{.n_bytes = 1 << 30, .n_available = 1 << 29};
  memory.measure = [](const fs::path& file) -> Result<MemoryNeed> {
    if (file.filename() == "m-Q8_0.gguf") return fail(ErrorCode::unsupported, "no kernel");
    return MemoryNeed{.bytes = 1 << 28, .limit_bytes = 1 << 28};
  };
  const std::vector<ModelEntry> entries = list_models(settings_, memory);
  EXPECT_EQ(entries.size(), catalog_models().size() + 3);
  EXPECT_TRUE(std::ranges::is_sorted(entries, {}, &ModelEntry::id));
  const auto at = [&](std::string_view id) { return *std::ranges::find(entries, id, &ModelEntry::id); };
  EXPECT_EQ(at("m-q4_k_m").memory_bytes, 1u << 28);
  EXPECT_TRUE(at("m-q4_k_m").memory_is_exact);
  EXPECT_EQ(at("m-q4_k_m").fit, Fit::fits);
  EXPECT_TRUE(at("ollama:qwen3:8b").memory_is_exact);
  EXPECT_FALSE(at("hf:org/repo:m-Q8_0.gguf").memory_is_exact) << "it cannot be measured: estimated";
  EXPECT_FALSE(at("qwen3-8b").memory_is_exact) << "not installed: only its size is known";
  EXPECT_EQ(at("ollama:qwen3:8b").location, ModelLocation::ollama);
  EXPECT_EQ(at("hf:org/repo:m-Q8_0.gguf").location, ModelLocation::hugging_face);
  EXPECT_EQ(at("qwen3-8b").fit, Fit::too_large);
  EXPECT_TRUE(at("qwen3-8b").path.empty());
  EXPECT_TRUE(at(kDefaultModelId).is_default);
  const json::object fields = entry_json(at("qwen3-8b"), settings_);
  EXPECT_EQ(fields.at("installed"), json::value(false));
  EXPECT_EQ(fields.at("size_bytes"), json::value(5'027'783'488));
  EXPECT_EQ(fields.at("homepage_url"), json::value(server_.url("/Qwen/Qwen3-8B-GGUF")));
}

TEST_F(HubTest, list_shows_a_model_as_installed_only_if_its_file_exists) {
  const fs::path path = resolve("hf:org/repo:Q4_K_M").value();
  fs::remove(path);
  const std::vector<ModelEntry> entries = list_models(settings_, {});
  EXPECT_TRUE(std::ranges::find(entries, "m-q4_k_m", &ModelEntry::id)->path.empty());
}

TEST_F(HubTest, show_reads_the_model_file) {
  const fs::path file = put(root_ / "mine.gguf", model_);
  MemoryCapacity memory{.n_bytes = 1 << 30, .n_available = 1 << 29};
  std::vector<fs::path> measured;
  memory.measure = [&](const fs::path& path) -> Result<MemoryNeed> {
    measured.push_back(path);
    return MemoryNeed{.bytes = 1 << 20, .limit_bytes = (1 << 29) + 1};
  };
  ASSERT_TRUE(resolve("hf:org/repo:Q4_K_M").ok());
  const Result<ModelEntry> entry = show_model(settings_, file.string(), memory);
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry.value().architecture, "llama");
  EXPECT_EQ(measured, std::vector<fs::path>{file}) << "no other installed model is opened";
  EXPECT_EQ(entry.value().memory_bytes, 1u << 20);
  EXPECT_TRUE(entry.value().memory_is_exact);
  EXPECT_EQ(entry.value().fit, Fit::tight) << "the engine wants more to be free";
  EXPECT_EQ(show_model(settings_, "Qwen3-8B", memory).value().id, "qwen3-8b");
  EXPECT_FALSE(show_model(settings_, "nothing like it", memory).ok());
  EXPECT_FALSE(show_model(settings_, (root_ / "absent.gguf").string(), memory).ok());
}

TEST_F(HubTest, license_of_an_unknown_file_comes_from_its_metadata) {
  GgufWriter writer = TinyLlama{}.file();
  writer.add("general.license", "apache-2.0");
  const fs::path file = put(root_ / "licensed.gguf", writer.bytes());
  EXPECT_EQ(show_model(settings_, file.string(), {}).value().license, "apache-2.0");
}

TEST_F(HubTest, repository_without_a_preferred_file_lists_all_files) {
  const std::vector<RepoFile> files = {{"a-F16.gguf", 1, ""}, {"b-F32.gguf", 1, ""}, {"mmproj-a.gguf", 1, ""}};
  const Result<std::vector<RepoFile>> chosen = choose_model_files("o/r", files, "");
  ASSERT_FALSE(chosen.ok());
  EXPECT_TRUE(contains_all(chosen.error().message, {"a-F16.gguf", "b-F32.gguf"}));
  EXPECT_FALSE(contains_all(chosen.error().message, {"mmproj"}));
  EXPECT_EQ(choose_model_files("o/r", files, "f16").value().front().path, "a-F16.gguf");
  const std::vector<RepoFile> split = {{"d/x-Q4_K_M-00002-of-00002.gguf", 1, ""},
                                       {"d/x-Q4_K_M-00001-of-00002.gguf", 1, ""}};
  const std::vector<RepoFile> parts = choose_model_files("o/r", split, "Q4_K_M").value();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].path, "d/x-Q4_K_M-00001-of-00002.gguf");
  EXPECT_FALSE(choose_model_files("o/r", std::span(split).first(1), "d/x-Q4_K_M-00002-of-00002.gguf").ok());
  const std::vector<RepoFile> others = {{"a-F16.gguf", 1, ""}, {"manifest.json", 1, ""}};
  const Result<std::vector<RepoFile>> no_model = choose_model_files("o/r", others, "manifest.json");
  ASSERT_FALSE(no_model.ok()) << "it would overwrite our manifest";
  EXPECT_TRUE(contains_all(no_model.error().message, {"manifest.json", ".gguf"}));
  EXPECT_FALSE(parse_repo_listing("{}").ok());
  EXPECT_TRUE(parse_repo_listing(R"([1, {"type":"file"}, {"type":"file","path":3}])").value().empty());
}

}  // namespace
}  // namespace zinc
