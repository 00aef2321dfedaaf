// Checks JSON one byte at a time, so that arguments can be passed on while the model still writes them. Strict, but for
// two points: control characters inside strings are let through (models write raw newlines; append_scanned escapes
// them), and UTF-8 and surrogates are not looked at. Nesting is limited as in parse_json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {

class JsonScanner {
 public:
  enum class Step : uint8_t { more, done, error };

  // `done` is said by the byte that ends the outermost value. After `error` or `done`: reset().
  Step push(char c);
  void reset() { *this = JsonScanner(); }

  bool in_string() const { return at_ == At::string || at_ == At::escape || at_ == At::hex; }
  bool expects_key() const { return at_ == At::first_key || at_ == At::key; }
  // Whether the outermost value is a number that is whole and cannot go on with `c`: nothing else needs the next byte
  // to know its end.
  bool number_ends_before(char c) const;

 private:
  enum class At : uint8_t {
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
    minus,  // from here on: numbers
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
  Step go(At at) {
    at_ = at;
    return Step::more;
  }

  At at_ = At::value;
  bool is_key_ = false;
  int n_hex_ = 0;
  std::string_view literal_;  // what of true, false or null is still to come
  std::string open_;          // the opening brackets
};

// A byte the scanner has accepted, as strict JSON: a control character inside a string becomes its escape.
void append_scanned(std::string& out, char c, bool in_string);

// `text` as the inside of a JSON string.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace zinc
