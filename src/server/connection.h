// One client connection: reads requests one after the other, passes each to the handler with a Reply, and writes the
// response. Detects a disconnect during a response. Event-loop thread only. It keeps itself alive while an operation is
// pending, and ends when the client disconnects, violates the protocol, is too slow, or the server drains.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http_parser.h"
#include "server/limits.h"
#include "server/reply.h"
#include "server/transport.h"

namespace zinc {

// The server's callbacks and counters for its connections. Outlives every connection.
struct ConnectionHost {
  const ServerLimits& limits;
  // Responds through the reply, now or later.
  std::function<void(HttpRequest, std::shared_ptr<Reply>)> handle = {};
  // The response to malformed or oversized input.
  std::function<HttpResponse(int status, std::string_view message)> protocol_error = {};
  // Called when the headers have arrived, before the body; a response rejects the request.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_headers = {};
  std::function<void(json::object line)> write_log = {};
  std::function<void(class Connection*)> closed = {};
  std::function<void()> drop_slow_readers = {};  // called while n_unread_bytes exceeds its limit
  bool draining = false;
  size_t n_unread_bytes = 0;                                  // of all connections: written, not yet sent
  size_t n_body_bytes = 0;                                    // of all connections
  std::map<std::string, size_t> n_body_bytes_by_client = {};  // per client, without zeros
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(boost::asio::io_context& loop, std::unique_ptr<Transport> transport, std::string client,
             ConnectionHost& host);
  ~Connection();

  void start();
  void close_if_idle();  // for draining: a response in progress is finished first
  void abort();
  void abort_slow_reader();  // and logs it: the response counts as complete
  bool is_answering() const { return exchange_ != nullptr; }
  size_t n_unread_bytes() const { return n_unread_bytes_; }
  Clock::time_point progress_time() const { return progress_time_; }  // when the client last read something

 private:
  class Exchange;  // the Reply of one request

  void read();
  void consume_input();
  void begin_exchange();
  void reject_request(HttpRequest head, HttpResponse response);
  void account_body(size_t n_bytes);  // sets this connection's part of host_.n_body_bytes
  bool exceeds_body_limit() const;    // of all bodies together, or of this client's
  void finish_exchange(bool keeps_alive);
  void close_once_written();
  void schedule_ping();     // of a stream without events
  void continue_reading();  // with the next request: pipelined, or still to arrive
  bool is_backlogged() const { return queued_.size() > host_.limits.pending_bytes; }  // the client reads too slowly
  void queue(std::string bytes);
  void account_unread();  // sets this connection's part of host_.n_unread_bytes
  void flush();
  void write_part();  // of in_flight_
  void probe();       // whether a client that closed its sending side still waits for the response
  void linger_then_close();
  void arm(Clock::duration time);
  void disarm() {
    ++timer_round_;
    timer_.cancel();
  }

  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer timer_, ping_timer_, probe_timer_;
  uint64_t timer_round_ = 0;  // tells a re-armed timer from the one that fired
  std::string client_;
  ConnectionHost& host_;
  std::optional<HttpParser> parser_;
  std::vector<char> block_;  // the buffer of the pending read
  std::string input_;        // read but not parsed yet
  std::string queued_, in_flight_;
  size_t n_sent_ = 0;  // of in_flight_
  Clock::time_point write_deadline_, progress_time_;
  std::shared_ptr<Exchange> exchange_;
  size_t n_body_bytes_ = 0, n_unread_bytes_ = 0;
  int n_probes_ = 0;  // during this response
  bool reading_ = false, writing_ = false, closing_ = false, closed_ = false;
  bool input_ended_ = false;                              // the client closed its side: it half-closed or disconnected
  bool is_streaming_ = false, wrote_since_ping_ = false;  // of the response
  bool has_begun_ = false, sent_continue_ = false;        // of the request being read: first byte received; 100 sent
};

}  // namespace zinc
