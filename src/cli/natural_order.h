// Order of names with numbers in them: blk.2 comes before blk.10.
#pragma once

#include <string_view>

namespace zinc {

bool natural_less(std::string_view a, std::string_view b);

}  // namespace zinc
