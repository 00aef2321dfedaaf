// What a device can do at most, measured in a fraction of a second.
#pragma once

#include "backend/backend.h"
#include "backend/vulkan/device.h"

namespace zinc::vulkan {

DevicePeaks measure_device_peaks(Device& device);  // what cannot be measured is 0

}  // namespace zinc::vulkan
