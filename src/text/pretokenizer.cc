#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace zinc {

FoundPretokenizer find_pretokenizer(std::string_view name) {
  for (const Pretokenizer* const* rule = kPretokenizers; *rule; ++rule) {
    for (const PretokenizerName& known : (*rule)->names) {
      if (known.name == name) return {*rule, &known};
    }
  }
  return {nullptr, nullptr};
}

std::string pretokenizer_names() {
  std::vector<std::string_view> names;
  for (const Pretokenizer* const* rule = kPretokenizers; *rule; ++rule) {
    for (const PretokenizerName& known : (*rule)->names) names.push_back(known.name);
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace zinc
