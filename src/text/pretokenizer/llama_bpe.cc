// Llama 3: contractions in either case, a word takes one leading character of any kind, numbers go by three.
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

void split(std::string_view text, WordSink& sink) {
  cut(text, word_end<WordPattern{.max_digits = 3}>, [&sink](std::string_view word) { sink.word(word); });
}

constexpr bool kWholeWords = true;
constexpr bool kAddBos = true;
constexpr PretokenizerName kNames[] = {{"llama-bpe", kWholeWords, kAddBos},
                                       {"llama3", kWholeWords, kAddBos},
                                       {"llama-v3", kWholeWords, kAddBos},
                                       {"falcon3", kWholeWords, kAddBos},
                                       {"falcon-h1", kWholeWords, kAddBos},
                                       {"pixtral", kWholeWords, kAddBos},
                                       {"midm-2.0", kWholeWords, kAddBos},
                                       {"lfm2", kWholeWords, kAddBos},
                                       {"dbrx"},
                                       {"smaug-bpe"},
                                       {"glm4"},
                                       {"chatglm-bpe"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_llama_bpe = {.names = kNames, .split = split};

}  // namespace zinc
