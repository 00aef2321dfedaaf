// The processor of this machine, for reports.
#pragma once

#include <string>

namespace zinc {

std::string processor_name();  // "AMD EPYC 9554P 64-Core Processor"; empty: unknown
double processor_mhz();        // present clock, the mean over all processors; 0: unknown

}  // namespace zinc
