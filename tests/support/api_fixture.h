// The API for tests, without sockets: requests in, responses out, with a scripted engine.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "server/api.h"
#include "tests/support/scripted_engine.h"

namespace zinc {

// An event loop that the test runs explicitly.
class TestLoop {
 public:
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }
  // Runs tasks until `done`; false after one minute.
  bool run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done()) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_until(lock, deadline, [this] { return !tasks_.empty(); })) return false;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
};

class TestReply final : public Reply {
 public:
  void send(HttpResponse sent) override {
    EXPECT_FALSE(is_over) << "two responses";
    response = std::move(sent);
    end_stream();
  }
  void start_stream(std::string_view content_type) override {
    streams = true;
    response.content_type = content_type;
  }
  bool write(std::string_view bytes) override {
    EXPECT_FALSE(is_over) << "written after the end";
    stream += bytes;
    return true;
  }
  void end_stream() override {
    is_over = true;
    lease.reset();
    disconnected_callback = nullptr;  // breaks the reference cycle with the handler
  }
  void on_disconnect(std::function<void()> callback) override {
    if (is_over) return callback();
    disconnected_callback = std::move(callback);
  }
  bool is_open() const override { return !is_over && !is_disconnected; }
  void disconnect() {
    is_disconnected = true;
    lease.reset();
    if (disconnected_callback) std::exchange(disconnected_callback, nullptr)();
  }

  HttpResponse response;
  std::string stream;
  bool streams = false, is_over = false, is_disconnected = false;
  std::function<void()> disconnected_callback;
};

struct SseEvent {
  std::string name, data;
};

inline std::vector<SseEvent> events_of(std::string_view stream) {
  std::vector<SseEvent> out;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "unterminated event: " << stream;
    if (end == std::string_view::npos) break;
    std::string_view text = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    SseEvent event;
    if (text.starts_with("event: ")) {
      event.name = text.substr(7, text.find('\n') - 7);
      text.remove_prefix(text.find('\n') + 1);
    }
    EXPECT_TRUE(text.starts_with("data: ")) << text;
    event.data = text.substr(6);
    out.push_back(std::move(event));
  }
  return out;
}

class ApiTest : public testing::Test {
 protected:
  ApiTest() { make_api({}); }

  // The event loop of the test; work runs at once.
  EventLoopPort loop_port() {
    return {.post = [this](std::function<void()> task) { loop_.post(std::move(task)); },
            .work = [](const std::function<void()>& task) { task(); },
            .is_draining = [this] { return is_draining_; },
            .n_connections = [] { return size_t{1}; }};
  }
  void make_api(const ApiOptions& options) { make_api(options, loop_port()); }
  void make_api(const ApiOptions& options, EventLoopPort port) {
    api_ = std::make_unique<Api>(scripted_.models(), options, std::move(port));
  }

  // A new API that counts the tasks of its worker thread.
  void count_work(int& n_worked) {
    EventLoopPort port = loop_port();
    port.work = [&n_worked](const std::function<void()>& task) { ++n_worked, task(); };
    make_api({}, std::move(port));
  }

  std::shared_ptr<TestReply> start(std::string method, std::string path, std::string body,
                                   std::vector<HttpHeader> headers = {}) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.body = std::move(body);
    request.headers = std::move(headers);
    auto reply = std::make_shared<TestReply>();
    api_->handle(std::move(request), reply);
    return reply;
  }

  std::shared_ptr<TestReply> ask(std::string path, std::string body, std::vector<HttpHeader> headers = {}) {
    auto reply = start("POST", std::move(path), std::move(body), std::move(headers));
    EXPECT_TRUE(loop_.run_until([&] { return reply->is_over; })) << "no answer";
    return reply;
  }

  json::object ask_json(std::string path, const json::value& body, int status = 200) {
    const auto reply = ask(std::move(path), to_json(body));
    EXPECT_EQ(reply->response.status, status) << reply->response.body;
    Result<json::value> parsed = parse_json(reply->response.body);
    EXPECT_TRUE(parsed.ok()) << reply->response.body;
    return parsed.ok() && parsed.value().is_object() ? parsed.value().get_object() : json::object();
  }

  // Expects an error response with this status and field; returns its message.
  std::string expect_error(std::string path, const json::value& body, std::string_view param, int status = 400) {
    const json::object answer = ask_json(std::move(path), body, status);
    const json::value* error = answer.if_contains("error");
    EXPECT_TRUE(error) << to_json(answer);
    if (!error) return "";
    if (const json::value* field = error->get_object().if_contains("param")) {
      EXPECT_EQ(field->is_string() ? std::string_view(field->get_string()) : "", param) << to_json(answer);
    }
    return text_of(error->at("message").get_string());
  }

  static json::object chat(std::string_view text) {
    return {{"messages", json::array{json::object{{"role", "user"}, {"content", text}}}}};
  }
  static json::object with(json::object body, std::string_view name, json::value value) {
    body[name] = std::move(value);
    return body;
  }

  TestLoop loop_;
  bool is_draining_ = false;
  std::unique_ptr<Api> api_;
  ScriptedModel scripted_{ZINC_SOURCE_DIR};  // last: its thread notifies the API until it has ended
};

inline const json::value kTools = parse_json(R"([{"type": "function", "function": {"name": "weather", "parameters":
  {"type": "object", "properties": {"city": {"type": "string"}}}}}])")
                                      .value();
inline constexpr std::string_view kCallText =
    "SAY[[<think>hm</think>Let me see.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"K\\u00f6ln\"}}\n</tool_call>]]";

inline std::string joined(const std::vector<SseEvent>& events,
                          const std::function<std::string(const json::object&)>& piece) {
  std::string out;
  for (const SseEvent& event : events) {
    if (event.data != "[DONE]") out += piece(parse_json(event.data).value().get_object());
  }
  return out;
}

inline std::string delta_field(const json::object& chunk, std::string_view name) {
  const json::array& choices = chunk.at("choices").get_array();
  if (choices.empty()) return "";
  const json::value* found = choices[0].at("delta").get_object().if_contains(name);
  return found && found->is_string() ? text_of(found->get_string()) : "";
}

}  // namespace zinc
