// An isolated environment for hub tests: cache, configuration, a tiny model and short limits. Messages are collected in
// messages_. HubServerFixture adds a server that stands in for Hugging Face.
#pragma once

#include "base/deferred_sigint.h"
#include "hub/model_store.h"
#include "tests/support/fault_server.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_llama.h"

namespace zinc {

class HubFixture : public testing::Test {
 protected:
  HubFixture() {
    settings_.cache = root_ / "cache";
    settings_.config = root_ / "config";
    settings_.hf_cache = root_ / "hf";
    settings_.ollama_stores = {root_ / "ollama"};
    settings_.python = (root_ / "no-python").string();
    settings_.limits.transfer = {.connect_ms = 10'000, .stall_ms = 10'000};
    settings_.limits.chunk_bytes = 1024;
    settings_.limits.first_pause_ms = 1;
    settings_.limits.n_failures = 2;
  }

  DownloadHooks hooks() {
    return {.progress = [](const DownloadProgress&) {},
            .on_message = [this](std::string_view line) { messages_ += std::string(line) + "\n"; },
            .cancelled = is_cancelled_};
  }
  std::filesystem::path folder(std::string_view id) const { return settings_.cache / "models" / id; }

  TestFolder root_;
  HubSettings settings_;
  std::string model_ = TinyLlama{}.file().bytes();
  std::string messages_;
  std::function<bool()> is_cancelled_ = sigint_pending;
};

class HubServerFixture : public HubFixture {
 protected:
  HubServerFixture() {
    settings_.hf_endpoint = server_.url("");
    settings_.hf_token = "secret";
  }

  FaultReply serve(const ServedRequest& request) {
    const std::string path = request.path.substr(0, request.path.find('?'));
    if (path.starts_with("/api/models/org/repo/tree/")) return {.status = 200, .body = listing()};
    const auto file = files_.find(path.substr(path.rfind('/') + 1));
    if (file == files_.end() || path.find("absent") != std::string::npos) return {.status = 404};
    return honest_reply(request, {.bytes = file->second, .sha256 = sha256_of(file->second)});
  }

  // The response of the tree call for org/repo.
  std::string listing() const {
    std::string entries = R"({"type":"directory","path":"d"},{"type":"file","path":"README.md","size":5},
        {"type":"file","path":"mmproj-F16.gguf","size":5})";
    for (const auto& [name, bytes] : files_) {
      const auto stated = stated_bytes_.find(name);
      entries += fmt::format(R"(,{{"type":"file","path":"{}","size":{},"lfs":{{"oid":"{}"}}}})", name,
                             stated == stated_bytes_.end() ? bytes.size() : stated->second, sha256_of(bytes));
    }
    return "[" + entries + "]";
  }

  // Body bytes of the file that were requested, without the probe.
  static uint64_t n_asked(const FaultServer& server, std::string_view name) {
    uint64_t n_bytes = 0;
    for (const ServedRequest& request : server.requests()) {
      const bool is_it = request.path.substr(0, request.path.find('?')).ends_with(name);
      if (is_it && request.range && !request.is_probe()) n_bytes += request.range->second - request.range->first;
    }
    return n_bytes;
  }

  std::map<std::string, std::string> files_ = {{"m-Q8_0.gguf", model_}, {"m-Q4_K_M.gguf", model_}};
  std::map<std::string, uint64_t> stated_bytes_;  // wrong sizes for the listing
  FaultServer server_{[this](const ServedRequest& request) { return serve(request); }};
};

}  // namespace zinc
