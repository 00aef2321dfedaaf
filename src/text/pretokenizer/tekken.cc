// Mistral Tekken (Nemo and later): as GPT-4o, without contractions, with single digits.
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

const char* match_end(const char* at, const char* end) {
  const char* const next = cased_word_end(at, end);
  return next == at ? non_word_end<WordPattern{.slash_after = true}>(at, end) : next;
}

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, match_end, [&sink](std::string_view word) { sink.word(word); });
}

constexpr PretokenizerName kNames[] = {{.name = "tekken", .ignore_merges = true, .add_bos = true}};

}  // namespace

extern const Pretokenizer k_pretokenizer_tekken = {.names = kNames, .split = split};

}  // namespace zinc
