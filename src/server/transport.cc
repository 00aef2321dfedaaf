#include "server/transport.h"

#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

namespace zinc {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

void close_socket(StreamSocket& socket) {
  error_code ignored;
  socket.shutdown(asio::socket_base::shutdown_both, ignored);
  socket.close(ignored);
}

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(StreamSocket socket) : socket_(std::move(socket)) {}

  void handshake(IoHandler handler) override {
    asio::post(socket_.get_executor(), [handler = std::move(handler)] { handler({}, 0); });
  }
  void read_some(asio::mutable_buffer buffer, IoHandler handler) override {
    socket_.async_read_some(buffer, std::move(handler));
  }
  void write(asio::const_buffer buffer, IoHandler handler) override {
    asio::async_write(socket_, buffer, std::move(handler));
  }
  void shut_down_writing(std::function<void()> handler) override {
    error_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    asio::post(socket_.get_executor(), std::move(handler));
  }
  void close() override { close_socket(socket_); }

 private:
  StreamSocket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(StreamSocket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  void handshake(IoHandler handler) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [handler = std::move(handler)](error_code error) { handler(error, 0); });
  }
  void read_some(asio::mutable_buffer buffer, IoHandler handler) override {
    stream_.async_read_some(buffer, std::move(handler));
  }
  void write(asio::const_buffer buffer, IoHandler handler) override {
    asio::async_write(stream_, buffer, std::move(handler));
  }
  void shut_down_writing(std::function<void()> handler) override {
    stream_.async_shutdown([handler = std::move(handler)](error_code) { handler(); });
  }
  void close() override { close_socket(stream_.next_layer()); }

 private:
  asio::ssl::stream<StreamSocket> stream_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(StreamSocket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

std::unique_ptr<Transport> tls_transport(StreamSocket socket, asio::ssl::context& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

Result<std::shared_ptr<asio::ssl::context>> load_tls(const std::filesystem::path& certificate,
                                                     const std::filesystem::path& key) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  error_code error;
  context->use_certificate_chain_file(certificate.string(), error);
  if (error) {
    return fail(ErrorCode::invalid_input, "{}: cannot read a PEM certificate chain: {}", certificate.string(),
                error.message());
  }
  context->use_private_key_file(key.string(), asio::ssl::context::pem, error);
  if (error) {
    return fail(ErrorCode::invalid_input, "{}: cannot read a PEM private key that matches {}: {}", key.string(),
                certificate.string(), error.message());
  }
  return context;
}

}  // namespace zinc
