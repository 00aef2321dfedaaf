// The memory that models go into here: of the default backend's device where it has its own, else the machine's.
#pragma once

#include "hub/fit.h"

namespace zinc {

MachineMemory model_memory();

}  // namespace zinc
