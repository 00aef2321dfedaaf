#include "cli/chat/history_file.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"

namespace zinc {

namespace fs = std::filesystem;

std::vector<std::string> HistoryFile::read() const {
  std::vector<std::string> out;
  const Result<MappedFile> mapped = MappedFile::open(path_);
  if (!mapped.ok()) return out;
  std::string_view rest(reinterpret_cast<const char*>(mapped.value().bytes().data()), mapped.value().bytes().size());
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const Result<json::value> line = parse_json(rest.substr(0, end));
    if (line.ok() && line.value().is_string()) out.emplace_back(line.value().get_string());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

Status HistoryFile::add(const std::string& message) const {
  if (message.size() > kMaxMessageBytes) return ok_status();
  std::error_code error;
  if (fs::create_directories(path_.parent_path(), error); error) {
    return fail(ErrorCode::io, "{}: cannot be made: {}", path_.parent_path().string(), error.message());
  }
  ZINC_TRY(lock, FileLock::acquire(path_.string() + ".lock", [] {}));
  std::vector<std::string> messages = read();
  if (!messages.empty() && messages.back() == message) return ok_status();
  messages.push_back(message);
  std::string text;
  for (size_t i = messages.size() - std::min(messages.size(), kMaxMessages); i < messages.size(); ++i) {
    text += to_json(json::value(json::string(replace_invalid_utf8(messages[i])))) + "\n";
  }
  if (Status written = write_file_atomically(path_, text); !written.ok()) return written;
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write, error);
  return ok_status();
}

}  // namespace zinc
