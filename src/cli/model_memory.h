// The memory that models are loaded into: the default backend's device memory if it has its own, else the host's.
#pragma once

#include "hub/fit.h"

namespace zinc {

MemoryCapacity model_memory();

}  // namespace zinc
