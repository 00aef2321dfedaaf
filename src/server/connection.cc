#include "server/connection.h"

#include <boost/asio/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace zinc {

using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kSmallBlock = 2 << 10;   // most requests; an idle connection keeps no more
constexpr size_t kLargeBlock = 64 << 10;  // while a body is received
constexpr size_t kMaxPipelined = 16 << 10;
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kMinReadBytesPerSecond = 64 << 10;  // of a client that receives a long response
constexpr size_t kBodyDeadlineBytes = 1 << 20;       // each such part of a body has its own deadline

}  // namespace

// A handler may hold it longer than the connection lives.
class Connection::Exchange final : public Reply {
 public:
  Exchange(std::shared_ptr<Connection> connection, const HttpRequest& request)
      : connection_(std::move(connection)),
        keeps_alive_(request.keeps_alive),
        is_head_(request.method == "HEAD"),
        is_chunked_(!request.is_http_1_0) {
    log["time"] = fmt::format(
        "{:.3f}", std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
    log["client"] = request.client;
    log["method"] = request.method;
    log["path"] = request.path;
  }

  void send(HttpResponse response) override {
    if (!is_open()) return;
    status_ = response.status;
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    const bool keeps_alive = keeps_alive_ && !connection_->host_.draining;
    std::string bytes = response_head(response, static_cast<long long>(response.body.size()), keeps_alive);
    if (!is_head_) bytes += response.body;
    connection_->queue(bytes);
    finish(keeps_alive);
  }

  void start_stream(std::string_view content_type) override {
    if (!is_open()) return;
    status_ = 200;
    connection_->account_body(0);  // the request has been parsed
    HttpResponse head{.body = {},
                      .content_type = std::string(content_type),
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
    head.headers.insert(head.headers.end(), headers.begin(), headers.end());
    std::string bytes = response_head(head, is_chunked_ ? -1 : 0, is_chunked_ && keeps_alive_);
    if (!is_chunked_) {  // HTTP/1.0: closing the connection ends the body
      const size_t at = bytes.find("Content-Length");
      bytes.erase(at, bytes.find("\r\n", at) + 2 - at);
    }
    connection_->queue(bytes);
    connection_->is_streaming_ = true;
    if (content_type == kEventStreamType) connection_->schedule_ping();  // other formats have no comments
  }

  bool write(std::string_view bytes) override {
    if (!is_open()) return false;
    if (bytes.empty()) return true;
    // One large event must not count as a slow client: allow it in addition to the limit.
    if (connection_->queued_.size() > connection_->host_.limits.pending_bytes + largest_write_bytes_) {
      log["dropped"] = "the client reads too slowly";
      connection_->abort();
      return false;
    }
    largest_write_bytes_ = std::max(largest_write_bytes_, bytes.size());
    connection_->wrote_since_ping_ = true;
    connection_->queue(is_chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes));
    return is_open();
  }

  void end_stream() override {
    if (!is_open()) return;
    if (is_chunked_) connection_->queue("0\r\n\r\n");
    finish(is_chunked_ && keeps_alive_ && !connection_->host_.draining);
  }

  void on_disconnect(std::function<void()> callback) override {
    if (is_open()) {
      connection_->account_body(0);  // the request has been parsed
      on_disconnect_ = std::move(callback);
      connection_->read();
    } else {
      callback();
    }
  }

  void defer() override {
    if (!is_open()) return;
    is_deferred_ = true;
    connection_->read();
  }

  // An SSE comment, which clients ignore.
  void ping() {
    if (!write(": ping\n\n")) return;
    connection_->wrote_since_ping_ = false;
    connection_->schedule_ping();
  }

  // The client disconnected, or was dropped.
  void disconnect() {
    if (!is_open()) return;
    const auto callback = std::exchange(on_disconnect_, nullptr);
    if (!log.contains("dropped")) log["dropped"] = "the client disconnected";
    if (callback) callback();  // it adds to the log line
    write_log();
    connection_.reset();
  }

  bool is_open() const override { return connection_ != nullptr; }
  bool is_watched() const { return is_deferred_ || on_disconnect_ != nullptr; }

 private:
  void finish(bool keeps_alive) {
    write_log();
    on_disconnect_ = nullptr;
    const std::shared_ptr<Connection> connection = std::exchange(connection_, nullptr);
    connection->finish_exchange(keeps_alive);
  }

  void write_log() {
    log["status"] = status_;
    log["seconds"] = std::chrono::duration<double>(Clock::now() - start_).count();
    connection_->host_.write_log(std::move(log));
  }

  std::shared_ptr<Connection> connection_;  // nullptr: finished
  std::function<void()> on_disconnect_;
  const Clock::time_point start_ = Clock::now();
  bool keeps_alive_, is_head_, is_chunked_;
  bool is_deferred_ = false;
  int status_ = 0;                  // 0: no response was sent
  size_t largest_write_bytes_ = 0;  // the largest single write
};

Connection::Connection(boost::asio::io_context& loop, std::unique_ptr<Transport> transport, std::string client,
                       ConnectionHost& host)
    : transport_(std::move(transport)), timer_(loop), ping_timer_(loop), client_(std::move(client)), host_(host) {}

Connection::~Connection() = default;

void Connection::start() {
  arm(host_.limits.header_time);
  transport_->handshake([self = shared_from_this()](error_code error, size_t) {
    if (error) return self->abort();
    self->parser_.emplace(self->host_.limits.http);
    self->arm(self->host_.limits.idle_time);
    self->read();
  });
}

// While a response is in progress this only watches for a disconnect; pipelined requests are kept, up to a limit. A
// client that half-closes still gets immediate responses; deferred ones are cancelled, because it may have
// disconnected.
void Connection::read() {
  if (reading_ || closed_) return;
  if (input_ended_) {
    if (exchange_ && exchange_->is_watched()) abort();
    return;
  }
  if (exchange_ && input_.size() > kMaxPipelined) {
    if (!exchange_->is_watched()) return;                                  // it is answered immediately
    exchange_->log["dropped"] = "the client pipelines too many requests";  // left unread, it would hide a disconnect
    return abort();
  }
  const bool in_body = !exchange_ && parser_ && parser_->state() == HttpParser::State::body;
  block_.resize(in_body ? kLargeBlock : kSmallBlock);
  if (!in_body) block_.shrink_to_fit();
  reading_ = true;
  transport_->read_some(boost::asio::buffer(block_), [self = shared_from_this()](error_code error, size_t n) {
    self->reading_ = false;
    if (self->closed_) return;
    if (error == boost::asio::error::eof) {
      self->input_ended_ = true;
      if (!self->closing_) return self->exchange_ ? self->read() : self->continue_reading();
      return self->writing_ ? void() : self->abort();  // the last response is still being sent
    }
    if (error) return self->abort();
    self->input_.append(self->block_.data(), n);
    self->consume_input();
  });
}

void Connection::consume_input() {
  if (closing_) input_.clear();  // the rest of a rejected request
  if (exchange_ || closing_) return read();
  if (is_backlogged()) return;  // with earlier responses; continue_reading() resumes once they are sent
  const bool was_in_header = parser_->state() == HttpParser::State::header;
  const size_t n = parser_->push(input_);
  if (n == input_.size()) {
    std::string().swap(input_);
  } else {
    input_.erase(0, n);
  }
  const bool has_another_part = parser_->n_body_bytes() / kBodyDeadlineBytes > n_body_bytes_ / kBodyDeadlineBytes;
  account_body(parser_->n_body_bytes());
  if (exceeds_body_limit()) {
    return reject_request({}, host_.protocol_error(503, "too many large requests at once; retry later"));
  }
  switch (parser_->state()) {
    case HttpParser::State::header:
      if (!std::exchange(has_begun_, true))
        arm(host_.limits.header_time);  // once: trickling bytes do not extend the deadline
      break;
    case HttpParser::State::body:
      if (was_in_header) {
        if (auto response = host_.check_headers(parser_->head()))
          return reject_request(parser_->head(), std::move(*response));
      }
      if (was_in_header || has_another_part) arm(host_.limits.body_time);
      if (parser_->wants_continue() && !std::exchange(sent_continue_, true)) queue("HTTP/1.1 100 Continue\r\n\r\n");
      break;
    case HttpParser::State::done:
      return begin_exchange();
    case HttpParser::State::failed:
      return reject_request({}, host_.protocol_error(parser_->error_status(), parser_->error_message()));
  }
  if (input_ended_) return close_once_written();
  read();
}

void Connection::begin_exchange() {
  if (writing_) {
    arm(host_.limits.write_time);  // the previous response is still being sent
  } else {
    disarm();
  }
  HttpRequest request = parser_->take();
  request.client = client_;
  parser_.reset();
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), request);
  exchange_ = exchange;
  read();
  host_.handle(std::move(request), exchange);
}

void Connection::account_body(size_t n_bytes) {
  if (n_bytes == n_body_bytes_) return;
  host_.n_body_bytes += n_bytes - n_body_bytes_;
  const auto of_client = host_.n_body_bytes_by_client.try_emplace(client_, 0).first;
  of_client->second += n_bytes - n_body_bytes_;
  if (of_client->second == 0) host_.n_body_bytes_by_client.erase(of_client);
  n_body_bytes_ = n_bytes;
}

// Small bodies are always accepted: large bodies of other clients must not block them.
bool Connection::exceeds_body_limit() const {
  const ServerLimits& limits = host_.limits;
  if (n_body_bytes_ <= limits.small_body_bytes) return false;
  const size_t client_limit = limits.all_bodies_bytes / 4 * 3;
  return host_.n_body_bytes > limits.all_bodies_bytes || host_.n_body_bytes_by_client.at(client_) > client_limit;
}

void Connection::reject_request(HttpRequest head, HttpResponse response) {
  head.client = client_;
  head.keeps_alive = false;  // its body is not read
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), head);
  exchange_ = exchange;
  exchange->send(std::move(response));
}

// Proxies and clients time out on a stream without events for a minute, which prefill of a long prompt may take.
void Connection::schedule_ping() {
  ping_timer_.expires_after(host_.limits.ping_time);
  ping_timer_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (error || !self || !self->is_streaming_ || !self->exchange_) return;
    if (std::exchange(self->wrote_since_ping_, false)) return self->schedule_ping();
    self->exchange_->ping();
  });
}

void Connection::finish_exchange(bool keeps_alive) {
  exchange_.reset();
  is_streaming_ = false;
  ping_timer_.cancel();
  account_body(0);
  if (closed_) return;
  if (!keeps_alive) return close_once_written();
  parser_.emplace(host_.limits.http);
  sent_continue_ = has_begun_ = false;
  if (!writing_) arm(host_.limits.idle_time);
  // Posted, not called: thousands of pipelined requests must not deepen the stack.
  boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->continue_reading(); });
}

void Connection::close_once_written() {
  closing_ = true;
  if (!writing_) linger_then_close();
}

void Connection::continue_reading() {
  if (exchange_ || closed_ || closing_ || is_backlogged()) return;
  if (!input_.empty() || input_ended_) return consume_input();
  read();
}

void Connection::queue(std::string_view bytes) {
  if (closed_) return;
  queued_ += bytes;
  if (!writing_) flush();
}

void Connection::flush() {
  if (queued_.empty()) {
    std::string().swap(in_flight_);
    if (closing_) return linger_then_close();
    const bool in_header = has_begun_ && parser_ && parser_->state() == HttpParser::State::header;
    if (!exchange_) arm(in_header ? host_.limits.header_time : host_.limits.idle_time);
    return;
  }
  in_flight_.clear();
  std::swap(in_flight_, queued_);
  writing_ = true;
  arm(host_.limits.write_time + std::chrono::seconds(in_flight_.size() / kMinReadBytesPerSecond));
  transport_->write(boost::asio::buffer(in_flight_), [self = shared_from_this()](error_code error, size_t) {
    self->writing_ = false;
    if (self->closed_) return;
    if (error) return self->abort();
    self->disarm();
    self->flush();
    self->continue_reading();
  });
}

// Closing at once could lose the last bytes written: unread input would turn the close into a reset.
void Connection::linger_then_close() {
  arm(kLingerTime);
  transport_->shut_down_writing([self = shared_from_this()] {
    if (self->closed_) return;
    if (self->input_ended_) return self->abort();
    self->read();  // ended by the client's EOF or by the timer
  });
}

void Connection::close_if_idle() {
  if (!exchange_ && !writing_ && !has_begun_ && input_.empty()) abort();
}

void Connection::abort() {
  if (closed_) return;
  const std::shared_ptr<Connection> self = shared_from_this();  // the exchange may hold the last reference
  closed_ = true;
  account_body(0);
  disarm();
  ping_timer_.cancel();
  transport_->close();
  if (const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr)) exchange->disconnect();
  host_.closed(this);
}

void Connection::arm(std::chrono::seconds time) {
  const uint64_t round = ++timer_round_;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), round](error_code error) {
    if (!error && round == self->timer_round_) self->abort();
  });
}

}  // namespace zinc
