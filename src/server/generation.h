// One API request being answered: a Request per choice in the engine, their news parsed into messages and written in
// the form the client speaks. Ends with the last choice, with the first failure, or when the client leaves; whatever
// still runs then is cancelled. Event-loop thread only; the reply keeps it alive.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "server/access.h"
#include "server/doorbell.h"
#include "server/prepare.h"
#include "server/reply.h"
#include "server/text_queue.h"
#include "text/message_parser.h"

namespace zinc {

class Generation final : public SinkOwner, public std::enable_shared_from_this<Generation> {
 public:
  // `client` is whose turn it takes in the engine, and in `texts`, where long answers are written.
  static void start(const ApiForm& form, PreparedRequest prepared, const Client& client, Doorbell& bell,
                    TextQueue& texts, std::shared_ptr<Reply> reply);

 private:
  // One answer.
  struct Track {
    std::shared_ptr<CollectingSink> sink;
    RequestId id = 0;
    std::optional<MessageParser> parser;  // of a conversation
    Choice choice;
    std::vector<ShownToken> new_tokens;  // not yet written
    bool was_submitted = false, is_over = false, is_cut = false;
  };

  Generation(const ApiForm& form, PreparedRequest prepared, const Client& client, TextQueue& texts,
             std::shared_ptr<Reply> reply);
  void sinks_have_news() override;

  std::optional<ApiError> submit_all(Doorbell& bell);
  void begin();
  void take_news(size_t index, std::string& out);
  void take_deltas(size_t index, std::vector<Delta> deltas, std::string& out);
  void take_delta(size_t index, Delta delta, std::string& out);
  void end_track(size_t index, const Outcome& outcome, std::string& out);
  void finish(std::string& out);
  void send_whole();
  void fail(const ApiError& error, std::string& out);
  void cancel_rest();
  ShownToken shown(const AnswerToken& token) const;
  UsageTotal total_usage() const;
  void write_log(std::string_view finish);

  const ApiForm& form_;
  PreparedRequest prepared_;
  Client client_;
  TextQueue& texts_;
  std::shared_ptr<Reply> reply_;
  std::unique_ptr<StreamWriter> writer_;  // of a stream
  AnswerHead head_;                       // of an answer that is no stream
  int n_prompt_tokens_ = 0;
  std::vector<Track> tracks_;
  bool is_over_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<double> first_token_s_;
};

}  // namespace zinc
