// A GraphCost as a human-readable table: sums per op and per layer, bytes and FLOPs per token, cache size, and the
// upper bound of tokens per second.
#pragma once

#include <string>

#include "graph/cost.h"

namespace zinc {

std::string cost_table(const Graph& graph, const GraphCost& cost);

// "1.50 GB" (powers of 1000); exact below 1000.
std::string human_amount(double amount, std::string_view unit);

}  // namespace zinc
