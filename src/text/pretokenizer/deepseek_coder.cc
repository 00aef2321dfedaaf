// DeepSeek Coder: single newlines, letters, punctuation, CJK runs and single digits; each pattern is isolated in the
// pieces of the previous one.
#include "text/pretokenizer.h"
#include "text/pretokenizer/scan.h"

namespace zinc {
namespace {

const char* newline(const char* at, const char* end) {
  return one(at, end, [](const Char& c) { return c.is_newline(); });
}
const char* letters(const char* at, const char* end) {
  return spaced_run(at, end, [](const Char& c) { return c.is(kLetter); });
}
const char* punctuation(const char* at, const char* end) {
  return spaced_run(at, end, [](const Char& c) { return c.is(kPunctuation); });
}
// [一-龥ࠀ-一가-퟿]+
const char* cjk(const char* at, const char* end) {
  return skip(at, end, [](const Char& c) {
    return !c.is(kSpace) && ((c.code >= 0x0800 && c.code <= 0x9FA5) || (c.code >= 0xAC00 && c.code <= 0xD7FF));
  });
}
const char* number(const char* at, const char* end) {
  return one(at, end, [](const Char& c) { return c.is(kNumber); });
}

void split(std::string_view text, WordSink& sink) {
  isolate(text, newline, [&sink](std::string_view line) {
    isolate(line, letters, [&sink](std::string_view word) {
      isolate(word, punctuation, [&sink](std::string_view rest) {
        isolate(rest, cjk, [&sink](std::string_view piece) {
          isolate(piece, number, [&sink](std::string_view part) { sink.word(part); });
        });
      });
    });
  });
}

constexpr PretokenizerName kNames[] = {{"deepseek-coder"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_deepseek_coder = {.names = kNames, .split = split};

}  // namespace zinc
