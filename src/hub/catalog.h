// The models zinc knows by name, as data (catalog_models.cc): files of public repositories. Values that were not
// verified are empty or zero; the server supplies them when the model is pulled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc {

enum class CatalogStatus : uint8_t {
  supported,     // our tests run this file
  experimental,  // our tests run its architecture, not this file
};

struct CatalogFile {
  std::string_view name;
  uint64_t n_bytes;         // 0: not verified
  std::string_view sha256;  // empty: not verified
};

struct CatalogModel {
  std::string_view id;            // the name to type
  std::string_view name;          // display name
  std::string_view architecture;  // general.architecture of its file
  std::string_view parameters;    // "8B", "30B-A3B"
  std::string_view quantization;
  std::string_view license;
  std::string_view source;  // hub/source.h; with the exact file
  CatalogFile file;
  bool thinks;  // supports thinking
  CatalogStatus status;
  std::string_view released = {};  // "2025-04"; empty: not verified
};

inline constexpr int kCatalogContext = 4096;  // context length that memory needs are computed for
inline constexpr std::string_view kDefaultModelId = "smollm2-135m-instruct";

bool equal_ignoring_case(std::string_view typed, std::string_view lower);  // `lower` has no capitals
std::span<const CatalogModel> catalog_models();                            // small ones first within a family
const CatalogModel* find_catalog_model(std::string_view id);               // case-insensitive; nullptr: unknown
std::string_view catalog_alias(std::string_view name);  // the id that Ollama's name means; empty: none
std::vector<std::string_view> catalog_alias_names();    // Ollama's names
std::string_view status_name(CatalogStatus status);

}  // namespace zinc
