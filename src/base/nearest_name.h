// Suggests a name for a misspelled one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zinc {

// Damerau-Levenshtein distance (insert, delete, replace, swap neighbors), case-insensitive.
size_t edit_distance(std::string_view a, std::string_view b);

// The closest of `names`: one edit for each three characters away, or one that contains `typed`. nullopt if none is
// close, or if `typed` has fewer than three characters.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace zinc
