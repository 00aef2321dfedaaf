#include "cli/chat/history_file.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"

namespace zinc {

namespace fs = std::filesystem;

Result<std::vector<std::string>> HistoryFile::read_file() const {
  std::vector<std::string> out;
  std::error_code ignored;
  if (fs::symlink_status(path_, ignored).type() == fs::file_type::not_found) return out;
  ZINC_TRY(mapped, MappedFile::open(path_));
  std::string_view rest(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const Result<json::value> line = parse_json(rest.substr(0, end));
    if (line.ok() && line.value().is_string()) out.emplace_back(line.value().get_string());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

std::vector<std::string> HistoryFile::read() const {
  Result<std::vector<std::string>> messages = read_file();
  return messages.ok() ? std::move(messages.value()) : std::vector<std::string>();
}

Status HistoryFile::add(const std::string& message) const {
  if (message.size() > kMaxMessageBytes) return ok_status();
  std::error_code error;
  if (fs::create_directories(path_.parent_path(), error); error) {
    return fail(ErrorCode::io, "{}: cannot create the folder: {}", path_.parent_path().string(), error.message());
  }
  ZINC_TRY(lock, FileLock::acquire(path_.string() + ".lock", [] {}));
  ZINC_TRY(messages, read_file());
  if (!messages.empty() && messages.back() == message) return ok_status();
  messages.push_back(message);
  std::vector<std::string> lines;  // the newest first
  size_t n_bytes = 0;
  for (auto message_it = messages.rbegin(); message_it != messages.rend() && lines.size() < kMaxMessages;
       ++message_it) {
    lines.push_back(to_json(json::value(json::string(replace_invalid_utf8(*message_it)))) + "\n");
    n_bytes += lines.back().size();
    if (n_bytes > kMaxBytes && lines.size() > 1) {
      lines.pop_back();
      break;
    }
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += *line;
  return write_file_atomically(path_, text, FilePermissions::owner_only);
}

}  // namespace zinc
