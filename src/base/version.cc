#include "base/version.h"

#include <fmt/core.h>

namespace zinc {

std::string_view program_version() { return ZINC_VERSION; }
std::string_view program_commit() { return ZINC_COMMIT; }
std::string_view program_compiler() { return ZINC_COMPILER; }
std::string version_text() { return fmt::format("zinc {} ({})", program_version(), program_commit()); }

}  // namespace zinc
