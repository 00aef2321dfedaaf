// Positions of a prompt where the sequence's state is checkpointed for the prefix cache: positions where later prompts
// are likely to diverge. Needed for models that cannot resume at any position: recurrent states, sliding windows.
#pragma once

#include <span>
#include <vector>

namespace zinc {

// Ascending offsets in (n_cached, n_prompt): the first boundary (the end of the system prompt), the last few (ends of
// turns), a few tokens before the end, where the next turn's prompt may differ, and every `interval` tokens; each
// rounded down to a multiple of `alignment`.
std::vector<int> choose_checkpoints(int n_prompt, int n_cached, std::span<const int> boundaries, int interval,
                                    int alignment = 1);

}  // namespace zinc
