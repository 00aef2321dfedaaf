// Qwen 3.5: as Qwen 2, but words include combining marks.
// (?i:'s|...|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, word_end<WordPattern{.word = kLetter | kMark}>,
                 [&sink](std::string_view word) { sink.word(word); });
}

constexpr PretokenizerName kNames[] = {{"qwen35"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_qwen35 = {.names = kNames, .split = split};

}  // namespace zinc
