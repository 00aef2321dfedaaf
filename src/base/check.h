// Assertions for programming errors: abort with file, line and condition. Errors caused by files, users, network or
// devices return a Result (base/result.h) instead.
#pragma once

#include <fmt/core.h>

namespace zinc {

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace zinc

#define ZINC_CHECK(condition)                                               \
  do {                                                                      \
    if (!(condition)) ::zinc::check_failed(__FILE__, __LINE__, #condition); \
  } while (0)

#ifdef NDEBUG
#define ZINC_DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define ZINC_DCHECK(condition) ZINC_CHECK(condition)
#endif
