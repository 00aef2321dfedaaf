// The conversations of all chats: one JSON file each in a folder, readable by its owner only. Each save replaces the
// file atomically, so that a killed process loses at most the message in progress. A chat holds a lock on its
// conversation: several chats never write the same one. One thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "cli/chat/conversation.h"

namespace zinc {

struct StoredConversation {
  std::string model;  // as `zinc chat MODEL`
  json::object settings;
  Conversation conversation;
};

struct ConversationSummary {
  int id = 0;
  std::string title, model;
  size_t n_turns = 0;
  std::filesystem::file_time_type changed = {};
  std::string error = {};  // why the file cannot be read, with its path; empty: it can
};

// A conversation that this process may write.
class OpenConversation {
 public:
  int id() const { return id_; }
  Status save(const StoredConversation& stored);

 private:
  friend class ConversationStore;
  OpenConversation(int id, std::filesystem::path path, FileLock lock)
      : id_(id), path_(std::move(path)), lock_(std::move(lock)) {}
  int id_;
  std::filesystem::path path_;
  FileLock lock_;
};

class ConversationStore {
 public:
  explicit ConversationStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Result<OpenConversation> create() const;
  Result<OpenConversation> open(int id) const;  // an error if another chat has it open
  Result<StoredConversation> read(int id) const;
  Status remove(int id) const;  // an error if a chat has it open

  std::vector<int> ids() const;  // of all files in ascending order, also those that cannot be read
  // The latest first; also those that cannot be read, but none without a question.
  std::vector<ConversationSummary> list() const;
  // `wanted`: a number, a part of a title, or empty for the latest that can be read.
  Result<int> find(const std::string& wanted) const;

 private:
  std::filesystem::path file_of(int id) const;
  Result<FileLock> lock(int id) const;
  std::filesystem::path folder_;
};

Result<std::filesystem::path> conversation_folder();  // of the user, in the state folder

// A table for a terminal of `width` columns; 0: titles are not cut. Files that cannot be read follow with their paths.
std::string conversation_table(const std::vector<ConversationSummary>& conversations, int width);

}  // namespace zinc
