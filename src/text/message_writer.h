// Output of the model-output parsers. Collects deltas (adjacent deltas of one kind are merged) and enforces the order
// of a call: start, arguments, then end or fail. At most one call is open.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/message.h"
#include "text/tool_schema.h"

namespace zinc {

class MessageWriter {
 public:
  explicit MessageWriter(const ToolSchemas& tools) : tools_(tools) {}

  const ToolSchemas& tools() const { return tools_; }

  void content(std::string_view text);
  void reasoning(std::string_view text);

  void start_call(std::string_view name, std::string_view id = {});  // REQUIRES: !call_is_open()
  void arguments(std::string_view text);                             // REQUIRES: call_is_open()
  void call_id(std::string_view id);                                 // REQUIRES: a call was started
  // Ends the open call. False: its arguments are not a JSON object; call fail_call().
  bool end_call();
  void fail_call();  // no-op if no call is open
  void warn(WarningCode code, std::string message);

  bool call_is_open() const { return is_open_; }

  // Commits the text parsed so far: if the call's markup fails later, committed text is not emitted as content.
  void commit() { ++n_commits_; }  // also called by end_call()
  int n_commits() const { return n_commits_; }

  std::vector<Delta> take() { return std::exchange(deltas_, {}); }

 private:
  const ToolSchemas& tools_;
  std::vector<Delta> deltas_;
  std::string arguments_;  // of the open call, validated by end_call()
  int n_started_ = 0, n_commits_ = 0;
  bool is_open_ = false;
};

}  // namespace zinc
