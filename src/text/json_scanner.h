// Incremental JSON validator, one byte at a time, so that arguments can be streamed while the model writes them. Strict
// with two exceptions: control characters inside strings are accepted (models write raw newlines; append_scanned
// escapes them), and UTF-8 and surrogates are not checked. Nesting is limited as in parse_json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {

class JsonScanner {
 public:
  enum class Step : uint8_t { more, done, error };

  // Returns `done` for the byte that ends the outermost value. After `error` or `done`: reset().
  Step push(char c);
  void reset() { *this = JsonScanner(); }

  bool in_string() const { return state_ == State::string || state_ == State::escape || state_ == State::hex; }
  bool expects_key() const { return state_ == State::first_key || state_ == State::key; }
  // Whether the outermost value is a complete number that `c` does not continue. Only numbers need the next byte to
  // know their end.
  bool number_ends_before(char c) const;

 private:
  enum class State : uint8_t {
    value,
    first_value,
    first_key,
    key,
    colon,
    after_value,
    string,
    escape,
    hex,
    literal,
    minus,  // this and the following: numbers
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
  };

  Step begin_value(char c);
  Step between(char c);
  Step in_string_step(char c);
  Step number_step(char c);
  Step end_value();
  Step go(State state) {
    state_ = state;
    return Step::more;
  }

  State state_ = State::value;
  bool is_key_ = false;
  int n_hex_ = 0;
  std::string_view literal_;  // the rest of true, false or null
  std::string open_;          // stack of open brackets
};

// Appends a byte accepted by the scanner as strict JSON: escapes control characters inside strings.
void append_scanned(std::string& out, char c, bool in_string);

// Appends `text` escaped for a JSON string, without quotes.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace zinc
