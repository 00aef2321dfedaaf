// DeepSeek V3 and R1: up to three digits, runs of Chinese and Japanese, then words with marks; a punctuation character
// joins the ASCII letters after it.
#include "text/pretokenizer.h"
#include "text/pretokenizer/scan.h"

namespace zinc {
namespace {

constexpr int kMaxDigits = 3;

const char* number(const char* at, const char* end) {
  for (int n = 0; n < kMaxDigits; ++n) at = one(at, end, [](const Char& c) { return c.is(kNumber); });
  return at;
}

// [一-龥぀-ゟ゠-ヿ]+
const char* chinese_or_kana(const char* at, const char* end) {
  return skip(at, end, [](const Char& c) {
    return (c.code >= 0x4E00 && c.code <= 0x9FA5) || (c.code >= 0x3040 && c.code <= 0x30FF);
  });
}

bool is_ascii_letter(const Char& c) { return c.n_bytes == 1 && c.is(kLetter); }

// [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Control, format and unassigned characters do not match: returns `at`.
const char* word(const char* at, const char* end) {
  const Char c = char_at(at, end);
  const char* const after = at + c.n_bytes;
  if (c.n_bytes == 1 && c.is(kPunctuation | kSymbol)) {
    if (const char* next = skip(after, end, is_ascii_letter); next != after) return next;
  }
  if (c.is(kLetter | kMark)) return skip_class(at, end, kLetter | kMark);
  if (!c.is(kPunctuation | kSymbol) && !c.is_newline()) {
    if (const char* next = skip_class(after, end, kLetter | kMark); next != after) return next;
  }
  const char* const from = *at == ' ' ? after : at;
  if (const char* next = skip_class(from, end, kPunctuation | kSymbol); next != from) return skip_newlines(next, end);
  return c.is(kSpace) ? space_end(at, end, true) : at;
}

void split(std::string_view text, WordSink& sink) {
  isolate(text, number, [&sink](std::string_view piece) {
    isolate(piece, chinese_or_kana, [&sink](std::string_view part) {
      isolate(part, word, [&sink](std::string_view found) { sink.word(found); });
    });
  });
}

constexpr PretokenizerName kNames[] = {{"deepseek-v3"}, {"hunyuan-dense"}, {"joyai-llm"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_deepseek_v3 = {.names = kNames, .split = split};

}  // namespace zinc
