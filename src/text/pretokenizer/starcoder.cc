// StarCoder, SmolLM, Command R and others: single digits, then GPT-2's pattern on the text between.
#include "text/pretokenizer.h"
#include "text/pretokenizer/words.h"

namespace zinc {
namespace {

const char* number(const char* at, const char* end) {
  return one(at, end, [](const Char& c) { return c.is(kNumber); });
}

void split(std::string_view text, WordSink& sink) {
  isolate(text, number, [&sink](std::string_view piece) {
    for_each_match(piece, gpt2_word_end, [&sink](std::string_view word) { sink.word(word); });
  });
}

constexpr PretokenizerName kNames[] = {{"starcoder"}, {"smollm"}, {"refact"},     {"command-r"},
                                       {"codeshell"}, {"exaone"}, {"minerva-7b"}, {"mellum2"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_starcoder = {.names = kNames, .split = split};

}  // namespace zinc
