// Where the parsers of model output write what they have understood. Collects deltas (neighbours of one kind are
// joined) and keeps the order of a call: start, arguments, then end or fail. At most one call is open.
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
  // Closes the open call. False: its arguments are no JSON object after all, and the call still waits to be failed.
  bool end_call();
  void fail_call();  // does nothing where no call is open
  void warn(WarningCode code, std::string message);

  bool call_is_open() const { return is_open_; }

  // All that was read so far is understood: should a call's markup fail later on, it is not brought back as content.
  void settle() { ++n_settled_; }  // end_call() does so too
  int n_settled() const { return n_settled_; }

  std::vector<Delta> take() { return std::exchange(deltas_, {}); }

 private:
  const ToolSchemas& tools_;
  std::vector<Delta> deltas_;
  std::string arguments_;  // of the open call, to check them at its end
  int n_started_ = 0, n_settled_ = 0;
  bool is_open_ = false;
};

}  // namespace zinc
