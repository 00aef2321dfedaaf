#include "server/page.h"

#include <zlib.h>

#include <array>
#include <string>

namespace zinc {
namespace {

constexpr std::string_view kNoPage =
    "This zinc was built without the web UI; build it with -DZINC_WEB=ON (Node 18 or later). The API is at /v1, its "
    "OpenAPI document at /openapi.json.\n";

// No scripts, styles, images or connections from other origins, no inline scripts, and no HTML from strings except
// through the sanitizer.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify zinc-workers";

const PageFile* find_file(std::string_view path) {
  if (path == "/chat") path = "/";
  for (const PageFile* file = kPageFiles; file->path; ++file) {
    if (path == file->path) return file;
  }
  return nullptr;
}

// Whether the client accepts the encoding. A weight of 0 means no.
bool accepts_encoding(std::string_view accepted, std::string_view encoding) {
  const size_t at = accepted.find(encoding);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = accepted.substr(at + encoding.size());
  const std::string_view weight = rest.substr(0, rest.find(','));
  return weight.find("q=0") == std::string_view::npos || weight.find("q=0.") != std::string_view::npos;
}

std::string gunzip(std::string_view gzip) {
  constexpr int kGzipWindow = 15 + 16;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  std::string out;
  std::array<char, 32 << 10> block;
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    state = inflate(&stream, Z_NO_FLUSH);
    out.append(block.data(), block.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return out;
}

void choose_body(const PageFile& file, std::string_view accepted, HttpResponse& out) {
  if (!file.brotli.empty() && accepts_encoding(accepted, "br")) {
    out.body = file.brotli;
    out.headers.emplace_back("Content-Encoding", "br");
  } else if (!file.gzip.empty() && accepts_encoding(accepted, "gzip")) {
    out.body = file.gzip;
    out.headers.emplace_back("Content-Encoding", "gzip");
  } else {
    out.body = file.gzip.empty() ? std::string(file.plain) : gunzip(file.gzip);
  }
}

}  // namespace

bool is_page_request(const HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD") return false;
  return request.path == "/" || request.path == "/chat" || find_file(request.path);
}

std::optional<HttpResponse> page_response(const HttpRequest& request) {
  if (!is_page_request(request)) return {};
  const PageFile* file = find_file(request.path);
  HttpResponse out{.body = {},
                   .content_type = file ? file->content_type : "text/plain; charset=utf-8",
                   .headers = {{"X-Content-Type-Options", "nosniff"}}};
  if (!file) {
    out.body = kNoPage;
    return out;
  }
  out.headers.insert(out.headers.end(),
                     {{"Content-Security-Policy", std::string(kPolicy)},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Frame-Options", "DENY"},
                      {"X-DNS-Prefetch-Control", "off"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"ETag", file->etag},
                      {"Vary", "Accept-Encoding"},
                      {"Cache-Control", file->is_immutable ? "public, max-age=31536000, immutable" : "no-cache"}});
  if (request.header("if-none-match").find(file->etag) != std::string_view::npos) {
    out.status = 304;
    return out;
  }
  choose_body(*file, request.header("accept-encoding"), out);
  return out;
}

}  // namespace zinc
