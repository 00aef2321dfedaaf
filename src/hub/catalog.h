// The models zinc knows by name, as data (catalog_models.cc): real files of real repositories. What was not verified is
// left empty or zero, and asked of the server when the model is pulled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zinc {

enum class CatalogStatus : uint8_t {
  supported,     // this very file is run by our tests
  experimental,  // its architecture is; the file itself is not
};

struct CatalogFile {
  std::string_view name;
  uint64_t n_bytes;         // 0: not verified
  std::string_view sha256;  // empty: not verified
};

struct CatalogModel {
  std::string_view id;            // what people type
  std::string_view name;          // what people read
  std::string_view architecture;  // general.architecture of its file
  std::string_view parameters;    // "8B", "30B-A3B"
  std::string_view quantization;
  std::string_view license;
  std::string_view source;  // hub/source.h; names the file exactly
  CatalogFile file;
  bool thinks;  // can write its reasoning before the answer
  CatalogStatus status;
  std::string_view released = {};  // "2025-04"; empty: not verified
};

inline constexpr int kCatalogContext = 4096;  // positions that memory needs are stated for
inline constexpr std::string_view kDefaultModelId = "smollm2-135m-instruct";

std::span<const CatalogModel> catalog_models();               // small ones first within a family
const CatalogModel* find_catalog_model(std::string_view id);  // in any case; nullptr: unknown
std::string_view status_name(CatalogStatus status);

}  // namespace zinc
