// One API request being generated: one engine request per choice; their output is parsed into messages and written in
// the client's API dialect. Ends with the last choice, with the first failure, or when the client disconnects;
// remaining engine requests are cancelled. Event-loop thread only; the reply keeps it alive.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "chat/chat_output.h"
#include "server/access_control.h"
#include "server/event_loop_notifier.h"
#include "server/prepare.h"
#include "server/reply.h"
#include "server/worker_queue.h"

namespace zinc {

class Generation final : public OutputListener, public std::enable_shared_from_this<Generation> {
 public:
  // `client` is used for fair scheduling in the engine and in `worker_queue`, where long responses are serialized.
  static void start(const ApiDialect& dialect, PreparedRequest prepared, const Client& client,
                    EventLoopNotifier& notifier, WorkerQueue& worker_queue, std::shared_ptr<Reply> reply);

 private:
  // One choice of the response.
  struct ChoiceState {
    std::shared_ptr<BufferingSink> sink;
    RequestId id = 0;
    std::optional<ChatOutput> output;  // once submitted
    Choice choice;
    std::vector<LogprobToken> new_tokens;  // not written yet
    bool was_submitted = false, is_done = false;
  };

  Generation(const ApiDialect& dialect, PreparedRequest prepared, const Client& client, EventLoopNotifier& notifier,
             WorkerQueue& worker_queue, std::shared_ptr<Reply> reply);
  void on_output() override;

  // Submits as many choices as the engine runs at once; the others follow as these end. An error if none is running.
  std::optional<ApiError> submit_more();
  Result<RequestId> submit(size_t index);
  void begin();
  void drain_sink(size_t index, std::string& out);
  void apply_deltas(size_t index, std::vector<Delta> deltas, std::string& out);
  void apply_delta(size_t index, Delta delta, std::string& out);
  void finish_choice(size_t index, const Outcome& outcome, std::string& out);
  void finish(std::string& out);
  void send_response();
  void fail(const ApiError& error, std::string& out);
  void cancel_remaining();
  LogprobToken logprob_token(const OutputToken& token) const;
  UsageTotal total_usage() const;
  void write_log(std::string_view finish);

  const ApiDialect& dialect_;
  PreparedRequest prepared_;
  Client client_;
  EventLoopNotifier& notifier_;
  WorkerQueue& worker_queue_;
  std::shared_ptr<Reply> reply_;
  std::unique_ptr<StreamWriter> writer_;  // of a streamed response
  ResponseMetadata metadata_;             // of a response that is not streamed
  std::string response_id_;               // without the prefix of the dialect
  int n_prompt_tokens_ = 0;
  std::vector<ChoiceState> choices_;
  size_t n_submitted_ = 0;  // of the choices, in order
  bool is_done_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<double> first_token_s_;
};

}  // namespace zinc
