// GPT-4o (o200k), gpt-oss, Llama 4: a word ends where an upper-case letter follows a lower-case one and includes its
// contraction; up to three digits. As in llama.cpp, \p{M} is not part of words (it is in the original).
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

const char* match_end(const char* at, const char* end) {
  const char* const next = cased_word_end(at, end);
  if (next == at) return non_word_end<WordPattern{.max_digits = 3, .slash_after = true}>(at, end);
  const char* const contraction = contraction_end(next, end, true);
  return contraction ? contraction : next;
}

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, match_end, [&sink](std::string_view word) { sink.word(word); });
}

constexpr PretokenizerName kNames[] = {{"gpt-4o"}, {"o200k"}, {"llama4"}, {"kanana2"}, {"talkie"}, {"minimax-m2"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_gpt_4o = {.names = kNames, .split = split};

}  // namespace zinc
