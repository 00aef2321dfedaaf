// GPT-2 and models with its pattern: words, numbers and punctuation with one leading space.
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, gpt2_word_end, [&sink](std::string_view word) { sink.word(word); });
}

constexpr PretokenizerName kNames[] = {{"gpt-2"},          {"phi-2"},   {"mpt"},      {"olmo"},    {"jais"},
                                       {"trillion"},       {"exaone4"}, {"gigachat"}, {"a.x-4.0"}, {"mellum"},
                                       {"granite-docling"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_gpt_2 = {.names = kNames, .split = split};

}  // namespace zinc
