// Llama 3: case-insensitive contractions, words with one leading character of any kind, up to three digits.
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, word_end<WordPattern{.max_digits = 3}>, [&sink](std::string_view word) { sink.word(word); });
}

constexpr bool kIgnoreMerges = true;
constexpr bool kAddBos = true;
constexpr PretokenizerName kNames[] = {{"llama-bpe", kIgnoreMerges, kAddBos},
                                       {"llama3", kIgnoreMerges, kAddBos},
                                       {"llama-v3", kIgnoreMerges, kAddBos},
                                       {"falcon3", kIgnoreMerges, kAddBos},
                                       {"falcon-h1", kIgnoreMerges, kAddBos},
                                       {"pixtral", kIgnoreMerges, kAddBos},
                                       {"midm-2.0", kIgnoreMerges, kAddBos},
                                       {"lfm2", kIgnoreMerges, kAddBos},
                                       {"dbrx"},
                                       {"smaug-bpe"},
                                       {"glm4"},
                                       {"chatglm-bpe"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_llama_bpe = {.names = kNames, .split = split};

}  // namespace zinc
