// What the GPU can do at most, measured in a fraction of a second.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace zinc::cuda {

DevicePeaks measure_device_peaks(Device& device);  // what cannot be measured is 0

}  // namespace zinc::cuda
