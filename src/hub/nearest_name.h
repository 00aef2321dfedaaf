// The name a person probably meant.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zinc {

// How many letters must be put in, taken out, exchanged or swapped with their neighbour to make `a` of `b`, whatever
// their case.
size_t edit_distance(std::string_view a, std::string_view b);

// The closest of `names`: few edits away, or one that `typed` begins or is part of. Nothing if none is close.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace zinc
