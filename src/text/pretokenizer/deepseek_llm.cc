// DeepSeek LLM (67B, 7B): single newlines, letters of cased scripts, punctuation, trailing white space, CJK runs and
// numbers; each pattern is isolated in the pieces of the previous one.
#include <algorithm>
#include <iterator>

#include "text/pretokenizer.h"
#include "text/pretokenizer/scan.h"

namespace zinc {
namespace {

struct Range {
  char32_t first, last;
};

// The letters listed in the regular expression, sorted.
constexpr Range kLetters[] = {
    {0x0041, 0x005A},   {0x0061, 0x007A},   {0x00B5, 0x00B5},   {0x00C0, 0x00D6},   {0x00D8, 0x00F6},
    {0x00F8, 0x01BA},   {0x01BC, 0x01BF},   {0x01C4, 0x0293},   {0x0295, 0x02AF},   {0x0370, 0x0373},
    {0x0376, 0x0376},   {0x0377, 0x0377},   {0x037B, 0x037D},   {0x037F, 0x037F},   {0x0386, 0x0386},
    {0x0388, 0x038A},   {0x038C, 0x038C},   {0x038E, 0x03A1},   {0x03A3, 0x03F5},   {0x03F7, 0x0481},
    {0x048A, 0x052F},   {0x0531, 0x0556},   {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},
    {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},
    {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},
    {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},
    {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},   {0x2184, 0x2184},
    {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},
    {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
    {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

bool is_cased_letter(const Char& c) {
  if (c.n_bytes == 1) return c.is(kLetter);
  const Range* const after = std::upper_bound(std::begin(kLetters), std::end(kLetters), c.code,
                                              [](char32_t code, const Range& range) { return code < range.first; });
  return after != std::begin(kLetters) && c.code <= std::prev(after)->last;
}

// [!-/:-~！-／：-～‘-‟　-。]
bool is_listed_punctuation(const Char& c) {
  const char32_t code = c.code;
  if (c.is(kSpace)) return false;
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '~') || (code >= 0xFF01 && code <= 0xFF0F) ||
         (code >= 0xFF1A && code <= 0xFF5E) || (code >= 0x2018 && code <= 0x201F) || (code >= 0x3000 && code <= 0x3002);
}

// [一-龥ࠀ-一가-퟿]
bool is_cjk(const Char& c) {
  return !c.is(kSpace) && ((c.code >= 0x0800 && c.code <= 0x9FA5) || (c.code >= 0xAC00 && c.code <= 0xD7FF));
}

const char* newline(const char* at, const char* end) {
  return one(at, end, [](const Char& c) { return c.is_newline(); });
}
const char* letters(const char* at, const char* end) { return spaced_run(at, end, is_cased_letter); }
const char* punctuation(const char* at, const char* end) { return spaced_run(at, end, is_listed_punctuation); }
const char* cjk(const char* at, const char* end) { return skip(at, end, is_cjk); }
const char* numbers(const char* at, const char* end) { return skip_class(at, end, kNumber); }

// \s+$ in one pass.
template <class Emit>
void isolate_trailing_space(std::string_view text, Emit emit) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* space = end;  // start of the trailing white space
  for (const char* at = begin; at < end;) {
    const Char c = char_at(at, end);
    if (!c.is(kSpace)) {
      space = end;
    } else if (space == end) {
      space = at;
    }
    at += c.n_bytes;
  }
  if (space > begin) emit(text.substr(0, static_cast<size_t>(space - begin)));
  if (space < end) emit(text.substr(static_cast<size_t>(space - begin)));
}

void split(std::string_view text, WordSink& sink) {
  isolate(text, newline, [&sink](std::string_view line) {
    isolate(line, letters, [&sink](std::string_view word) {
      isolate(word, punctuation, [&sink](std::string_view rest) {
        isolate_trailing_space(rest, [&sink](std::string_view piece) {
          isolate(piece, cjk, [&sink](std::string_view part) {
            isolate(part, numbers, [&sink](std::string_view found) { sink.word(found); });
          });
        });
      });
    });
  });
}

constexpr PretokenizerName kNames[] = {{"deepseek-llm"}};

}  // namespace

extern const Pretokenizer k_pretokenizer_deepseek_llm = {.names = kNames, .split = split};

}  // namespace zinc
