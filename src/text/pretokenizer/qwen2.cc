// Qwen 2 and 3: as Llama 3, but each digit is a word.
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, word_end<WordPattern{}>, [&sink](std::string_view word) { sink.word(word); });
}

constexpr PretokenizerName kNames[] = {{"qwen2"},     {"deepseek-r1-qwen"}, {"kormo"},  {"f2llmv2"},   {"megrez"},
                                       {"stablelm2"}, {"hunyuan"},          {"grok-2"}, {"solar-open"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_qwen2 = {.names = kNames, .split = split};

}  // namespace zinc
