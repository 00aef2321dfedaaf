#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace zinc {

void check_failed(const char* file, int line, const char* condition) {
  fmt::print(stderr, "{}:{}: internal error: {} does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace zinc
