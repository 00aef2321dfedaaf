// config.json of a checkpoint, with the fields of `text_config` (multimodal checkpoints) in front of its own. Keeps the
// first error (a missing key, a wrong type) and returns harmless values after it, so that architecture files have no
// error handling; the caller checks status() once. Counts are below 2^31, so that products of two cannot overflow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

class CheckpointConfig {
 public:
  static Result<CheckpointConfig> read(const std::filesystem::path& folder);
  CheckpointConfig(json::object root, std::string name);  // name: for messages

  const std::string& name() const { return name_; }
  std::vector<std::string> architectures() const;  // class names, as "LlamaForCausalLM"

  bool has(std::string_view key) const { return find(key) != nullptr; }  // and is not null
  int64_t count(std::string_view key);                                   // required, 0 .. 2^31-1
  int64_t count_or(std::string_view key, int64_t fallback);
  double real_or(std::string_view key, double fallback);
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string_view fallback);
  std::vector<std::string> texts(std::string_view key);  // empty if absent

  void set_default(std::string_view key, json::value value);  // if the key is absent

  // A field that is an object, as a config of its own; empty if absent.
  CheckpointConfig section(std::string_view key) const;
  // RoPE of full attention: rope_parameters, or rope_theta and rope_scaling of older checkpoints.
  CheckpointConfig rope() const;
  // Of the layers with a sliding window, if they have their own.
  CheckpointConfig sliding_rope() const;

  const json::value* find(std::string_view key) const;  // nullptr: absent or null
  void fail_with(Error error);                          // keeps the first error
  const Status& status() const { return status_; }

 private:
  template <class T>
  T expect(std::string_view key, const std::optional<T>& value, std::string_view expected, T fallback);

  json::object root_, text_;
  std::string name_;
  Status status_ = ok_status();
};

}  // namespace zinc
