// Tokenizer test vectors: one JSON object per line with `text` (or `bytes_hex`), `add_special`, `parse_special`,
// `ids`.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace zinc {

struct TokenVector {
  std::string text;
  EncodeOptions options;
  std::vector<TokenId> ids;
};

inline std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

inline std::vector<TokenVector> read_token_vectors(const std::string& path) {
  std::ifstream file(path);
  ZINC_CHECK(file.good());
  std::vector<TokenVector> vectors;
  for (std::string line; std::getline(file, line);) {
    const json::value value = parse_json(line).value();
    const json::object& object = value.as_object();
    TokenVector vector;
    const json::value* const text = object.if_contains("text");
    const bool has_text = text && text->is_string();
    vector.text = has_text ? std::string(text->get_string()) : bytes_of_hex(object.at("bytes_hex").as_string());
    vector.options = {object.at("add_special").as_bool(), object.at("parse_special").as_bool()};
    for (const json::value& id : object.at("ids").as_array()) vector.ids.push_back(static_cast<TokenId>(id.as_int64()));
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

}  // namespace zinc
