// Tab completion of a chat line: commands, and their models, files and settings.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace zinc {

struct Completion {
  size_t begin = 0;                // of the completed word in the line
  std::vector<std::string> words;  // candidates for line[begin, end), sorted
  std::string insertion;           // what all of them have in common beyond the typed text; a blank after a single one
};

enum class ModelNames : uint8_t { installed, all };

// `line`: up to the cursor.
Completion complete_chat_line(std::string_view line,
                              const std::function<std::vector<std::string>(ModelNames)>& model_names);

// The candidates in columns, for a terminal of `width` columns; a long list is cut.
std::string candidate_table(const Completion& completion, int width);

}  // namespace zinc
