// zinc debug tokenize MODEL: JSON lines of text on stdin, JSON lines of token ids on stdout. For comparing tokenizers.
#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "gguf/gguf_file.h"
#include "text/tokenizer.h"

namespace zinc::command_debug_tokenize {
namespace {

struct Line {
  std::string text;
  EncodeOptions special;
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> read_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]), low = i + 1 < hex.size() ? hex_digit(hex[i + 1]) : -1;
    if (high < 0 || low < 0) return fail(ErrorCode::invalid_input, "'bytes_hex' must be pairs of hexadecimal digits");
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

Result<bool> read_flag(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  if (!value) return false;
  if (const bool* flag = value->if_bool()) return *flag;
  return fail(ErrorCode::invalid_input, "'{}' must be true or false", key);
}

Result<std::string> read_text(const json::object& object) {
  const json::value* const text = object.if_contains("text");
  if (text && text->is_string()) return std::string(text->get_string());
  const json::value* const hex = object.if_contains("bytes_hex");
  if (hex && hex->is_string()) return read_hex(hex->get_string());
  return fail(ErrorCode::invalid_input, "expected a string 'text' or 'bytes_hex'");
}

Result<Line> read_line(std::string_view text) {
  ZINC_TRY(value, parse_json(text));
  const json::object* const object = value.if_object();
  if (!object) return fail(ErrorCode::invalid_input, "expected a JSON object");
  ZINC_TRY(content, read_text(*object));
  ZINC_TRY(add_special, read_flag(*object, "add_special"));
  ZINC_TRY(parse_special, read_flag(*object, "parse_special"));
  return Line{std::move(content), {.add_special = add_special, .parse_special = parse_special}};
}

Status tokenize_lines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
  std::string text;
  std::vector<TokenId> ids;
  for (int number = 1; std::getline(in, text); ++number) {
    const Result<Line> line = read_line(text);
    if (!line.ok()) return fail(ErrorCode::invalid_input, "line {}: {}", number, line.error().message);
    ids.clear();
    tokenizer.encode(line.value().text, line.value().special, ids);
    out << to_json(json::object{{"ids", json::array(ids.begin(), ids.end())}}) << '\n';
  }
  return ok_status();
}

Status run(const std::string& model) {
  ZINC_TRY(path, model_file(model));
  ZINC_TRY(file, GgufFile::open(path));
  ZINC_TRY(tokenizer, Tokenizer::load(file));
  return tokenize_lines(tokenizer, std::cin, std::cout);
}

std::function<Status()> declare(CLI::App& app) {
  const auto model = std::make_shared<std::string>();
  app.add_option("MODEL", *model, std::string(kModelHelp) + "; only its vocabulary is read")->required();
  app.footer(
      "stdin: lines {\"text\": ..., \"add_special\": bool, \"parse_special\": bool}; \"bytes_hex\" may replace "
      "\"text\", and both flags default to false. stdout: a line {\"ids\": [...]} for each.");
  return [model] { return run(*model); };
}

}  // namespace

extern const Command k_command_debug_tokenize = {
    .path = "debug tokenize", .summary = "tokenize JSON lines from stdin", .declare = declare};

}  // namespace zinc::command_debug_tokenize
