// Incremental parser of a tool call written as a JSON object, {"name": ..., "arguments": {...}}. Members may come in
// any order; "parameters" means "arguments", "id" is the call's id, other members cause a warning. The call is complete
// when name and arguments are known; arguments are streamed as soon as the name is known. JsonArgumentsReader is for
// formats that name the function outside of the JSON.
#pragma once

#include <string>

#include "text/json_scanner.h"
#include "text/output_parser.h"

namespace zinc {

struct JsonCallRules {
  bool strict = false;      // the object may be plain data: not a call if it has unknown members or no arguments
  bool known_only = false;  // not a call if the function is not in the request's tools
};

class JsonCallReader {
 public:
  using Step = CallReader::Step;

  void begin(JsonCallRules rules);
  Step push(char c, MessageWriter& writer);

  bool is_complete() const { return phase_ == Phase::ended; }  // the call was emitted; the object may continue
  // The call was emitted and no further member has begun: the output may end here.
  bool may_end() const { return is_complete() && (state_ == State::after_value || state_ == State::next_key); }
  bool was_started() const { return phase_ != Phase::unnamed; }

 private:
  enum class State : uint8_t { open, first_key, next_key, in_key, colon, value, in_value, after_value };
  enum class Member : uint8_t { name, arguments, id, type, unknown };
  enum class Phase : uint8_t { unnamed, open, ended };

  Step go(State state) {
    state_ = state;
    return Step::more;
  }
  Step key_byte(char c);
  Step value_byte(char c, MessageWriter& writer);
  Step after_value(char c, MessageWriter& writer);

  bool begin_member();
  bool begin_value(char c, MessageWriter& writer);
  bool end_member(MessageWriter& writer);
  bool end_name(MessageWriter& writer);
  bool end_arguments(MessageWriter& writer);
  bool end_object(MessageWriter& writer);
  bool start_call(MessageWriter& writer);
  bool end_call(MessageWriter& writer);

  JsonCallRules rules_;
  State state_ = State::open;
  JsonScanner scanner_;  // for the key or value being read
  Phase phase_ = Phase::unnamed;
  Member member_ = Member::unknown;
  bool streams_ = false;        // the value being read is arguments, emitted as they arrive
  bool has_arguments_ = false;  // complete, but buffered until the name is known
  std::string key_, value_;     // JSON text of the member being read
  std::string name_, id_;
  std::string buffered_arguments_;
};

// The arguments of a call: one JSON object after optional white space. Its first byte starts the call.
class JsonArgumentsReader {
 public:
  void begin(std::string_view name, std::string_view id = {});
  CallReader::Step push(char c, MessageWriter& writer);  // done: the call is complete

 private:
  std::string name_, id_;
  JsonScanner scanner_;
};

}  // namespace zinc
