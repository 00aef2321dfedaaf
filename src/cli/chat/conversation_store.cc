#include "cli/chat/conversation_store.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "cli/display_width.h"
#include "cli/hub_settings.h"
#include "cli/sanitize_line.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxId = 1'000'000'000;

// 12 of "12.json"; 0: another file.
int conversation_id(std::string_view word) {
  int id = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  return error == std::errc() && end == word.data() + word.size() && id > 0 && id < kMaxId ? id : 0;
}

bool contains_text(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// At most `width` columns, with "..." instead of the rest.
std::string cut_to_width(const std::string& text, int width) {
  constexpr int kDots = 3;
  if (width <= 0 || display_width(text) <= width) return text;
  std::string out;
  std::string_view rest = text;
  for (int n_columns = 0; !rest.empty();) {
    const Utf8Char c = next_utf8(rest);
    n_columns += display_width(c.code);
    if (n_columns > width - kDots) break;
    out += rest.substr(0, static_cast<size_t>(c.n_bytes));
    rest.remove_prefix(static_cast<size_t>(c.n_bytes));
  }
  return out + "...";
}

std::string local_time(fs::file_time_type time) {
  const auto since = fs::file_time_type::clock::to_sys(time);
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(since));
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M}", local);
}

Error is_open_error(int id) {
  return fail(ErrorCode::unavailable, "conversation {} is open in another chat; close it there first", id);
}

}  // namespace

Status OpenConversation::save(const StoredConversation& stored) {
  json::object file{{"model", stored.model}, {"settings", stored.settings}};
  for (const auto& [name, value] : stored.conversation.to_json()) file[name] = value;
  return write_file_atomically(path_, to_pretty_json(file) + "\n", FilePermissions::owner_only);
}

fs::path ConversationStore::file_of(int id) const { return folder_ / fmt::format("{}.json", id); }

Result<FileLock> ConversationStore::lock(int id) const {
  Result<FileLock> lock = FileLock::acquire(
      folder_ / fmt::format("{}.lock", id), [] {}, /*is_cancelled=*/[] { return true; });
  if (!lock.ok() && lock.error().code == ErrorCode::cancelled) return is_open_error(id);
  return lock;
}

std::vector<int> ConversationStore::ids() const {
  std::vector<int> out;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".json") continue;
    if (const int id = conversation_id(path.stem().string()); id > 0) out.push_back(id);
  }
  std::ranges::sort(out);
  return out;
}

Result<OpenConversation> ConversationStore::create() const {
  std::error_code error;
  if (fs::create_directories(folder_, error); error) {
    return fail(ErrorCode::io, "{}: cannot create the folder: {}", folder_.string(), error.message());
  }
  fs::permissions(folder_, fs::perms::owner_all, error);  // on a file system without permissions there is nothing to do
  const std::vector<int> used = ids();
  for (int id = used.empty() ? 1 : *std::ranges::max_element(used) + 1;; ++id) {
    Result<FileLock> locked = lock(id);
    if (!locked.ok() && locked.error().code == ErrorCode::unavailable) continue;  // another chat begins
    if (!locked.ok()) return locked.error();
    if (fs::exists(file_of(id), error)) continue;  // another chat began and ended
    return OpenConversation(id, file_of(id), std::move(locked.value()));
  }
}

Result<OpenConversation> ConversationStore::open(int id) const {
  const auto exists = [file = file_of(id)] {
    std::error_code error;
    return fs::exists(file, error);
  };
  const Error missing = fail(ErrorCode::not_found, "there is no conversation {}; `zinc chat --list` shows all", id);
  if (!exists()) return missing;
  ZINC_TRY(locked, lock(id));
  if (!exists()) return missing;  // another process has deleted it meanwhile
  return OpenConversation(id, file_of(id), std::move(locked));
}

Result<StoredConversation> ConversationStore::read(int id) const {
  ZINC_TRY(mapped, MappedFile::open(file_of(id)));
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  const auto in_file = [&](const Error& error) {
    return fail(error.code, "{}: {}", file_of(id).string(), error.message);
  };
  const Result<json::value> file = parse_json(text);
  if (!file.ok()) return in_file(file.error());
  Result<Conversation> conversation = Conversation::read(file.value());
  if (!conversation.ok()) return in_file(conversation.error());
  StoredConversation out{.model = {}, .settings = {}, .conversation = std::move(conversation.value())};
  const json::object& fields = file.value().get_object();
  if (const json::value* model = fields.if_contains("model"); model && model->is_string())
    out.model = model->get_string();
  if (const json::value* settings = fields.if_contains("settings"); settings && settings->is_object())
    out.settings = settings->get_object();
  return out;
}

Status ConversationStore::remove(int id) const {
  ZINC_TRY(opened, open(id));
  std::error_code error;
  if (fs::remove(file_of(id), error); error) {
    return fail(ErrorCode::io, "{}: cannot delete: {}", file_of(id).string(), error.message());
  }
  fs::remove(folder_ / fmt::format("{}.lock", id), error);  // allowed to its holder
  remove_partial_files(folder_, ".json");                   // of chats that were killed while they saved
  return ok_status();
}

std::vector<ConversationSummary> ConversationStore::list() const {
  std::vector<ConversationSummary> out;
  for (const int id : ids()) {
    const Result<StoredConversation> stored = read(id);
    std::error_code error;
    const fs::file_time_type changed = fs::last_write_time(file_of(id), error);
    if (error) continue;  // another process has deleted it
    if (!stored.ok()) {
      out.push_back({.id = id, .title = {}, .model = {}, .changed = changed, .error = stored.error().message});
      continue;
    }
    const Conversation& conversation = stored.value().conversation;
    if (conversation.is_empty()) continue;  // /undo removed the only question
    out.push_back({.id = id,
                   .title = conversation.title(),
                   .model = stored.value().model,
                   .n_turns = conversation.turns.size(),
                   .changed = changed});
  }
  std::ranges::sort(out, [](const ConversationSummary& a, const ConversationSummary& b) {
    return std::pair(a.changed, a.id) > std::pair(b.changed, b.id);
  });
  return out;
}

Result<int> ConversationStore::find(const std::string& wanted) const {
  if (const int id = conversation_id(wanted); id > 0) return id;
  for (const ConversationSummary& conversation : list()) {
    if (conversation.error.empty() && contains_text(conversation.title, wanted)) return conversation.id;
  }
  if (wanted.empty()) return fail(ErrorCode::not_found, "there is no conversation to continue; `zinc chat` begins one");
  return fail(ErrorCode::not_found, "no conversation has '{}' in its title; `zinc chat --list` shows all", wanted);
}

Result<fs::path> conversation_folder() {
  ZINC_TRY(folder, state_folder());
  return folder / "conversations";
}

std::string conversation_table(const std::vector<ConversationSummary>& conversations, int width) {
  if (conversations.empty()) return "no conversations\n";
  constexpr int kMaxModel = 30;
  int n_model = 5;
  for (const ConversationSummary& c : conversations)
    n_model = std::max(n_model, std::min(display_width(sanitize_line(c.model)), kMaxModel));
  std::string text =
      fmt::format("{:>4}  {:<16}  {:>5}  {:<{}}  {}\n", "ID", "CHANGED", "TURNS", "MODEL", n_model, "TITLE");
  const int n_title = width > 0 ? std::max(width - 33 - n_model, 10) : 0;
  std::string unreadable;
  for (const ConversationSummary& c : conversations) {
    const bool is_readable = c.error.empty();
    text += fmt::format("{:>4}  {:<16}  {:>5}  {:<{}}  {}\n", c.id, local_time(c.changed),
                        is_readable ? std::to_string(c.n_turns) : "-",
                        is_readable ? cut_to_width(sanitize_line(c.model), kMaxModel) : "-", n_model,
                        is_readable ? cut_to_width(sanitize_line(c.title), n_title) : "(unreadable)");
    if (is_readable) continue;
    unreadable +=
        fmt::format("conversation {} cannot be read: {}; correct the file, or delete it with `zinc chat --delete {}`\n",
                    c.id, sanitize_line(c.error), c.id);
  }
  return text + unreadable;
}

}  // namespace zinc
