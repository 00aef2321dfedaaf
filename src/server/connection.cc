#include "server/connection.h"

#include <boost/asio/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "server/otlp_exporter.h"
#include "server/random_id.h"

namespace zinc {

using boost::system::error_code;

namespace {

constexpr size_t kSmallBlock = 2 << 10;   // most requests; an idle connection keeps no more
constexpr size_t kLargeBlock = 64 << 10;  // while a body is received
constexpr size_t kMaxPipelined = 16 << 10;
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kMinReadBytesPerSecond = 64 << 10;  // of a client that receives a long response
constexpr size_t kBodyDeadlineBytes = 1 << 20;       // each such part of a body has its own deadline
constexpr size_t kWritePart = 256 << 10;             // each such part of a response has its own deadline
// The first probe makes the system of a client that is gone answer with a reset, the second fails because of it.
constexpr std::chrono::milliseconds kProbeTimes[] = {std::chrono::milliseconds(50), std::chrono::seconds(1)};

std::string log_time() {
  return fmt::format("{:.3f}",
                     std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
}

// The client's own id if it sends a reasonable one.
std::string request_id_of(const HttpRequest& request) {
  constexpr size_t kMaxBytes = 128;
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=";
  for (const std::string_view name : {"x-request-id", "request-id"}) {
    const std::string_view id = request.header(name);
    if (!id.empty() && id.size() <= kMaxBytes && id.find_first_not_of(kCharacters) == id.npos) return std::string(id);
  }
  return "req_" + random_id();
}

}  // namespace

// A handler may hold it longer than the connection lives.
class Connection::Exchange final : public Reply {
 public:
  Exchange(std::shared_ptr<Connection> connection, const HttpRequest& request)
      : connection_(std::move(connection)),
        keeps_alive_(request.keeps_alive),
        is_head_(request.method == "HEAD"),
        is_chunked_(!request.is_http_1_0) {
    const std::string id = request_id_of(request);
    headers = {{"x-request-id", id}, {"request-id", id}};  // OpenAI's and Anthropic's name
    log["time"] = log_time();
    log["request_id"] = id;
    log["client"] = request.client;
    log["method"] = request.method;
    log["path"] = request.path;
    if (const std::string_view trace = request.header("traceparent"); is_traceparent(trace)) log["traceparent"] = trace;
  }

  void send(HttpResponse response) override {
    if (!is_open()) return;
    status_ = response.status;
    if (!response.error.empty()) log["error"] = response.error;
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    const bool keeps_alive = keeps_alive_ && !connection_->host_.draining;
    const std::string head = response_head(response, static_cast<long long>(response.body.size()), keeps_alive);
    std::string bytes = is_head_ ? std::string() : std::move(response.body);
    bytes.insert(0, head);
    connection_->queue(std::move(bytes));
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
    connection_->queue(std::move(bytes));
    connection_->is_streaming_ = true;
    is_event_stream_ = content_type == kEventStreamType;
    if (is_event_stream_) connection_->schedule_ping();  // other formats have no comments
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

  // Something that every client ignores: an SSE comment, else an interim response. False: HTTP/1.0 and streams of lines
  // have none.
  bool send_probe() {
    if (connection_->is_streaming_) return is_event_stream_ && write(": ping\n\n");
    if (!is_chunked_) return false;
    connection_->queue("HTTP/1.1 102 Processing\r\n\r\n");
    return true;
  }

  // The client disconnected, or was dropped.
  void disconnect() {
    if (!is_open()) return;
    const auto callback = std::exchange(on_disconnect_, nullptr);
    if (!log.contains("dropped")) log["dropped"] = "the client disconnected";
    if (callback) callback();  // it adds to the log line
    write_log();
    lease.reset();
    connection_.reset();
  }

  bool is_open() const override { return connection_ != nullptr; }
  bool is_watched() const { return is_deferred_ || on_disconnect_ != nullptr; }

 private:
  void finish(bool keeps_alive) {
    write_log();
    lease.reset();
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
  bool is_deferred_ = false, is_event_stream_ = false;
  int status_ = 0;                  // 0: no response was sent
  size_t largest_write_bytes_ = 0;  // the largest single write
};

Connection::Connection(boost::asio::io_context& loop, std::unique_ptr<Transport> transport, std::string client,
                       ConnectionHost& host)
    : transport_(std::move(transport)),
      timer_(loop),
      ping_timer_(loop),
      probe_timer_(loop),
      client_(std::move(client)),
      host_(host) {}

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

// While a response is in progress this only watches for a disconnect; pipelined requests are kept, up to a limit.
void Connection::read() {
  if (reading_ || closed_) return;
  if (input_ended_) {
    if (exchange_ && exchange_->is_watched() && n_probes_ == 0) probe();
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

// After the client's FIN: a client that only half-closed reads on, one that is gone resets the connection when it is
// sent something.
void Connection::probe() {
  const auto n = static_cast<size_t>(n_probes_++);
  if (!exchange_->send_probe()) return abort();
  probe_timer_.expires_after(n < std::size(kProbeTimes) ? Clock::duration(kProbeTimes[n]) : host_.limits.ping_time);
  probe_timer_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (!error && self && self->n_probes_ > 0) self->probe();
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
  probe_timer_.cancel();
  n_probes_ = 0;
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

void Connection::queue(std::string bytes) {
  if (closed_) return;
  if (n_unread_bytes_ == 0) progress_time_ = Clock::now();
  if (queued_.empty()) {
    queued_ = std::move(bytes);
  } else {
    queued_ += bytes;
  }
  account_unread();
  if (!writing_) flush();
  // Posted, not called: it may abort this connection.
  if (host_.n_unread_bytes > host_.limits.all_unread_bytes)
    boost::asio::post(timer_.get_executor(), [&host = host_] { host.drop_slow_readers(); });
}

void Connection::account_unread() {
  const size_t n_bytes = closed_ ? 0 : queued_.size() + in_flight_.size();
  host_.n_unread_bytes += n_bytes - n_unread_bytes_;
  n_unread_bytes_ = n_bytes;
}

void Connection::flush() {
  in_flight_.clear();
  if (queued_.empty()) {
    std::string().swap(in_flight_);
    account_unread();
    if (closing_) return linger_then_close();
    const bool in_header = has_begun_ && parser_ && parser_->state() == HttpParser::State::header;
    if (!exchange_) arm(in_header ? host_.limits.header_time : host_.limits.idle_time);
    return;
  }
  std::swap(in_flight_, queued_);
  account_unread();
  writing_ = true;
  n_sent_ = 0;
  write_deadline_ =
      Clock::now() + host_.limits.write_time + std::chrono::seconds(in_flight_.size() / kMinReadBytesPerSecond);
  write_part();
}

// A client that stops reading is dropped after write_time, however long the response is.
void Connection::write_part() {
  arm(std::min<Clock::duration>(host_.limits.write_time, write_deadline_ - Clock::now()));
  const auto part = boost::asio::buffer(in_flight_.data() + n_sent_, std::min(kWritePart, in_flight_.size() - n_sent_));
  transport_->write(part, [self = shared_from_this()](error_code error, size_t n) {
    self->n_sent_ += n;
    self->writing_ = !error && self->n_sent_ < self->in_flight_.size();
    if (self->closed_) return;
    if (error) return self->abort();
    self->progress_time_ = Clock::now();
    if (self->writing_) return self->write_part();
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

void Connection::abort_slow_reader() {
  if (!exchange_) {
    host_.write_log({{"time", log_time()}, {"client", client_}, {"dropped", "the client does not read its response"}});
  } else if (!exchange_->log.contains("dropped")) {
    exchange_->log["dropped"] = "the client reads too slowly";
  }
  abort();
}

void Connection::abort() {
  if (closed_) return;
  const std::shared_ptr<Connection> self = shared_from_this();  // the exchange may hold the last reference
  closed_ = true;
  n_probes_ = 0;
  account_body(0);
  account_unread();
  disarm();
  ping_timer_.cancel();
  probe_timer_.cancel();
  transport_->close();
  if (const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr)) exchange->disconnect();
  host_.closed(this);
}

void Connection::arm(Clock::duration time) {
  const uint64_t round = ++timer_round_;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), round](error_code error) {
    if (!error && round == self->timer_round_) self->abort();
  });
}

}  // namespace zinc
