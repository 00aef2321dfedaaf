// What a load came to, for people (Markdown tables) and for programs (JSON).
#pragma once

#include <span>
#include <string>

#include "server/load/load_run.h"

namespace zinc {

std::string load_markdown(std::span<const LoadFigures> runs);
json::array load_json(std::span<const LoadFigures> runs);
std::string gap_markdown(std::span<const GapFigures> runs);
json::array gap_json(std::span<const GapFigures> runs);

}  // namespace zinc
