#include "text/tokenizer.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/utf8.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/token_vectors.h"
#include "text/detokenizer.h"
#include "text/tokenizer_special.h"

namespace zinc {
namespace {

using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

const std::string kData = ZINC_SOURCE_DIR "/tests/data/tokenizer/";
const Strings kFamilies = {"gemma4", "gpt-2", "gpt-4o", "llama-bpe", "qwen2", "qwen35", "spm"};

Result<Tokenizer> load(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  const Result<GgufFile> file = GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  ZINC_CHECK(file.ok());
  return Tokenizer::load(file.value());
}

Tokenizer load_family(const std::string& family) {
  const Result<GgufFile> file = GgufFile::open(kData + family + ".gguf");
  ZINC_CHECK(file.ok());
  return Tokenizer::load(file.value()).value();
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions special = {}) {
  Ids ids;
  tokenizer.encode(text, special, ids);
  return ids;
}

Ids encode(const Tokenizer& tokenizer, const std::vector<TextSegment>& segments, bool add_special = false) {
  Ids ids;
  tokenizer.encode(segments, add_special, ids);
  return ids;
}

TEST(Tokenizer, overlong_special_tokens_are_ignored) {
  const std::string text(200'000, 'a');
  SpecialTokenFinder finder;
  finder.add(text + "b", 1, TokenType::user_defined, false);
  finder.add("aab", 2, TokenType::user_defined, false);
  const std::clock_t begin = std::clock();
  size_t range_cursor = 0;
  const auto match = finder.find_next(text + "b", 0, {}, range_cursor);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->id, 2);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 2.0);
}

// Random text of letters, other scripts, spaces, marks and special-looking pieces.
std::string random_text(std::mt19937& random, size_t max_pieces) {
  static const Strings kPieces = {"a",      "b",      "the",      "ing", "T",   "é",    "ß",   "漢", "字",
                                  "न",      "\u0301", "😀",        "0",   "12",  " ",    "  ",  "\n", "\n\n",
                                  "\t",     "\r",     "'s",       "!",   "?!",  "<",    ">",   "|",  "_",
                                  "\u00A0", "<|",     "im_start", "|>",  "<s>", "x=1;", "\x01"};
  std::string text;
  for (size_t n = random() % (max_pieces + 1); n > 0; --n) text += kPieces[random() % kPieces.size()];
  return text;
}

TEST(Tokenizer, own_vectors_of_every_model_match) {
  for (const std::string& family : kFamilies) {
    const Tokenizer tokenizer = load_family(family);
    int n_equal = 0;
    const std::vector<TokenVector> vectors = read_token_vectors(kData + family + ".jsonl");
    for (const TokenVector& vector : vectors) {
      const Ids ids = encode(tokenizer, vector.text, vector.options);
      EXPECT_EQ(ids, vector.ids) << family << ": " << vector.text;
      n_equal += ids == vector.ids;
    }
    fmt::print("{} {}/{}\n", family, n_equal, vectors.size());
    EXPECT_GT(vectors.size(), 50u);
  }
}

TEST(Tokenizer, encode_and_decode_round_trip) {
  for (const std::string& family : kFamilies) {
    const Tokenizer tokenizer = load_family(family);
    std::mt19937 random(4);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_text(random, 30);
      ASSERT_EQ(tokenizer.decode(encode(tokenizer, text)), text) << family;
    }
  }
}

TEST(Tokenizer, plain_text_never_becomes_a_control_token) {
  for (const std::string& family : kFamilies) {
    const Tokenizer tokenizer = load_family(family);
    Strings controls;
    for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
      if (tokenizer.is_control(id)) controls.emplace_back(tokenizer.bytes(id));
    }
    ASSERT_GE(controls.size(), 3u) << family;
    std::mt19937 random(5);
    for (int i = 0; i < 1000; ++i) {
      const std::string text = random_text(random, 4) + controls[random() % controls.size()] + random_text(random, 4);
      for (const TokenId id : encode(tokenizer, text)) ASSERT_FALSE(tokenizer.is_control(id)) << text;
      for (const TokenId id : encode(tokenizer, {{.text = text}})) ASSERT_FALSE(tokenizer.is_control(id)) << text;
    }
  }
}

TEST(Tokenizer, segments_encode_like_the_concatenated_text) {
  for (const std::string& family : kFamilies) {
    const Tokenizer tokenizer = load_family(family);
    std::mt19937 random(6);
    for (int i = 0; i < 1000; ++i) {
      // Without "<" and ">" the user's text has no special token, and none can arise where it meets the template's.
      std::string user = random_text(random, 12);
      std::erase_if(user, [](char c) { return c == '<' || c == '>' || c == '|'; });
      const std::string whole = "<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n";
      const size_t cut = 17 + random() % (user.size() + 1);
      const std::string_view view = whole;
      const std::vector<TextSegment> segments = {{view.substr(0, 17), true},
                                                 {view.substr(17, cut - 17), false},
                                                 {view.substr(cut, 17 + user.size() - cut), false},
                                                 {view.substr(17 + user.size()), true}};
      ASSERT_EQ(encode(tokenizer, segments), encode(tokenizer, whole, {.parse_special = true})) << family << whole;
    }
  }
}

TEST(Tokenizer, control_token_cannot_span_template_and_user_text) {
  const Tokenizer tokenizer = load_family("qwen2");
  const TokenId start = tokenizer.find("<|im_start|>").value();
  EXPECT_EQ(encode(tokenizer, {{"<|im_", true}, {"start|>", true}}), Ids{start});
  for (const auto& segments : std::vector<std::vector<TextSegment>>{
           {{"<|im_", true}, {"start|>", false}}, {{"<|im_start|", false}, {">", true}}, {{"<|im_start|>", false}}}) {
    const Ids ids = encode(tokenizer, segments);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), start), 0);
    EXPECT_EQ(tokenizer.decode(ids), "<|im_start|>");
  }
}

TEST(Tokenizer, bos_is_added_to_segments_once) {
  const Tokenizer tokenizer = load_family("spm");
  const std::string bos(tokenizer.bytes(*tokenizer.bos()));
  const Ids plain = encode(tokenizer, "hi", {.add_special = true});
  EXPECT_EQ(plain[0], tokenizer.bos());
  EXPECT_EQ(encode(tokenizer, {{"hi", false}}, true), plain);
  EXPECT_EQ(encode(tokenizer, {{bos, true}, {"hi", false}}, true), plain);
  EXPECT_EQ(encode(tokenizer, {}, true), Ids{*tokenizer.bos()});
}

// A vocabulary of 256 byte tokens in the byte alphabet, further tokens and the merges.
struct ByteVocab {
  Strings tokens;
  std::vector<int32_t> types;
  Strings merges;

  ByteVocab() {
    for (int byte = 0, next = 0x100; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      std::string text;
      append_utf8(text, static_cast<char32_t>(printable ? byte : next++));
      add(text);
    }
  }
  TokenId add(const std::string& text, int32_t type = 1) {
    tokens.push_back(text);
    types.push_back(type);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  TokenId merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  GgufWriter writer(const char* pre = "gpt-2") const {
    GgufWriter w;
    w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", pre).add("tokenizer.ggml.tokens", tokens);
    w.add("tokenizer.ggml.token_type", types).add("tokenizer.ggml.merges", merges);
    return w;
  }
};

TEST(Tokenizer, merges_go_by_rank_and_then_from_the_left) {
  ByteVocab vocab;
  const TokenId bc = vocab.merge("b", "c"), ab = vocab.merge("a", "b"), aa = vocab.merge("a", "a");
  const Tokenizer tokenizer = load(vocab.writer()).value();
  EXPECT_EQ(encode(tokenizer, "abc"), (Ids{'a', bc}));
  EXPECT_EQ(encode(tokenizer, "ab"), Ids{ab});
  EXPECT_EQ(encode(tokenizer, "aaa"), (Ids{aa, 'a'}));
}

// Reference implementation of BPE merging.
Ids merge_naively(const ByteVocab& vocab, const std::string& word) {
  Strings symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  while (true) {
    size_t best = symbols.size(), best_rank = vocab.merges.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::find(vocab.merges.begin(), vocab.merges.end(), symbols[i] + " " + symbols[i + 1]);
      const auto rank = static_cast<size_t>(found - vocab.merges.begin());
      if (rank < best_rank) best = i, best_rank = rank;
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    const auto found = std::find(vocab.tokens.begin(), vocab.tokens.end(), symbol);
    ids.push_back(static_cast<TokenId>(found - vocab.tokens.begin()));
  }
  return ids;
}

TEST(Tokenizer, short_and_long_words_match_naive_merging) {
  std::mt19937 random(7);
  ByteVocab vocab;
  const auto random_piece = [&] {
    return random() % 2 ? std::string(1, static_cast<char>('a' + random() % 3))
                        : vocab.tokens[std::max<size_t>('a' + random() % 3, random() % vocab.tokens.size())];
  };
  while (vocab.merges.size() < 60) {
    const std::string left = random_piece(), right = random_piece();
    const bool known = std::find(vocab.tokens.begin(), vocab.tokens.end(), left + right) != vocab.tokens.end();
    const auto in_alphabet = [](const std::string& s) { return s.find_first_not_of("abc") == std::string::npos; };
    if (!known && in_alphabet(left + right)) vocab.merge(left, right);
  }
  const Tokenizer tokenizer = load(vocab.writer()).value();
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (size_t n = 1 + random() % 120; n > 0; --n) word.push_back(static_cast<char>('a' + random() % 3));
    ASSERT_EQ(encode(tokenizer, word), merge_naively(vocab, word)) << word;
  }
}

TEST(Tokenizer, merged_symbol_that_is_not_a_token_falls_back_to_bytes) {
  ByteVocab vocab;
  vocab.merges = {"a b", "ab c"};
  vocab.add("abc");
  const Tokenizer tokenizer = load(vocab.writer()).value();
  EXPECT_EQ(encode(tokenizer, "abc"), Ids{256});
  EXPECT_EQ(encode(tokenizer, "abd"), (Ids{'a', 'b', 'd'}));
}

TEST(Tokenizer, ignore_merges_finds_tokens_without_merges) {
  ByteVocab vocab;
  const TokenId hello = vocab.add("hello");
  EXPECT_EQ(encode(load(vocab.writer("llama-bpe")).value(), "hello"), Ids{hello});
  EXPECT_EQ(encode(load(vocab.writer("gpt-2")).value(), "hello"), (Ids{'h', 'e', 'l', 'l', 'o'}));
}

TEST(Tokenizer, megabyte_word_is_not_quadratic) {
  ByteVocab vocab;
  std::string piece = "a";
  for (int i = 0; i < 6; ++i, piece += piece) vocab.merge(piece, piece);
  const Tokenizer tokenizer = load(vocab.writer()).value();
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, 'a')).size(), size_t{1} << 14);
  for (const std::string family : {"spm", "gemma4", "qwen2"}) {
    std::string chinese;
    while (chinese.size() < 600000) chinese += "漢字";
    EXPECT_EQ(load_family(family).decode(encode(load_family(family), chinese)), chinese);
  }
}

TEST(Tokenizer, longest_special_token_matches) {
  ByteVocab vocab;
  const TokenId one = vocab.add("<a>", 4), two = vocab.add("<a><b>", 4), control = vocab.add("<a><b><c>", 3);
  const Tokenizer tokenizer = load(vocab.writer()).value();
  EXPECT_EQ(encode(tokenizer, "<a><a><b>"), (Ids{one, two}));
  EXPECT_EQ(encode(tokenizer, "<a><b><c>"), (Ids{two, '<', 'c', '>'}));
  EXPECT_EQ(encode(tokenizer, "<a><b><c>", {.parse_special = true}), Ids{control});
}

TEST(Tokenizer, gpt_oss_markers_match_in_plain_text_but_not_in_user_segments) {
  ByteVocab vocab;
  const TokenId start = vocab.add("<|start|>", 3), end = vocab.add("<|end|>", 3);
  const TokenId ret = vocab.add("<|return|>", 3), call = vocab.add("<|call|>", 3);
  const Tokenizer tokenizer = load(vocab.writer("gpt-4o")).value();
  EXPECT_EQ(encode(tokenizer, "<|start|><|end|>"), (Ids{start, end}));
  EXPECT_EQ(encode(tokenizer, {{"<|start|>", true}}), Ids{start});
  const Ids guarded = encode(tokenizer, {{"<|start|><|end|>", false}});
  EXPECT_EQ(std::count(guarded.begin(), guarded.end(), start) + std::count(guarded.begin(), guarded.end(), end), 0);
  EXPECT_TRUE(tokenizer.is_eog(ret) && tokenizer.is_eog(call));
  EXPECT_FALSE(tokenizer.is_eog(end)) << "another message may follow";
}

TEST(Tokenizer, eog_tokens_are_eos_and_known_turn_ends) {
  ByteVocab vocab;
  const TokenId eos = vocab.add("<my_eos>", 3), im_end = vocab.add("<|im_end|>", 3), other = vocab.add("<|x|>", 3);
  const TokenId eot = vocab.add("<my_eot>", 3), turn = vocab.add("<end_of_turn>", 1);
  GgufWriter w = vocab.writer();
  w.add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(eos));
  w.add("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(eot));
  const Tokenizer tokenizer = load(w).value();
  EXPECT_EQ(Ids(tokenizer.eog_tokens().begin(), tokenizer.eog_tokens().end()), (Ids{eos, im_end, eot, turn}));
  EXPECT_FALSE(tokenizer.is_eog(other));
  EXPECT_TRUE(tokenizer.is_control(turn)) << "the file's token type is corrected";
}

TEST(Tokenizer, fill_in_the_middle_tokens_by_key_or_text) {
  ByteVocab vocab;
  EXPECT_FALSE(load(vocab.writer()).value().fim_tokens());
  const TokenId prefix = vocab.add("<|fim_prefix|>", 3), middle = vocab.add("<|fim_middle|>", 3);
  EXPECT_FALSE(load(vocab.writer()).value().fim_tokens()) << "no suffix token";
  const TokenId suffix = vocab.add("<my_suffix>", 3), file = vocab.add("<|file_sep|>", 3);
  GgufWriter w = vocab.writer();
  w.add("tokenizer.ggml.fim_suf_token_id", static_cast<uint32_t>(suffix));
  const Tokenizer tokenizer = load(w).value();
  ASSERT_TRUE(tokenizer.fim_tokens());
  EXPECT_EQ(tokenizer.fim_tokens()->prefix, prefix);
  EXPECT_EQ(tokenizer.fim_tokens()->suffix, suffix);
  EXPECT_EQ(tokenizer.fim_tokens()->middle, middle);
  EXPECT_EQ(tokenizer.fim_tokens()->file_separator, file);
}

TEST(Tokenizer, bos_follows_the_file_or_the_pretokenizer_default) {
  ByteVocab vocab;
  const TokenId bos = vocab.add("<s>", 3);
  const auto adds = [&](const char* pre, std::optional<bool> key) {
    GgufWriter w = vocab.writer(pre);
    w.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos));
    if (key) w.add("tokenizer.ggml.add_bos_token", *key);
    return encode(load(w).value(), "", {.add_special = true}) == Ids{bos};
  };
  EXPECT_TRUE(adds("llama-bpe", std::nullopt));
  EXPECT_FALSE(adds("llama-bpe", false));
  EXPECT_FALSE(adds("qwen2", std::nullopt));
  EXPECT_TRUE(adds("qwen2", true));
}

TEST(Tokenizer, byte_fallback_covers_every_unknown_character) {
  const Tokenizer tokenizer = load_family("spm");
  for (const std::string text : {"漢", "😀", "\x01", "\u2003"}) {
    const Ids ids = encode(tokenizer, "a" + text);
    ASSERT_EQ(ids.size(), text.size() + 1);
    for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(tokenizer.bytes(ids[i + 1]), text.substr(i, 1));
  }
}

TEST(Tokenizer, ids_out_of_range_are_harmless) {
  const Tokenizer tokenizer = load_family("qwen2");
  for (const TokenId id : {-1, tokenizer.n_vocab(), std::numeric_limits<TokenId>::max()}) {
    EXPECT_EQ(tokenizer.bytes(id), "");
    EXPECT_FALSE(tokenizer.is_control(id) || tokenizer.is_eog(id));
  }
  EXPECT_EQ(tokenizer.find("<|no such token|>"), std::nullopt);
  EXPECT_EQ(tokenizer.find(""), std::nullopt);
}

TEST(Tokenizer, many_threads_encode_at_once) {
  const Tokenizer tokenizer = load_family("gpt-4o");
  std::mt19937 random(8);
  const std::string text = random_text(random, 4000);
  const Ids expected = encode(tokenizer, text);
  std::vector<Ids> found(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& ids : found) threads.emplace_back([&] { tokenizer.encode(text, {}, ids); });
  }
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

void expect_error(const GgufWriter& writer, const Strings& words) {
  const Result<Tokenizer> tokenizer = load(writer);
  ASSERT_FALSE(tokenizer.ok());
  const std::string& message = tokenizer.error().message;
  EXPECT_TRUE(message.starts_with("m.gguf: ")) << message;
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message << "\n  " << word;
}

TEST(Tokenizer, unknown_pretokenizer_error_lists_the_supported_ones) {
  expect_error(ByteVocab().writer("wolof-7"), {"tokenizer.ggml.pre", "'wolof-7'", "llama-bpe", "qwen2"});
}

TEST(Tokenizer, unknown_model_error_lists_the_supported_ones) {
  GgufWriter w;
  w.add("tokenizer.ggml.model", "bert");
  expect_error(w, {"tokenizer.ggml.model", "'bert'", "gpt2"});
  expect_error(GgufWriter(), {"tokenizer.ggml.model"});
}

TEST(Tokenizer, errors_name_missing_and_short_arrays) {
  GgufWriter w;
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.tokens", Strings{"a", "b"});
  expect_error(w, {"tokenizer.ggml.merges"});
  w.add("tokenizer.ggml.merges", Strings{}).add("tokenizer.ggml.token_type", std::vector<int32_t>{1});
  expect_error(w, {"tokenizer.ggml.token_type", "1", "2"});
  GgufWriter scored;
  scored.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", Strings{"a", "b"});
  expect_error(scored, {"tokenizer.ggml.scores"});
  scored.add("tokenizer.ggml.scores", std::vector<float>{1.0f});
  expect_error(scored, {"tokenizer.ggml.scores", "1", "2"});
  GgufWriter empty;
  empty.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.tokens", Strings{});
  expect_error(empty, {"tokenizer.ggml.tokens", "0"});
}

TEST(Tokenizer, file_without_pretokenizer_uses_the_default) {
  ByteVocab vocab;
  GgufWriter w;
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.tokens", vocab.tokens);
  w.add("tokenizer.ggml.merges", Strings{"1 2", "12 3", "123 4"});
  EXPECT_EQ(encode(load(w).value(), "1234"), (Ids{'1', '2', '3', '4'})) << "four digits are two words";
}

TEST(Detokenizer, character_split_over_tokens_is_emitted_whole) {
  const Tokenizer tokenizer = load_family("spm");
  Detokenizer decoder(tokenizer, {.stop = {"END"}});
  std::string text;
  for (const TokenId id : encode(tokenizer, "hi 🙂 漢END ignored")) {
    const std::string_view piece = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  EXPECT_EQ(text, " hi 🙂 漢");
  EXPECT_TRUE(decoder.stopped());
}

TEST(Detokenizer, control_tokens_are_hidden_by_default) {
  const Tokenizer tokenizer = load_family("qwen2");
  const TokenId start = tokenizer.find("<|im_start|>").value(), think = tokenizer.find("<think>").value();
  Detokenizer silent(tokenizer, {});
  EXPECT_EQ(silent.push(start), "");
  EXPECT_EQ(silent.push(think), "<think>");
  Detokenizer open(tokenizer, {.stop = {}, .show_control = true});
  EXPECT_EQ(open.push(start), "<|im_start|>");
}

}  // namespace
}  // namespace zinc
