// One client connection: reads requests one after the other, hands each to the handler together with a Reply, writes
// what comes back. Notices while answering that the client has left. Event-loop thread only; it keeps itself alive
// while anything is under way and ends when the client leaves, misbehaves, is too slow, or the server drains.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
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

// What a connection asks of the server that owns the port. Outlives every connection.
struct ConnectionHost {
  const ServerLimits& limits;
  // Answers through the reply, now or later.
  std::function<void(HttpRequest, std::shared_ptr<Reply>)> handle = {};
  // The answer to something that is no request: a status and why.
  std::function<HttpResponse(int status, std::string_view message)> refuse = {};
  // Looks at a request whose body is still to come; what it answers is all the client gets.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> refuse_head = {};
  std::function<void(json::object line)> write_log = {};
  std::function<void(class Connection*)> closed = {};
  bool draining = false;
  size_t n_body_bytes = 0;                             // of all connections
  std::map<std::string, size_t> n_body_bytes_of = {};  // of each client's, where it is not 0
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::io_context& loop, std::unique_ptr<Transport> transport, std::string client,
             ConnectionHost& host);
  ~Connection();

  void start();
  void close_if_idle();  // for draining: an answer under way is finished first
  void abort();
  bool is_answering() const { return exchange_ != nullptr; }

 private:
  class Exchange;  // the Reply of one request

  void read();
  void take_input();
  void begin_exchange();
  void refuse_input(HttpRequest head, HttpResponse response);
  void hold_body(size_t n_bytes);  // sets what this connection's share of host_.n_body_bytes is
  bool holds_too_much() const;     // where all bodies together do, or all of this client
  void exchange_is_over(bool keeps_alive);
  void close_once_written();
  void keep_awake();  // a stream that has nothing to say
  void go_on();       // with the next request: what has been sent ahead, or is still to come
  bool is_behind() const { return queued_.size() > host_.limits.pending_bytes; }  // the client, with reading
  void queue(std::string_view bytes);
  void flush();
  void linger_and_close();
  void arm(std::chrono::seconds time);
  void disarm() {
    ++timer_round_;
    timer_.cancel();
  }

  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer timer_, ping_timer_;
  uint64_t timer_round_ = 0;  // tells a timer that has been set anew from the one that fired
  std::string client_;
  ConnectionHost& host_;
  std::optional<HttpParser> parser_;
  std::vector<char> block_;  // what the read under way fills
  std::string input_;        // read but not parsed
  std::string queued_, in_flight_;
  std::shared_ptr<Exchange> exchange_;
  size_t n_body_bytes_ = 0;
  bool reading_ = false, writing_ = false, closing_ = false, closed_ = false;
  bool input_ended_ = false;  // the client has closed its side; perhaps it only sends no more, perhaps it has left
  bool streams_ = false, wrote_lately_ = false;  // of the answer: it is a stream; it had an event since the last look
  bool begun_ = false, said_continue_ = false;   // of the request being read: its first byte came; 100 was sent
};

}  // namespace zinc
