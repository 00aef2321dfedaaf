// Reads an architecture's keys from a GGUF file: "block_count" is "<architecture>.block_count". Keeps the first error
// (a missing key, a wrong type, a value out of range) and returns harmless values after it, so that architecture files
// have no error handling; the caller checks status() once. Integers are 64 bits wide and below 2^31, so that the
// product of any two cannot overflow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/gguf_file.h"

namespace zinc {

class Metadata {
 public:
  Metadata(const GgufFile& file, std::string_view architecture);

  const GgufFile& file() const { return file_; }
  bool has(std::string_view key) const;
  std::string full_key(std::string_view key) const { return architecture_ + "." + std::string(key); }

  int64_t count(std::string_view key);                       // required, 1 .. 2^31-1
  int64_t count_or(std::string_view key, int64_t fallback);  // 0 .. 2^31-1
  float real(std::string_view key);                          // required, finite
  float real_or(std::string_view key, float fallback);       // finite
  std::string text_or(std::string_view key, std::string_view fallback);
  // One value per layer, given as a single value or as a list of at least n_layers.
  std::vector<int64_t> per_layer(std::string_view key, int n_layers);
  std::vector<int64_t> per_layer_or(std::string_view key, int n_layers, int64_t fallback);

  void fail_with(Error error);  // keeps the first error
  const Status& status() const { return status_; }

 private:
  int64_t checked(std::string_view key, int64_t value, int64_t smallest);

  const GgufFile& file_;
  std::string architecture_;
  Status status_ = ok_status();
};

}  // namespace zinc
