#include "engine/checkpoints.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr int kTailTokens = 4;    // the tokens that templates put at the start of an assistant message
constexpr size_t kLastTurns = 3;  // older turns are rarely resumed from, and each costs a state

}  // namespace

std::vector<int> choose_checkpoints(int n_prompt, int n_cached, std::span<const int> boundaries, int interval,
                                    int alignment) {
  const auto is_inside = [&](int offset) { return offset > 0 && offset < n_prompt; };
  std::vector<int> turns;
  std::ranges::copy_if(boundaries, std::back_inserter(turns), is_inside);
  std::ranges::sort(turns);
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  if (turns.size() > kLastTurns + 1) turns.erase(turns.begin() + 1, turns.end() - kLastTurns);

  std::vector<int> offsets = std::move(turns);
  if (is_inside(n_prompt - kTailTokens)) offsets.push_back(n_prompt - kTailTokens);
  for (int at = interval; at < n_prompt; at += interval) offsets.push_back(at);
  for (int& offset : offsets) offset -= offset % alignment;
  std::ranges::sort(offsets);
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  std::erase_if(offsets, [&](int offset) { return offset <= n_cached; });
  return offsets;
}

}  // namespace zinc
