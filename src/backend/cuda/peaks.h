// Measures the GPU's peak rates in a fraction of a second.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace zinc::cuda {

DevicePeaks measure_device_peaks(Device& device);  // 0 if a measurement fails

}  // namespace zinc::cuda
