// Input history of all chats: one JSON string per line, newest last, readable by its owner only. Each addition rewrites
// the file atomically, so that a crash loses at most the new line; a lock serializes several chats.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace zinc {

class HistoryFile {
 public:
  explicit HistoryFile(std::filesystem::path path) : path_(std::move(path)) {}
  std::vector<std::string> read() const;         // unreadable lines are skipped
  Status add(const std::string& message) const;  // fails without a change if the existing file cannot be read

  static constexpr size_t kMaxMessages = 1000;
  static constexpr size_t kMaxBytes = 1 << 20;          // in total; the oldest are dropped first
  static constexpr size_t kMaxMessageBytes = 64 << 10;  // longer messages are not stored

 private:
  Result<std::vector<std::string>> read_file() const;
  std::filesystem::path path_;
};

}  // namespace zinc
