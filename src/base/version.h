// What this program is: version and commit, for --version and reports.
#pragma once

#include <string>

namespace zinc {

std::string version_text();  // "zinc 0.1.0 (0123456789ab)"

}  // namespace zinc
