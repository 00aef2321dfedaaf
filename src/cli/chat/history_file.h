// The messages a person typed, over all chats: one JSON string per line, the newest last, readable by its owner only.
// Each addition is a whole new file, so that a crash never loses more than the line under way; several chats take
// turns.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace zinc {

class HistoryFile {
 public:
  explicit HistoryFile(std::filesystem::path path) : path_(std::move(path)) {}
  std::vector<std::string> read() const;         // what cannot be read is passed over
  Status add(const std::string& message) const;  // fails, and changes nothing, where what is there cannot be read

  static constexpr size_t kMaxMessages = 1000;
  static constexpr size_t kMaxBytes = 1 << 20;          // of all; the oldest go first
  static constexpr size_t kMaxMessageBytes = 64 << 10;  // a longer one is not kept

 private:
  Result<std::vector<std::string>> read_file() const;
  std::filesystem::path path_;
};

}  // namespace zinc
