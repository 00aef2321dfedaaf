// A scripted HTTP/1.1 server on loopback that can inject faults: cut or stalled connections, wrong data. One thread per
// connection; the script is called under a lock, so it may keep state.
//   FaultServer server([&](const ServedRequest& r) { return honest_reply(r, file); });
//   download(server.url("/model.gguf"));
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"

namespace zinc {

struct ServedRequest {
  std::string path;
  std::map<std::string, std::string> headers;          // names in lower case
  std::optional<std::pair<uint64_t, uint64_t>> range;  // [first, end) as requested
  int number = 0;                                      // from 0, in order of arrival
  bool is_probe() const { return range == std::pair<uint64_t, uint64_t>{0, 1}; }
};

struct FaultReply {
  int status = 200;
  std::vector<std::string> headers = {};
  std::string body = {};
  std::optional<std::string> raw = {};     // instead of the fields above: these bytes, then close
  std::optional<size_t> cut_after = {};    // body bytes, then close
  std::optional<size_t> stall_after = {};  // body bytes, then silence until the client closes
  bool stalls_before_head = false;
  bool resets = false;      // close with RST
  size_t piece_bytes = 0;   // slow: bytes per write,
  int piece_pause_ms = 0;   // and the pause after each
  bool closes = false;      // no keep-alive
  bool is_chunked = false;  // no length; chunked encoding

  FaultReply& drop_header(std::string_view name) {
    std::erase_if(headers, [&](const std::string& h) { return h.starts_with(name); });
    return *this;
  }
};

struct ServedFile {
  std::string bytes;
  std::string etag = "\"v1\"";
  std::string last_modified = {};
  std::string sha256 = {};  // sent as X-Linked-Etag, as Hugging Face does
};

// A correct response: ranges, If-Range, validators.
inline FaultReply honest_reply(const ServedRequest& request, const ServedFile& file) {
  FaultReply reply;
  if (!file.etag.empty()) reply.headers.push_back("ETag: " + file.etag);
  if (!file.last_modified.empty()) reply.headers.push_back("Last-Modified: " + file.last_modified);
  if (!file.sha256.empty()) reply.headers.push_back("X-Linked-Etag: \"" + file.sha256 + "\"");
  const auto condition = request.headers.find("if-range");
  const bool is_same =
      condition == request.headers.end() || condition->second == file.etag || condition->second == file.last_modified;
  if (!request.range || !is_same) {
    reply.body = file.bytes;
    return reply;
  }
  if (request.range->first >= file.bytes.size()) {
    reply.status = 416;
    reply.headers.push_back(fmt::format("Content-Range: bytes */{}", file.bytes.size()));
    return reply;
  }
  const uint64_t end = std::min<uint64_t>(request.range->second, file.bytes.size());
  reply.status = 206;
  reply.headers.push_back(
      fmt::format("Content-Range: bytes {}-{}/{}", request.range->first, end - 1, file.bytes.size()));
  reply.body = file.bytes.substr(request.range->first, end - request.range->first);
  return reply;
}

class FaultServer {
 public:
  using Script = std::function<FaultReply(const ServedRequest&)>;

  explicit FaultServer(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ZINC_CHECK(listener_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ZINC_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ZINC_CHECK(::listen(listener_, 64) == 0);
    socklen_t size = sizeof address;
    ZINC_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~FaultServer() {
    stopping_ = true;
    accepting_.join();
    for (std::thread& thread : serving_) thread.join();
    ::close(listener_);
  }
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;

  std::string url(std::string_view path) const { return fmt::format("http://127.0.0.1:{}{}", port_, path); }
  std::vector<ServedRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  // Whether there is something to read before the server stops.
  bool wait_readable(int fd) const {
    while (!stopping_) {
      pollfd ready{fd, POLLIN, 0};
      if (::poll(&ready, 1, 20) > 0) return true;
    }
    return false;
  }

  void accept_all() {
    while (wait_readable(listener_)) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      // Head and body are separate writes: with Nagle's algorithm the second would wait 40 ms for the delayed ACK.
      const int at_once = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
      serving_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    std::string unread;
    while (read_head(fd, unread)) {
      const size_t end = unread.find("\r\n\r\n");
      const ServedRequest request = parse(unread.substr(0, end));
      unread.erase(0, end + 4);
      FaultReply reply;
      {
        const std::lock_guard lock(mutex_);
        ServedRequest numbered = request;
        numbered.number = static_cast<int>(requests_.size());
        requests_.push_back(numbered);
        reply = script_(numbered);
      }
      if (!answer(fd, reply)) break;
    }
    ::close(fd);
  }

  bool read_head(int fd, std::string& unread) const {
    while (unread.find("\r\n\r\n") == std::string::npos) {
      if (!wait_readable(fd)) return false;
      char block[4096];
      const ssize_t n = ::recv(fd, block, sizeof block, 0);
      if (n <= 0) return false;
      unread.append(block, static_cast<size_t>(n));
    }
    return true;
  }

  static ServedRequest parse(const std::string& head) {
    ServedRequest request;
    const size_t first = head.find(' '), second = head.find(' ', first + 1);
    request.path = head.substr(first + 1, second - first - 1);
    for (size_t at = head.find("\r\n"); at != std::string::npos; at = head.find("\r\n", at + 2)) {
      const std::string line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
      const size_t colon = line.find(": ");
      if (colon == std::string::npos) continue;
      std::string name = line.substr(0, colon);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = line.substr(colon + 2);
    }
    if (const auto range = request.headers.find("range"); range != request.headers.end()) {
      uint64_t from = 0, to = 0;
      const std::string& text = range->second;
      const size_t dash = text.find('-');
      std::from_chars(text.data() + strlen("bytes="), text.data() + dash, from);
      std::from_chars(text.data() + dash + 1, text.data() + text.size(), to);
      request.range = {from, to + 1};
    }
    return request;
  }

  // False: close the connection.
  bool answer(int fd, const FaultReply& reply) const {
    if (reply.stalls_before_head) return stall(fd);
    if (reply.raw) return send_all(fd, *reply.raw), false;
    std::string head = fmt::format("HTTP/1.1 {} Word\r\n", reply.status);
    bool has_length = false;
    for (const std::string& header : reply.headers) {
      has_length = has_length || header.starts_with("Content-Length:");
      head += header + "\r\n";
    }
    if (reply.is_chunked) head += "Transfer-Encoding: chunked\r\n";
    if (!has_length && !reply.is_chunked) head += fmt::format("Content-Length: {}\r\n", reply.body.size());
    if (reply.closes) head += "Connection: close\r\n";
    if (!send_all(fd, head + "\r\n")) return false;
    size_t n_sent =
        std::min({reply.body.size(), reply.cut_after.value_or(SIZE_MAX), reply.stall_after.value_or(SIZE_MAX)});
    if (!send_body(fd, reply, n_sent)) return false;
    if (reply.stall_after) return stall(fd);
    if (reply.resets) {
      const linger at_once{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    return !reply.cut_after && !reply.resets && !reply.closes;
  }

  bool send_body(int fd, const FaultReply& reply, size_t n_bytes) const {
    const std::string_view body = std::string_view(reply.body).substr(0, n_bytes);
    const size_t piece = reply.piece_bytes > 0 ? reply.piece_bytes : std::max<size_t>(1, body.size());
    for (size_t at = 0; at < body.size(); at += piece) {
      const std::string_view part = body.substr(at, piece);
      const std::string framed =
          reply.is_chunked ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : std::string(part);
      if (stopping_ || !send_all(fd, framed)) return false;
      if (reply.piece_pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(reply.piece_pause_ms));
    }
    return !reply.is_chunked || send_all(fd, "0\r\n\r\n");
  }

  bool stall(int fd) const {
    char byte;
    while (wait_readable(fd) && ::recv(fd, &byte, 1, 0) > 0) {
    }
    return false;
  }

  static bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  Script script_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<ServedRequest> requests_;
  std::thread accepting_;
  std::vector<std::thread> serving_;
};

}  // namespace zinc
