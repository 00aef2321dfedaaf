#include "server/connection.h"

#include <boost/asio/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace zinc {

using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kSmallBlock = 2 << 10;   // most requests, and all a waiting connection keeps
constexpr size_t kLargeBlock = 64 << 10;  // while a body comes in
constexpr size_t kMaxPipelined = 16 << 10;
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kSlowestRead = 64 << 10;  // bytes per second of a client that takes a long answer
constexpr size_t kBodyPart = 1 << 20;      // of a body, which has the time of a short one

}  // namespace

// Outlives the connection's interest in it: whoever answers may hold it longer than the client stays.
class Connection::Exchange final : public Reply {
 public:
  Exchange(std::shared_ptr<Connection> connection, const HttpRequest& request)
      : connection_(std::move(connection)),
        keeps_alive_(request.keeps_alive),
        is_head_(request.method == "HEAD"),
        chunks_(!request.is_http_1_0) {
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

  void start_stream() override {
    if (!is_open()) return;
    status_ = 200;
    connection_->hold_body(0);  // the request has been read
    HttpResponse head{.body = {},
                      .content_type = "text/event-stream; charset=utf-8",
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
    head.headers.insert(head.headers.end(), headers.begin(), headers.end());
    std::string bytes = response_head(head, chunks_ ? -1 : 0, chunks_ && keeps_alive_);
    if (!chunks_) {  // HTTP/1.0: the end of the connection is the end of the body
      const size_t at = bytes.find("Content-Length");
      bytes.erase(at, bytes.find("\r\n", at) + 2 - at);
    }
    connection_->queue(bytes);
    connection_->streams_ = true;
    connection_->keep_awake();
  }

  bool write(std::string_view bytes) override {
    if (!is_open()) return false;
    if (bytes.empty()) return true;
    // Beside what was written before it: one large event is nobody's fault.
    if (connection_->queued_.size() > connection_->host_.limits.pending_bytes + n_largest_) {
      log["dropped"] = "the client reads too slowly";
      connection_->abort();
      return false;
    }
    n_largest_ = std::max(n_largest_, bytes.size());
    connection_->wrote_lately_ = true;
    connection_->queue(chunks_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes));
    return is_open();
  }

  void end_stream() override {
    if (!is_open()) return;
    if (chunks_) connection_->queue("0\r\n\r\n");
    finish(chunks_ && keeps_alive_ && !connection_->host_.draining);
  }

  void on_gone(std::function<void()> callback) override {
    if (is_open()) {
      connection_->hold_body(0);  // the request has been read
      gone_ = std::move(callback);
      connection_->read();
    } else {
      callback();
    }
  }

  void takes_time() override {
    if (!is_open()) return;
    takes_time_ = true;
    connection_->read();
  }

  // A comment, which readers of events pass over.
  void ping() {
    if (!write(": ping\n\n")) return;
    connection_->wrote_lately_ = false;
    connection_->keep_awake();
  }

  // The client has left, or was thrown out.
  void leave() {
    if (!is_open()) return;
    const auto gone = std::exchange(gone_, nullptr);
    if (!log.contains("dropped")) log["dropped"] = "the client left";
    if (gone) gone();  // it has something to say in the log
    write_log();
    connection_.reset();
  }

  bool is_open() const override { return connection_ != nullptr; }
  bool is_watched() const { return takes_time_ || gone_ != nullptr; }

 private:
  void finish(bool keeps_alive) {
    write_log();
    gone_ = nullptr;
    const std::shared_ptr<Connection> connection = std::exchange(connection_, nullptr);
    connection->exchange_is_over(keeps_alive);
  }

  void write_log() {
    log["status"] = status_;
    log["seconds"] = std::chrono::duration<double>(Clock::now() - start_).count();
    connection_->host_.write_log(std::move(log));
  }

  std::shared_ptr<Connection> connection_;  // nullptr: over
  std::function<void()> gone_;
  const Clock::time_point start_ = Clock::now();
  bool keeps_alive_, is_head_, chunks_;
  bool takes_time_ = false;
  int status_ = 0;        // 0: nothing was sent
  size_t n_largest_ = 0;  // bytes of the largest write
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

// While an answer is under way this only watches for the client's leaving; what it sends ahead is kept, up to a limit.
// One that closes its side still gets what is answered at once; what takes time is given up, for it may have left.
void Connection::read() {
  if (reading_ || closed_) return;
  if (input_ended_) {
    if (exchange_ && exchange_->is_watched()) abort();
    return;
  }
  if (exchange_ && input_.size() > kMaxPipelined) {
    if (!exchange_->is_watched()) return;                           // it is answered at once
    exchange_->log["dropped"] = "the client sends too much ahead";  // unread, that would hide its leaving
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
      if (!self->closing_) return self->exchange_ ? self->read() : self->go_on();
      return self->writing_ ? void() : self->abort();  // the last answer still goes out
    }
    if (error) return self->abort();
    self->input_.append(self->block_.data(), n);
    self->take_input();
  });
}

void Connection::take_input() {
  if (closing_) input_.clear();  // the rest of what was refused
  if (exchange_ || closing_) return read();
  if (is_behind()) return;  // with earlier answers; go_on() comes back once they have gone out
  const bool was_in_header = parser_->state() == HttpParser::State::header;
  const size_t n = parser_->push(input_);
  if (n == input_.size()) {
    std::string().swap(input_);
  } else {
    input_.erase(0, n);
  }
  const bool has_another_part = parser_->n_body_bytes() / kBodyPart > n_body_bytes_ / kBodyPart;
  hold_body(parser_->n_body_bytes());
  if (holds_too_much()) {
    return refuse_input({}, host_.refuse(503, "too many large requests at once"));
  }
  switch (parser_->state()) {
    case HttpParser::State::header:
      if (!std::exchange(begun_, true)) arm(host_.limits.header_time);  // once: a byte now and then gains no time
      break;
    case HttpParser::State::body:
      if (was_in_header) {
        if (auto refused = host_.refuse_head(parser_->head()))
          return refuse_input(parser_->head(), std::move(*refused));
      }
      if (was_in_header || has_another_part) arm(host_.limits.body_time);
      if (parser_->wants_continue() && !std::exchange(said_continue_, true)) queue("HTTP/1.1 100 Continue\r\n\r\n");
      break;
    case HttpParser::State::done:
      return begin_exchange();
    case HttpParser::State::failed:
      return refuse_input({}, host_.refuse(parser_->error_status(), parser_->error_message()));
  }
  if (input_ended_) return close_once_written();
  read();
}

void Connection::begin_exchange() {
  if (writing_) {
    arm(host_.limits.write_time);  // the answer before this one is still on its way
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

void Connection::hold_body(size_t n_bytes) {
  if (n_bytes == n_body_bytes_) return;
  host_.n_body_bytes += n_bytes - n_body_bytes_;
  const auto of_client = host_.n_body_bytes_of.try_emplace(client_, 0).first;
  of_client->second += n_bytes - n_body_bytes_;
  if (of_client->second == 0) host_.n_body_bytes_of.erase(of_client);
  n_body_bytes_ = n_bytes;
}

// Small bodies are let through: nobody's large ones keep others from asking.
bool Connection::holds_too_much() const {
  const ServerLimits& limits = host_.limits;
  if (n_body_bytes_ <= limits.small_body_bytes) return false;
  const size_t client_limit = limits.all_bodies_bytes / 4 * 3;
  return host_.n_body_bytes > limits.all_bodies_bytes || host_.n_body_bytes_of.at(client_) > client_limit;
}

void Connection::refuse_input(HttpRequest head, HttpResponse response) {
  head.client = client_;
  head.keeps_alive = false;  // the rest of it is not read
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), head);
  exchange_ = exchange;
  exchange->send(std::move(response));
}

// Proxies and clients give up on a stream that says nothing for a minute, which reading a long prompt may take.
void Connection::keep_awake() {
  ping_timer_.expires_after(host_.limits.ping_time);
  ping_timer_.async_wait([weak = weak_from_this()](error_code error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (error || !self || !self->streams_ || !self->exchange_) return;
    if (std::exchange(self->wrote_lately_, false)) return self->keep_awake();
    self->exchange_->ping();
  });
}

void Connection::exchange_is_over(bool keeps_alive) {
  exchange_.reset();
  streams_ = false;
  ping_timer_.cancel();
  hold_body(0);
  if (closed_) return;
  if (!keeps_alive) return close_once_written();
  parser_.emplace(host_.limits.http);
  said_continue_ = begun_ = false;
  if (!writing_) arm(host_.limits.idle_time);
  // Not from here: a client that has sent thousands of requests ahead must not deepen the stack with each.
  boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->go_on(); });
}

void Connection::close_once_written() {
  closing_ = true;
  if (!writing_) linger_and_close();
}

void Connection::go_on() {
  if (exchange_ || closed_ || closing_ || is_behind()) return;
  if (!input_.empty() || input_ended_) return take_input();
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
    if (closing_) return linger_and_close();
    const bool in_header = begun_ && parser_ && parser_->state() == HttpParser::State::header;
    if (!exchange_) arm(in_header ? host_.limits.header_time : host_.limits.idle_time);
    return;
  }
  in_flight_.clear();
  std::swap(in_flight_, queued_);
  writing_ = true;
  arm(host_.limits.write_time + std::chrono::seconds(in_flight_.size() / kSlowestRead));
  transport_->write(boost::asio::buffer(in_flight_), [self = shared_from_this()](error_code error, size_t) {
    self->writing_ = false;
    if (self->closed_) return;
    if (error) return self->abort();
    self->disarm();
    self->flush();
    self->go_on();
  });
}

// Closing at once could lose what was just written: an unread byte of the client's turns it into a reset.
void Connection::linger_and_close() {
  arm(kLingerTime);
  transport_->shut_down_writing([self = shared_from_this()] {
    if (self->closed_) return;
    if (self->input_ended_) return self->abort();
    self->read();  // the end of the client's side ends it, or the timer
  });
}

void Connection::close_if_idle() {
  if (!exchange_ && !writing_ && !begun_ && input_.empty()) abort();
}

void Connection::abort() {
  if (closed_) return;
  const std::shared_ptr<Connection> self = shared_from_this();  // the exchange may be the last that holds it
  closed_ = true;
  hold_body(0);
  disarm();
  ping_timer_.cancel();
  transport_->close();
  if (const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr)) exchange->leave();
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
