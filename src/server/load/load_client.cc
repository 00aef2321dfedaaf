#include "server/load/load_client.h"

#include <curl/curl.h>

#include "base/certificates.h"
#include "base/check.h"
#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr size_t kMaxQuotedBytes = 300;
constexpr long kConnectMs = 20'000;

const json::value* at(const json::value* value, std::string_view key) {
  const json::object* object = value ? value->if_object() : nullptr;
  return object ? object->if_contains(key) : nullptr;
}

std::string_view text_at(const json::value* value, std::string_view key) {
  const json::value* found = at(value, key);
  return found && found->is_string() ? std::string_view(found->get_string()) : std::string_view();
}

int count_at(const json::value* value, std::string_view key) {
  const json::value* found = at(value, key);
  return found && found->is_int64() ? static_cast<int>(found->get_int64()) : 0;
}

// Records the text, usage and errors of a server-sent event.
void parse_event(std::string_view event, double now_s, LoadRequest& out) {
  const Result<json::value> parsed = parse_json(event);
  if (!parsed.ok()) return;  // [DONE]
  const json::value& value = parsed.value();
  if (const json::value* error = at(&value, "error")) {
    out.error = sanitize_for_terminal(to_json(*error), kMaxQuotedBytes);
    return;
  }
  if (const json::value* usage = at(&value, "usage"); usage && usage->is_object()) {
    out.n_prompt = count_at(usage, "prompt_tokens");
    out.n_completion = count_at(usage, "completion_tokens");
    out.n_cached = count_at(at(usage, "prompt_tokens_details"), "cached_tokens");
  }
  const json::value* choices = at(&value, "choices");
  const json::array* list = choices ? choices->if_array() : nullptr;
  if (!list || list->empty()) return;
  const json::value* delta = at(&list->front(), "delta");
  const size_t n_before = out.text.size();
  out.text += text_at(delta, "reasoning_content");
  out.text += text_at(delta, "content");
  if (out.text.size() > n_before) out.chunk_s.push_back(now_s);
}

}  // namespace

struct LoadClient::Transfer {
  LoadClient* client = nullptr;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  std::string sent;      // the request body; curl does not copy it
  std::string received;  // of the response, not parsed yet
  LoadRequest record;

  ~Transfer() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(easy);
  }

  bool is_rejected() const {
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    return status != 200;
  }

  void receive(std::string_view bytes) {
    constexpr std::string_view kData = "data:";
    received += bytes;
    if (is_rejected()) return;
    size_t begin = 0;
    for (size_t end; (end = received.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string_view line = std::string_view(received).substr(begin, end - begin);
      if (line.starts_with(kData)) parse_event(line.substr(kData.size()), client->now_s(), record);
    }
    received.erase(0, begin);
  }

  static size_t on_bytes(char* bytes, size_t size, size_t n, void* transfer) {
    static_cast<Transfer*>(transfer)->receive({bytes, size * n});
    return size * n;
  }
};

LoadClient::LoadClient(std::string url, std::string key) : url_(std::move(url)), key_(std::move(key)) {
  static const CURLcode is_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  ZINC_CHECK(is_ready == CURLE_OK);
  while (url_.ends_with('/')) url_.pop_back();
  if (!url_.ends_with("/v1")) url_ += "/v1";
  multi_ = curl_multi_init();
  ZINC_CHECK(multi_ != nullptr);
}

LoadClient::~LoadClient() {
  for (const std::unique_ptr<Transfer>& transfer : transfers_) {
    if (!transfer->record.is_done) curl_multi_remove_handle(multi_, transfer->easy);
  }
  transfers_.clear();
  curl_multi_cleanup(multi_);
}

double LoadClient::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

const LoadRequest& LoadClient::send(size_t number, const json::object& body) {
  transfers_.push_back(std::make_unique<Transfer>());
  Transfer& transfer = *transfers_.back();
  transfer.client = this;
  transfer.sent = to_json(body);
  transfer.easy = curl_easy_init();
  ZINC_CHECK(transfer.easy != nullptr);
  transfer.headers = curl_slist_append(transfer.headers, "Content-Type: application/json");
  if (!key_.empty()) transfer.headers = curl_slist_append(transfer.headers, ("Authorization: Bearer " + key_).c_str());
  const std::string url = url_ + "/chat/completions";
  curl_easy_setopt(transfer.easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(transfer.easy, CURLOPT_HTTPHEADER, transfer.headers);
  curl_easy_setopt(transfer.easy, CURLOPT_POSTFIELDS, transfer.sent.data());
  curl_easy_setopt(transfer.easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(transfer.sent.size()));
  curl_easy_setopt(transfer.easy, CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
  curl_easy_setopt(transfer.easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(transfer.easy, CURLOPT_PRIVATE, &transfer);
  curl_easy_setopt(transfer.easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
  curl_easy_setopt(transfer.easy, CURLOPT_NOSIGNAL, 1L);
  if (const std::string bundle = certificate_bundle(); !bundle.empty()) {
    curl_easy_setopt(transfer.easy, CURLOPT_CAINFO, bundle.c_str());
  }
  transfer.record.number = number;
  transfer.record.sent_s = now_s();
  ZINC_CHECK(curl_multi_add_handle(multi_, transfer.easy) == CURLM_OK);
  ++n_running_;
  return transfer.record;
}

void LoadClient::wait(std::chrono::milliseconds at_most) {
  int n_active = 0;
  curl_multi_perform(multi_, &n_active);
  int n_left = 0;
  bool has_ended = false;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &n_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    char* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    finish(*reinterpret_cast<Transfer*>(transfer), message->data.result);
    has_ended = true;
  }
  if (!has_ended) curl_multi_poll(multi_, nullptr, 0, static_cast<int>(at_most.count()), nullptr);
}

void LoadClient::finish(Transfer& transfer, int curl_code) {
  LoadRequest& record = transfer.record;
  record.end_s = now_s();
  record.is_done = true;
  --n_running_;
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  if (curl_code != CURLE_OK) {
    record.error = fmt::format("{}: {}", url_, curl_easy_strerror(static_cast<CURLcode>(curl_code)));
  } else if (status != 200) {
    record.error = fmt::format("HTTP {}: {}", status, sanitize_for_terminal(transfer.received, kMaxQuotedBytes));
  } else if (record.chunk_s.empty() && record.error.empty()) {
    record.error = "the response has no text";
  }
  if (record.n_completion == 0) record.n_completion = static_cast<int>(record.chunk_s.size());
  curl_multi_remove_handle(multi_, transfer.easy);
}

}  // namespace zinc
