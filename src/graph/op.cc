#include "graph/op.h"

#include <array>

namespace zinc {

std::string_view op_name(Op op) {
  static constexpr std::array<std::string_view, kOpCount> kNames = {
#define OP(name) #name,
#include "graph/op_list.h"
#undef OP
  };
  return kNames[static_cast<size_t>(op)];
}

}  // namespace zinc
