// Template lexer with the rules of Python's jinja2 with trim_blocks and lstrip_blocks on: whitespace control with `-`
// and `+`, the newline after a block, `{% raw %}`. Line ends become "\n".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace zinc::jinja {

struct Pos {
  uint32_t line = 1, column = 1;  // counted from 1, columns in characters
};

// "template:LINE:COL: message", the format of all template errors.
Error error_at(Pos pos, std::string_view message);

enum class Tok : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  real,
  add,
  sub,
  div,
  floordiv,
  mul,
  mod,
  pow,
  tilde,
  lbracket,
  rbracket,
  lparen,
  rparen,
  lbrace,
  rbrace,
  eq,
  ne,
  gt,
  gteq,
  lt,
  lteq,
  assign,
  dot,
  colon,
  pipe,
  comma,
  semicolon,
  eof
};

struct Token {
  Tok type = Tok::eof;
  Pos pos;
  std::string text;  // of data, names and (unescaped) string literals
  int64_t integer = 0;
  double real = 0;
};

std::string_view describe(Tok type);  // for messages: "end of print statement", "("

// REQUIRES: source is valid UTF-8. The last token is eof.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace zinc::jinja
