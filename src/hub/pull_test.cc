// A pull preserves finished parts, models of other sources, and files this build cannot run, and never shows secrets in
// URLs.
#include "hub/pull.h"

#include <gtest/gtest.h>

#include <thread>

#include "hub/inventory.h"
#include "hub/resolve.h"
#include "tests/support/contains_all.h"
#include "tests/support/hub_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

class HubPull : public HubServerFixture {
 protected:
  Result<Pulled> pull(const std::string& name) {
    ZINC_TRY(reference, make_model_reference(settings_, name));
    return pull_model(settings_, reference, hooks());
  }
  Result<fs::path> resolve(const std::string& name) { return resolve_model(settings_, name, hooks()); }
  std::string refusal(const std::string& name) {
    const Result<Pulled> pulled = pull(name);
    EXPECT_FALSE(pulled.ok()) << name;
    return pulled.ok() ? pulled.value().model.path().string() : pulled.error().message;
  }

  // A server without hashes that cuts off every request for one file until `is_healthy_`.
  FaultServer::Script failing_server(std::string_view name, std::map<std::string, std::string> files) {
    return [this, name, files = std::move(files)](const ServedRequest& request) {
      const auto file = files.find(request.path.substr(request.path.rfind('/') + 1));
      if (file == files.end()) return FaultReply{.status = 404};
      FaultReply reply = honest_reply(request, {.bytes = file->second});
      if (!is_healthy_ && !request.is_probe() && request.path.ends_with(name)) reply.cut_after = n_before_cut_;
      return reply;
    };
  }
  std::atomic<bool> is_healthy_ = false;
  size_t n_before_cut_ = 0;
};

TEST_F(HubPull, split_model_is_downloaded_completely) {
  files_ = {{"big-00001-of-00002.gguf", model_}, {"big-00002-of-00002.gguf", "the second part"}};
  const Result<fs::path> path = resolve("hf:org/repo:big-00001-of-00002.gguf");
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(path.value(), settings_.cache / "models/big/big-00001-of-00002.gguf");
  EXPECT_EQ(contents(path.value().parent_path() / "big-00002-of-00002.gguf"), files_.at("big-00002-of-00002.gguf"));
  EXPECT_EQ(ModelStore(settings_).find("big")->files.size(), 2u);
  files_.erase("big-00002-of-00002.gguf");
  fs::remove_all(settings_.cache);
  EXPECT_TRUE(contains_all(refusal("hf:org/repo:big-00001-of-00002.gguf"), {"big-00002-of-00002.gguf", "missing"}));
}

TEST_F(HubPull, invalid_model_is_not_kept) {
  files_["page.gguf"] = "<html>log in first</html>";
  settings_.hf_token = "";
  FaultServer plain(
      [](const ServedRequest& request) { return honest_reply(request, {.bytes = "<html>log in first</html>"}); });
  EXPECT_TRUE(contains_all(refusal(plain.url("/page.gguf")), {"not a valid model", "the downloaded file was deleted"}));
  EXPECT_FALSE(fs::exists(settings_.cache / "models" / "page"));
}

TEST_F(HubPull, two_sources_with_the_same_file_name_do_not_share_a_folder) {
  const fs::path first = resolve("hf:org/repo:m-Q8_0.gguf").value();
  const fs::path second = resolve(server_.url("/m-Q8_0.gguf")).value();
  EXPECT_NE(first.parent_path(), second.parent_path());
  EXPECT_EQ(ModelStore(settings_).list().size(), 2u);
}

TEST_F(HubPull, modified_installed_file_is_downloaded_again) {
  const fs::path path = resolve("hf:org/repo:Q8_0").value();
  std::string damaged = model_;
  damaged.back() ^= 1;
  put(path, damaged);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_EQ(resolve("hf:org/repo:Q8_0").value(), path);
  EXPECT_EQ(contents(path), model_);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(5));
  const size_t n_requests = server_.requests().size();
  EXPECT_TRUE(resolve("hf:org/repo:Q8_0").ok()) << "modified, but the same bytes";
  EXPECT_EQ(server_.requests().size(), n_requests);
}

TEST_F(HubPull, finished_parts_of_a_split_model_are_not_downloaded_again) {
  constexpr const char* kFirst = "big-00001-of-00002.gguf";
  constexpr const char* kSecond = "big-00002-of-00002.gguf";
  FaultServer plain(failing_server(kSecond, {{kFirst, model_}, {kSecond, std::string(5000, 'b')}}));
  ASSERT_FALSE(pull(plain.url("/big-00001-of-00002.gguf")).ok());
  EXPECT_EQ(contents(folder("big") / kFirst), model_);
  const uint64_t n_before = n_asked(plain, kFirst);
  is_healthy_ = true;
  const Result<Pulled> pulled = pull(plain.url("/big-00001-of-00002.gguf"));
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(n_asked(plain, kFirst), n_before);
  EXPECT_EQ(pulled.value().n_fetched, 5000u);
  EXPECT_FALSE(pulled.value().model.is_verified) << "no hash was stated";
  EXPECT_FALSE(fs::exists(folder("big") / "big-00001-of-00002.gguf.journal"));
  EXPECT_EQ(contents(folder("big") / kFirst), model_);
}

TEST_F(HubPull, only_corrupt_chunks_of_a_finished_part_are_downloaded_again) {
  constexpr const char* kFirst = "big-00001-of-00002.gguf";
  constexpr const char* kSecond = "big-00002-of-00002.gguf";
  FaultServer plain(failing_server(kSecond, {{kFirst, model_}, {kSecond, std::string(5000, 'b')}}));
  ASSERT_FALSE(pull(plain.url("/big-00001-of-00002.gguf")).ok());
  std::string damaged = model_;
  damaged[100] ^= 1;
  put(folder("big") / kFirst, damaged);
  is_healthy_ = true;
  const Result<Pulled> pulled = pull(plain.url("/big-00001-of-00002.gguf"));
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled.value().n_fetched, 5000u + settings_.limits.chunk_bytes);
  EXPECT_EQ(contents(folder("big") / kFirst), model_);
}

TEST_F(HubPull, parts_of_a_split_model_are_matched_by_hashes_of_the_listing) {
  constexpr const char* kFirst = "big-00001-of-00002.gguf";
  files_ = {{kFirst, model_}, {"big-00002-of-00002.gguf", "the second part"}};
  put(folder("big") / kFirst, model_);
  const Result<Pulled> pulled = pull("hf:org/repo:big-00001-of-00002.gguf");
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(n_asked(server_, kFirst), 0u);
  EXPECT_EQ(pulled.value().n_fetched, std::string_view("the second part").size());
  EXPECT_TRUE(pulled.value().model.is_verified);
  EXPECT_TRUE(server_.requests().front().path.starts_with("/api/models/org/repo/tree/main"));
}

TEST_F(HubPull, disk_space_for_all_parts_is_checked_before_the_first_download) {
  files_ = {{"big-00001-of-00002.gguf", model_}, {"big-00002-of-00002.gguf", "the second part"}};
  stated_bytes_ = {{"big-00002-of-00002.gguf", uint64_t{1} << 60}};
  EXPECT_TRUE(contains_all(refusal("hf:org/repo:big-00001-of-00002.gguf"), {"free some space", "XDG_CACHE_HOME"}));
  EXPECT_EQ(n_asked(server_, "big-00001-of-00002.gguf"), 0u);
  FaultServer plain([&](const ServedRequest& request) {
    FaultReply reply = honest_reply(request, {.bytes = model_});
    if (request.path.ends_with("00002-of-00002.gguf")) {
      reply.drop_header("Content-Range").headers.push_back("Content-Range: bytes 0-0/1152921504606846976");
    }
    return reply;
  });
  EXPECT_TRUE(contains_all(refusal(plain.url("/big-00001-of-00002.gguf")), {"free some space"}));
  EXPECT_EQ(n_asked(plain, "big-00001-of-00002.gguf"), 0u);
}

TEST_F(HubPull, unfinished_download_survives_another_source_with_the_same_file_name) {
  FaultServer first(failing_server("m.gguf", {{"m.gguf", model_}}));
  n_before_cut_ = 3 * settings_.limits.chunk_bytes + 1;
  settings_.limits.n_failures = 0;  // each connection receives three chunks, then gives up
  settings_.limits.n_connections = 2;
  ASSERT_FALSE(pull(first.url("/m.gguf")).ok());
  std::string other_bytes = model_;
  other_bytes.back() ^= 1;
  FaultServer second([&](const ServedRequest& request) { return honest_reply(request, {.bytes = other_bytes}); });
  const Result<Pulled> other = pull(second.url("/m.gguf"));
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_NE(other.value().model.id, "m");
  is_healthy_ = true;
  const Result<Pulled> pulled = pull(first.url("/m.gguf"));
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled.value().model.id, "m");
  EXPECT_LT(pulled.value().n_fetched, model_.size());
  EXPECT_EQ(contents(pulled.value().model.path()), model_);
  EXPECT_EQ(contents(other.value().model.path()), other_bytes);
}

TEST_F(HubPull, concurrent_pulls_of_two_sources_with_the_same_file_name_make_two_models) {
  const auto slowly = [](const std::string& bytes) {
    return [bytes](const ServedRequest& request) {
      FaultReply reply = honest_reply(request, {.bytes = bytes});
      reply.piece_bytes = 1024, reply.piece_pause_ms = 2;
      return reply;
    };
  };
  std::string other_bytes = model_;
  other_bytes.back() ^= 1;
  FaultServer first(slowly(model_)), second(slowly(other_bytes));
  const auto pull_quietly = [this](const std::string& url) {
    return pull_model(settings_, {"", parse_source(url).value(), nullptr}, {});
  };
  std::optional<Result<Pulled>> one;
  std::thread other([&] { one = pull_quietly(first.url("/m.gguf")); });
  const Result<Pulled> two = pull_quietly(second.url("/m.gguf"));
  other.join();
  ASSERT_TRUE(one->ok()) << one->error().message;
  ASSERT_TRUE(two.ok()) << two.error().message;
  EXPECT_EQ(contents(one->value().model.path()), model_);
  EXPECT_EQ(contents(two.value().model.path()), other_bytes);
  EXPECT_EQ(ModelStore(settings_).list().size(), 2u);
}

TEST_F(HubPull, model_with_unknown_tensor_type_is_kept) {
  GgufWriter writer = TinyLlama{}.file();
  writer.add_record({.name = "unknown_type", .dims = {32}, .type = 9999, .data = std::string(64, 'x')});
  const std::string bytes = writer.bytes();
  FaultServer plain([&](const ServedRequest& request) { return honest_reply(request, {.bytes = bytes}); });
  const Result<Pulled> pulled = pull(plain.url("/new.gguf"));
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_TRUE(contains_all(messages_, {"this version of zinc cannot run it", "9999"}));
  EXPECT_EQ(contents(folder("new") / "new.gguf"), bytes);
  EXPECT_TRUE(pull(plain.url("/new.gguf")).value().already_installed);
}

TEST_F(HubPull, other_files_in_the_folder_of_an_invalid_model_are_kept) {
  FaultServer plain([](const ServedRequest& request) { return honest_reply(request, {.bytes = "<html></html>"}); });
  put(folder("page") / "notes.txt", "mine");
  EXPECT_TRUE(contains_all(refusal(plain.url("/page.gguf")), {"the downloaded file was deleted"}));
  EXPECT_EQ(contents(folder("page") / "notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(folder("page") / "page.gguf"));
}

TEST_F(HubPull, secrets_in_a_url_are_used_but_not_stored_or_shown) {
  FaultServer plain([&](const ServedRequest& request) {
    if (!request.headers.contains("authorization")) return FaultReply{.status = 401};
    return honest_reply(request, {.bytes = model_});
  });
  const std::string url = "http://someone:hush@" + plain.url("/m.gguf").substr(std::string_view("http://").size());
  const Result<Pulled> pulled = pull(url + "?signature=s3cret");
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_TRUE(plain.requests().back().path.ends_with("?signature=s3cret"));
  const std::string manifest = contents(folder("m") / "manifest.json");
  EXPECT_TRUE(contains_all(manifest, {plain.url("/m.gguf")}));
  std::string shown = messages_;
  for (const ModelEntry& entry : list_models(settings_, {})) shown += to_json(entry_json(entry, settings_));
  shown += to_json(entry_json(show_model(settings_, url + "?signature=s3cret", {}).value(), settings_));
  settings_.offline = true;
  shown += refusal("http://someone:hush@127.0.0.1:1/other.gguf?signature=s3cret");
  for (const char* secret : {"hush", "s3cret"}) {
    EXPECT_EQ(manifest.find(secret), std::string::npos) << manifest;
    EXPECT_EQ(shown.find(secret), std::string::npos) << shown;
  }
  EXPECT_TRUE(pull(url + "?signature=another").value().already_installed);
}

TEST_F(HubPull, one_file_under_several_names_is_downloaded_once) {
  ASSERT_TRUE(pull("hf:org/repo").ok());
  for (const char* name : {"hf:org/repo:m-Q4_K_M.gguf", "hf:org/repo:Q4_K_M", "hf:org/repo@main:q4_k_m"}) {
    const Result<Pulled> pulled = pull(name);
    ASSERT_TRUE(pulled.ok()) << pulled.error().message;
    EXPECT_TRUE(pulled.value().already_installed) << name;
    EXPECT_EQ(pulled.value().model.id, "m-q4_k_m") << name;
  }
  const std::string sha256 = sha256_of(model_);
  const CatalogModel catalog{.id = "some-model",
                             .name = "M",
                             .architecture = "llama",
                             .parameters = "1M",
                             .quantization = "F32",
                             .license = "none",
                             .source = "hf:org/mirror:m.gguf",
                             .file = {"m.gguf", model_.size(), sha256},
                             .thinks = false,
                             .status = CatalogStatus::experimental};
  settings_.offline = true;
  const Result<Pulled> pulled =
      pull_model(settings_, {"some-model", parse_source(catalog.source).value(), &catalog}, hooks());
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled.value().model.id, "m-q4_k_m") << "the same bytes by their hash";
}

TEST_F(HubPull, slash_in_a_revision_is_percent_encoded) {
  ASSERT_TRUE(pull("hf:org/repo@refs/pr/1:m-Q8_0.gguf").ok());
  EXPECT_EQ(server_.requests().back().path, "/org/repo/resolve/refs%2Fpr%2F1/m-Q8_0.gguf");
  ASSERT_TRUE(pull("hf:org/repo@refs/pr/1:Q4_K_M").ok());
  bool is_listed = false;
  for (const ServedRequest& request : server_.requests()) {
    is_listed = is_listed || request.path == "/api/models/org/repo/tree/refs%2Fpr%2F1?recursive=true";
  }
  EXPECT_TRUE(is_listed);
}

TEST_F(HubPull, incomplete_file_listing_is_reported) {
  for (const bool is_elsewhere : {true, false}) {
    messages_.clear();
    FaultServer endless([&](const ServedRequest& request) {
      FaultReply reply{.status = 200, .body = R"([{"type":"file","path":"README.md","size":5}])"};
      const std::string next =
          is_elsewhere ? "http://elsewhere.example/next" : "http://" + request.headers.at("host") + "/n";
      reply.headers.push_back("Link: <" + next + ">; rel=\"next\"");
      return reply;
    });
    settings_.hf_endpoint = endless.url("");
    EXPECT_FALSE(pull("hf:org/repo:Q4_K_M").ok());
    EXPECT_TRUE(contains_all(messages_, {"hf:org/repo", "could be listed"}));
  }
}

TEST_F(HubPull, longest_file_name_makes_a_valid_id) {
  const std::string name = std::string(195, 'n') + ".gguf";
  FaultServer plain([&](const ServedRequest& request) { return honest_reply(request, {.bytes = model_}); });
  FaultServer other([&](const ServedRequest& request) { return honest_reply(request, {.bytes = model_ + "x"}); });
  ASSERT_TRUE(pull(plain.url("/" + name)).ok());
  ASSERT_TRUE(pull(other.url("/" + name)).ok());
  EXPECT_EQ(ModelStore(settings_).list().size(), 2u);
  EXPECT_TRUE(pull(other.url("/" + name)).value().already_installed);
}

TEST_F(HubPull, modified_file_is_verified_with_message_and_progress) {
  const fs::path path = pull("hf:org/repo:Q8_0").value().model.path();
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(5));
  messages_.clear();
  uint64_t n_checked = 0;
  DownloadHooks watched = hooks();
  watched.progress = [&](const DownloadProgress& p) {
    if (p.phase == DownloadPhase::verifying) n_checked = p.n_done;
  };
  const Result<fs::path> again = resolve_model(settings_, "hf:org/repo:Q8_0", watched);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(n_checked, model_.size());
  EXPECT_TRUE(contains_all(messages_, {"m-Q8_0.gguf", "verifying"}));
}

}  // namespace
}  // namespace zinc
