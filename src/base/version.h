// Version and commit of this program, for --version and reports.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

std::string_view program_version();   // "0.1.0"
std::string_view program_commit();    // "0123456789ab"
std::string_view program_compiler();  // "GNU 12.2.0"
std::string version_text();           // "zinc 0.1.0 (0123456789ab)"

}  // namespace zinc
