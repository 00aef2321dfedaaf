// Load test results as Markdown tables and as JSON.
#pragma once

#include <span>
#include <string>

#include "server/load/load_run.h"

namespace zinc {

std::string load_markdown(std::span<const LoadResult> runs);
json::array load_json(std::span<const LoadResult> runs);
std::string stall_markdown(std::span<const StallResult> runs);
json::array stall_json(std::span<const StallResult> runs);

}  // namespace zinc
