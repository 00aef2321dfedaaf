// Where in a prompt a sequence's state is kept, so that later prompts can go on from there: the places where prompts
// part. Needed where positions cannot be gone back to: recurrent states, sliding windows.
#pragma once

#include <span>
#include <vector>

namespace zinc {

// Ascending offsets in (n_cached, n_prompt): the first boundary (the end of the system prompt), the last few (of
// turns), a few tokens before the end, where the next turn's prompt may differ, and every `interval` tokens.
std::vector<int> choose_checkpoints(int n_prompt, int n_cached, std::span<const int> boundaries, int interval);

}  // namespace zinc
