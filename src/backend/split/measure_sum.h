// The time that partial sums of several devices take, measured.
#pragma once

#include <memory>
#include <span>

#include "backend/backend.h"

namespace zinc::split {

// Seconds from the start of a stage that only passes one row of `n_floats` floats through each device until their sum
// is in host memory: what a step costs between two stages, whatever these compute.
Result<double> measure_sum_seconds(std::span<const std::shared_ptr<Backend>> devices, int64_t n_floats);

}  // namespace zinc::split
