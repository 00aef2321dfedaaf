#include "cli/chat/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/chat/chat_commands.h"
#include "cli/chat/chat_settings.h"
#include "cli/display_width.h"
#include "cli/sanitize_line.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

std::string common_start(const std::string& a, const std::string& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  while (n > 0 && n < a.size() && (static_cast<unsigned char>(a[n]) & 0xC0) == 0x80) --n;  // whole characters
  return a.substr(0, n);
}

std::vector<std::string> setting_words(std::string_view rest) {
  std::vector<std::string> words;
  const size_t blank = rest.find(' ');
  if (blank == std::string_view::npos) {
    for (const ChatSetting& setting : chat_settings()) words.emplace_back(setting.name);
    words.emplace_back("temperature");
  } else if (rest.substr(0, blank) == "think") {
    words = {"default", "on", "off", "low", "medium", "high"};
  } else {
    words = {"default"};
  }
  return words;
}

// The files whose path begins with `typed`; folders end with a slash. Hidden files only if they are asked for.
std::vector<std::string> file_words(const std::string& typed) {
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  const std::string name = typed.substr(folder.size());
  const char* const home = std::getenv("HOME");
  const std::string searched = folder.starts_with("~/") && home ? home + folder.substr(1) : folder;
  std::vector<std::string> words;
  std::error_code error;
  for (fs::directory_iterator entry(searched.empty() ? "." : searched, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (!file.starts_with(name) || (file.starts_with('.') && name.empty())) continue;
    std::error_code unreadable;
    words.push_back(folder + file + (entry->is_directory(unreadable) ? "/" : ""));
  }
  return words;
}

std::vector<std::string> model_words(const std::string& typed, ChatArgument kind,
                                     const std::function<std::vector<std::string>(ModelNames)>& model_names) {
  if (typed.starts_with('/') || typed.starts_with('.') || typed.starts_with('~')) return file_words(typed);
  return model_names(kind == ChatArgument::installed_model ? ModelNames::installed : ModelNames::all);
}

void keep_matches(const std::string& typed, Completion& completion) {
  std::vector<std::string>& words = completion.words;
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(typed); });
  std::ranges::sort(words);
  if (words.empty()) return;
  std::string common = words.front();
  for (const std::string& word : words) common = common_start(common, word);
  completion.insertion = common.substr(typed.size());
  if (words.size() == 1 && !words.front().ends_with('/')) completion.insertion += ' ';
}

}  // namespace

Completion complete_chat_line(std::string_view line,
                              const std::function<std::vector<std::string>(ModelNames)>& model_names) {
  Completion out;
  if (!line.starts_with('/')) return out;
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos) {
    out.words = chat_command_words();
    keep_matches(std::string(line), out);
    if (!out.words.empty()) return out;
    out.words = chat_command_aliases();
    keep_matches(std::string(line), out);
    return out;
  }
  const ChatCommand* const command = find_chat_command(line.substr(0, blank));
  if (!command) return out;
  const size_t argument = std::min(line.find_first_not_of(' ', blank), line.size());
  const std::string rest(line.substr(argument));
  const size_t inner = command->argument == ChatArgument::setting ? rest.rfind(' ') + 1 : 0;
  out.begin = argument + inner;
  switch (command->argument) {
    case ChatArgument::installed_model:
    case ChatArgument::any_model:
      out.words = model_words(rest, command->argument, model_names);
      break;
    case ChatArgument::file:
      out.words = file_words(rest);
      break;
    case ChatArgument::setting:
      out.words = setting_words(rest);
      break;
    case ChatArgument::none:
    case ChatArgument::text:
      break;
  }
  keep_matches(rest.substr(inner), out);
  return out;
}

std::string candidate_table(const Completion& completion, int width) {
  constexpr size_t kMaxShown = 100;
  constexpr int kGap = 2;
  std::vector<std::string> shown;
  int n_columns = 0;
  for (const std::string& word : completion.words) {
    if (shown.size() == kMaxShown) break;
    const size_t slash = word.empty() ? std::string::npos : word.rfind('/', word.size() - 2);
    const bool is_path = slash != std::string::npos && slash > 0;  // not a command
    shown.push_back(sanitize_line(is_path ? word.substr(slash + 1) : word));
    n_columns = std::max(n_columns, display_width(shown.back()) + kGap);
  }
  const size_t n_per_line = static_cast<size_t>(std::max(width / std::max(n_columns, 1), 1));
  std::string text;
  for (size_t i = 0; i < shown.size(); ++i) {
    const bool is_last = (i + 1) % n_per_line == 0 || i + 1 == shown.size();
    const int n_fill = is_last ? 0 : n_columns - display_width(shown[i]);
    text += shown[i] + std::string(static_cast<size_t>(n_fill), ' ') + (is_last ? "\n" : "");
  }
  const size_t n_more = completion.words.size() - shown.size();
  return n_more > 0 ? text + fmt::format("... and {} more\n", n_more) : text;
}

}  // namespace zinc
