// Gemma 4 merges over whole lines: [^\n]+|\n+
#include "text/pretokenizer.h"
#include "text/pretokenizer/scan.h"

namespace zinc {
namespace {

const char* line_end(const char* at, const char* end) {
  const bool is_newline = *at == '\n';
  while (at < end && (*at == '\n') == is_newline) ++at;
  return at;
}

void split(std::string_view text, WordSink& sink) {
  for_each_match(text, line_end, [&sink](std::string_view word) { sink.word(word); });
}

constexpr PretokenizerName kNames[] = {{.name = "gemma4", .add_bos = true}};

}  // namespace

extern const Pretokenizer k_pretokenizer_gemma4 = {.names = kNames, .split = split};

}  // namespace zinc
