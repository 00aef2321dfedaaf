// The kernels of a step (`zinc graph --kernels`) as a table or as JSON: a row per launch, with the bytes, operations
// and roofline time of the nodes that it runs.
#pragma once

#include <string>

#include "backend/step_kernels.h"
#include "base/json.h"

namespace zinc {

std::string kernel_table(const StepKernels& step, std::string_view title);
json::value kernels_to_json(const StepKernels& step, std::string_view title);

}  // namespace zinc
