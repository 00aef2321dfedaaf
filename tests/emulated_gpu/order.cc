#include "tests/emulated_gpu/order.h"

#include <cstdio>
#include <cstdlib>

namespace zinc::emulated {

Order& Order::of_process() {
  const char* text = std::getenv("ZINC_EMULATED_ORDER");
  static Order order(text ? text : "forward");
  return order;
}

Order::Order(const std::string& text) : is_backward_(text == "backward") {
  if (is_backward_ || text == "forward") return;
  unsigned seed = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%u%c", &seed, &rest) != 1) {
    std::fprintf(stderr, "emulated GPU: ZINC_EMULATED_ORDER must be forward, backward or a number, not '%s'\n",
                 text.c_str());
    std::abort();
  }
  shuffle_.emplace(seed);
}

}  // namespace zinc::emulated
