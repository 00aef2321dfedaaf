// Reads one call written as a JSON object, {"name": ..., "arguments": {...}}, byte by byte. Members may come in any
// order; "parameters" means "arguments", "id" is the call's id, other members are warned about. The call is settled
// when name and arguments are known; the arguments are passed on as they come once the name is. JsonArgumentsReader is
// for formats that name the function outside of the JSON.
#pragma once

#include <string>

#include "text/json_scanner.h"
#include "text/output_parser.h"

namespace zinc {

struct JsonCallRules {
  bool strict = false;        // the object may be data as well: an unknown member or missing arguments make it no call
  bool offered_only = false;  // and so does the name of a function that was not offered
};

class JsonCallReader {
 public:
  using Step = CallReader::Step;

  void begin(JsonCallRules rules);
  Step push(char c, MessageWriter& writer);

  bool is_settled() const { return phase_ == Phase::ended; }  // the call was written; the object may still go on
  // The call was written, and nothing of another member has come: the output may end here without a loss.
  bool may_end() const { return is_settled() && (at_ == At::after_value || at_ == At::next_key); }
  bool was_announced() const { return phase_ != Phase::unnamed; }

 private:
  enum class At : uint8_t { open, first_key, next_key, in_key, colon, value, in_value, after_value };
  enum class Member : uint8_t { name, arguments, id, type, unknown };
  enum class Phase : uint8_t { unnamed, open, ended };

  Step go(At at) {
    at_ = at;
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
  bool announce(MessageWriter& writer);
  bool end_call(MessageWriter& writer);

  JsonCallRules rules_;
  At at_ = At::open;
  JsonScanner scanner_;  // of the key or value being read
  Phase phase_ = Phase::unnamed;
  Member member_ = Member::unknown;
  bool streams_ = false;        // the value being read is arguments that are passed on at once
  bool has_arguments_ = false;  // whole, though perhaps still held for want of a name
  std::string key_, value_;     // JSON text of the member being read
  std::string name_, id_;
  std::string held_arguments_;
};

// The arguments of a call alone: one JSON object after optional white space. The call is started by its first byte.
class JsonArgumentsReader {
 public:
  void begin(std::string_view name, std::string_view id = {});
  CallReader::Step push(char c, MessageWriter& writer);  // done: the call was ended

 private:
  std::string name_, id_;
  JsonScanner scanner_;
};

}  // namespace zinc
