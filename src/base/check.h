// Our own mistakes end the process here, with file, line and a sentence. What the outside world can cause never
// reaches these: it returns a Result (base/result.h).
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
