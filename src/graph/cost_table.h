// A GraphCost as a table for people: sums per op and per layer, bytes and FLOPs per token, what the cache takes, and
// the tokens per second the device's speeds allow.
#pragma once

#include <string>

#include "graph/cost.h"

namespace zinc {

std::string cost_table(const Graph& graph, const GraphCost& cost);

// "1.50 GB" (powers of 1000), as bandwidths are given; exact below 1000.
std::string human_amount(double amount, std::string_view unit);

}  // namespace zinc
