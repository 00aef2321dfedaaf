// A Markdown table for a terminal: columns padded, without the bars. Other lines are unchanged.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

// A column is aligned to the right if the line below the table's head says so ("--:"). All tables of the text have the
// columns of the first one.
std::string align_columns(std::string_view markdown);

}  // namespace zinc
