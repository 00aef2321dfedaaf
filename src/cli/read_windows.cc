#include "cli/read_windows.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "text/tokenizer.h"

namespace zinc {

Result<WindowedText> read_windows(const WindowOptions& options, const ModelInstance& model) {
  ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
  ZINC_TRY(file, MappedFile::open(options.path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<TokenId> tokens;
  tokenizer.encode(text, {.add_special = true, .parse_special = options.parses_special}, tokens);
  const std::optional<TokenId> bos = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
  Result<WindowedText> windows = cut_into_windows(std::move(tokens), options.window, options.max_windows, bos);
  if (!windows.ok()) return fail(windows.error().code, "{}: {}", options.path, windows.error().message);
  const auto largest = std::ranges::max(windows.value().tokens);
  if (largest >= model.model().config.vocab_size) {
    return fail(ErrorCode::invalid_input, "{}: the tokenizer produced token {}, but the model's vocabulary has only {}",
                model.path().string(), largest, model.model().config.vocab_size);
  }
  return windows;
}

}  // namespace zinc
