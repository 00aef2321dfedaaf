// Files without tokenizer.ggml.pre (or "default"): runs of punctuation, GPT-2's pattern, numbers without their space,
// groups of three digits.
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

// [\p{P}\$\+<=>\^~\|]+
const char* punctuation(const char* at, const char* end) {
  return skip(at, end,
              [](const Char& c) { return c.is(kPunctuation) || (c.is(kSymbol) && c.n_bytes == 1 && c.code != '`'); });
}

const char* numbers(const char* at, const char* end) { return skip_class(at, end, kNumber); }

void split(std::string_view text, WordSink& sink) {
  isolate(text, punctuation, [&sink](std::string_view piece) {
    for_each_match(piece, gpt2_word_end, [&sink](std::string_view word) {
      isolate(word, numbers, [&sink](std::string_view number) {
        isolate(number, three_digits, [&sink](std::string_view part) { sink.word(part); });
      });
    });
  });
}

constexpr PretokenizerName kNames[] = {{"default"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_default = {.names = kNames, .split = split};

}  // namespace zinc
