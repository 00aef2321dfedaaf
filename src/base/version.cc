#include "base/version.h"

#include <fmt/core.h>

namespace zinc {

std::string version_text() { return fmt::format("zinc {} ({})", ZINC_VERSION, ZINC_COMMIT); }

}  // namespace zinc
