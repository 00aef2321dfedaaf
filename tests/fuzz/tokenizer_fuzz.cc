// A random vocabulary of any tokenizer model loads or fails, and encodes any bytes.
// Input: model, pre-tokenizer, number of tokens and merges, then tokens (type, length, bytes), merges and scores; the
// rest is text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tests/support/gguf_writer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace zinc {
namespace {

constexpr size_t kMaxText = 4096;

class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value;
  }
  std::string string(size_t max_bytes) {
    const size_t n = std::min<size_t>({byte(), max_bytes, bytes_.size()});
    const std::string text(bytes_.substr(0, n));
    bytes_.remove_prefix(n);
    return text;
  }
  std::string_view rest() const { return bytes_.substr(0, kMaxText); }

 private:
  std::string_view bytes_;
};

std::string pretokenizer_name(uint8_t number) {
  size_t n_rules = 0;
  while (kPretokenizers[n_rules]) ++n_rules;
  const size_t chosen = number % (n_rules + 1);
  return chosen == n_rules ? "no such rule" : std::string(kPretokenizers[chosen]->names[0].name);
}

std::string vocabulary(Input& input) {
  constexpr std::array kModels = {"gpt2", "llama", "gemma4", "bert"};
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", kModels[input.byte() % kModels.size()]);
  writer.add("tokenizer.ggml.pre", pretokenizer_name(input.byte()));
  const uint8_t flags = input.byte();
  const size_t n_tokens = input.byte(), n_merges = input.byte();
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  for (size_t i = 0; i < n_tokens; ++i) {
    types.push_back(input.byte() % 9);
    tokens.push_back(input.string(20));
    scores.push_back(static_cast<float>(static_cast<int8_t>(input.byte())));
  }
  for (size_t i = 0; i < n_merges; ++i) merges.push_back(input.string(20));
  writer.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.merges", merges);
  if (flags & 1) writer.add("tokenizer.ggml.token_type", types);
  if (flags & 2) scores.assign(scores.size(), std::numeric_limits<float>::quiet_NaN());
  if (flags & 4) scores.resize(scores.size() / 2);
  writer.add("tokenizer.ggml.scores", scores);
  if (flags & 8) writer.add("general.name", "phi-3");
  if (flags & 16) writer.add("tokenizer.ggml.add_space_prefix", false);
  writer.add("tokenizer.ggml.bos_token_id", uint32_t{input.byte()});
  writer.add("tokenizer.ggml.eos_token_id", uint32_t{input.byte()});
  if (flags & 32) writer.add("tokenizer.ggml.add_bos_token", true).add("tokenizer.ggml.add_eos_token", true);
  return writer.bytes();
}

void check_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool may_have_control) {
  for (const TokenId id : ids) {
    ZINC_CHECK(id >= 0 && id < tokenizer.n_vocab());
    ZINC_CHECK(may_have_control || !tokenizer.is_control(id));
  }
  ZINC_CHECK(tokenizer.decode(ids).size() <= ids.size() * 20);
}

void check(std::string_view bytes) {
  Input input(bytes);
  const std::string file_bytes = vocabulary(input);
  const Result<GgufFile> file = GgufFile::parse(std::as_bytes(std::span(file_bytes)), "fuzz.gguf");
  ZINC_CHECK(file.ok());
  const Result<Tokenizer> tokenizer = Tokenizer::load(file.value());
  if (!tokenizer.ok()) return;
  const std::string_view text = input.rest();
  std::vector<TokenId> plain, parsed, segments, whole;
  tokenizer.value().encode(text, {}, plain);
  check_tokens(tokenizer.value(), plain, false);
  tokenizer.value().encode(text, {.add_special = true, .parse_special = true}, parsed);
  check_tokens(tokenizer.value(), parsed, true);
  const size_t cut = text.size() / 2;
  tokenizer.value().encode(std::array<TextSegment, 2>{{{text.substr(0, cut)}, {text.substr(cut)}}}, false, segments);
  check_tokens(tokenizer.value(), segments, false);
  tokenizer.value().encode(std::array<TextSegment, 1>{{{text}}}, false, whole);
  ZINC_CHECK(segments == whole);
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  zinc::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
