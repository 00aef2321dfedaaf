// A connected byte stream, plain or TLS, over TCP or a Unix socket, for the event loop. At most one read and one write
// may be pending. Handlers must keep the objects they use alive.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include <filesystem>
#include <functional>
#include <memory>

#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace zinc {

class Transport {
 public:
  using IoHandler = std::function<void(boost::system::error_code, size_t)>;

  virtual ~Transport() = default;
  virtual void handshake(IoHandler handler) = 0;  // must be called first
  virtual void read_some(boost::asio::mutable_buffer buffer, IoHandler handler) = 0;
  virtual void write(boost::asio::const_buffer buffer, IoHandler handler) = 0;  // writes all of it
  virtual void shut_down_writing(std::function<void()> handler) = 0;            // written data is still delivered
  virtual void close() = 0;                                                     // at once; pending handlers fail
};

using StreamSocket = boost::asio::generic::stream_protocol::socket;
std::unique_ptr<Transport> plain_transport(StreamSocket socket);
std::unique_ptr<Transport> tls_transport(StreamSocket socket, boost::asio::ssl::context& context);

// A TLS server context from PEM files with the certificate chain and the key. TLS 1.2 or later.
Result<std::shared_ptr<boost::asio::ssl::context>> load_tls(const std::filesystem::path& certificate,
                                                            const std::filesystem::path& key);

}  // namespace zinc
