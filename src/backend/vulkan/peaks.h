// Peak memory bandwidth of a device, measured in a fraction of a second.
#pragma once

#include "backend/backend.h"
#include "backend/vulkan/device.h"

namespace zinc::vulkan {

DevicePeaks measure_device_peaks(Device& device);  // 0: not measured

}  // namespace zinc::vulkan
