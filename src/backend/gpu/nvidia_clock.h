// The clock of NVIDIA GPUs, read through NVML, which comes with the driver and is opened at run time.
#pragma once

#include <string_view>

namespace zinc::gpu {

// SM clock of the GPUs of this name in MHz, now; the highest if there are several. 0: unknown.
double nvidia_clock_mhz(std::string_view name);

}  // namespace zinc::gpu
