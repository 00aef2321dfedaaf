// Shared by the download tests: a file in two versions, short limits, and scripts with injected faults
// (tests/support/fault_server.h).
#pragma once

#include <random>

#include "hub/download.h"
#include "tests/support/fault_server.h"
#include "tests/support/test_files.h"

namespace zinc {

constexpr uint64_t kChunk = 64 << 10;
constexpr size_t kFileBytes = (1 << 20) + 123;

inline std::string random_bytes(size_t n_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(n_bytes, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline const std::string& old_bytes() {
  static const std::string bytes = random_bytes(kFileBytes, 1);
  return bytes;
}
inline const std::string& new_bytes() {
  static const std::string bytes = random_bytes(kFileBytes, 2);
  return bytes;
}

inline DownloadLimits quick_limits() {
  DownloadLimits limits;
  limits.transfer = {.connect_ms = 10'000, .stall_ms = 10'000};
  limits.chunk_bytes = kChunk;
  limits.max_chunks_per_request = 4;
  limits.n_connections = 4;
  limits.n_failures = 4;
  limits.first_pause_ms = 2;
  limits.max_pause_s = 2;
  return limits;
}

class DownloadFolder {
 public:
  std::filesystem::path target() const { return folder_ / "model.gguf"; }
  std::filesystem::path part() const { return folder_ / "model.gguf.part"; }
  std::filesystem::path journal() const { return folder_ / "model.gguf.journal"; }

 private:
  TestFolder folder_;
};

inline ServedFile old_file() { return {.bytes = old_bytes()}; }
inline ServedFile new_file() { return {.bytes = new_bytes(), .etag = "\"v2\""}; }

// A correct server with a fault injected into each response.
using InjectFault = std::function<void(const ServedRequest&, FaultReply&)>;
inline FaultServer::Script with_fault(InjectFault inject, ServedFile file = old_file()) {
  return [=](const ServedRequest& request) {
    FaultReply reply = honest_reply(request, file);
    inject(request, reply);
    return reply;
  };
}
// Injects the fault into the first `n` range requests, not into the probe or later ranges.
inline FaultServer::Script with_first_faulty(int n, InjectFault inject, ServedFile file = old_file()) {
  return with_fault(
      [=, n_faulty = std::make_shared<int>(0)](const ServedRequest& request, FaultReply& reply) {
        if (!request.is_probe() && (*n_faulty)++ < n) inject(request, reply);
      },
      std::move(file));
}
inline FaultServer::Script with_ranges_faulty(InjectFault inject, ServedFile file = old_file()) {
  return with_first_faulty(1 << 30, std::move(inject), std::move(file));
}

inline FaultReply only_status(int status, std::vector<std::string> headers = {}) {
  return {.status = status, .headers = std::move(headers), .body = "a page about the status"};
}

inline FaultServer::Script redirecting(int n_hops, ServedFile file = old_file()) {
  return [=](const ServedRequest& request) {
    const std::string prefix = "/hop";
    const int hop = request.path.starts_with(prefix) ? std::stoi(request.path.substr(prefix.size())) : 0;
    if (hop >= n_hops) return honest_reply(request, file);
    return FaultReply{.status = 302, .headers = {fmt::format("Location: /hop{}", hop + 1)}};
  };
}

// The file is replaced after `n` requests; the new one is served with or without support of If-Range.
inline FaultServer::Script replaced_after(int n, bool honors_if_range, ServedFile before = old_file(),
                                          ServedFile after = new_file()) {
  return [=](ServedRequest request) {
    if (!honors_if_range) request.headers.erase("if-range");
    return honest_reply(request, request.number < n ? before : after);
  };
}

inline ServedFile dated_file(const std::string& bytes, const char* date) {
  return {.bytes = bytes, .etag = "", .last_modified = date};
}
inline ServedFile hashed_file() { return {.bytes = old_bytes(), .etag = "\"x\"", .sha256 = sha256_of(old_bytes())}; }

inline void flip_byte(FaultReply& reply) {
  if (!reply.body.empty()) reply.body[reply.body.size() / 2] ^= 1;
}

}  // namespace zinc
