#include "graph/graph.h"

namespace zinc {

Value Graph::find(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].name == name) return Value{static_cast<int32_t>(i)};
  }
  return {};
}

}  // namespace zinc
