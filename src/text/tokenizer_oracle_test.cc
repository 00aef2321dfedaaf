// The full oracle, if present next to the repository: 17 real vocabularies with about 500 vectors each.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/support/token_vectors.h"
#include "text/tokenizer.h"

namespace zinc {
namespace {

const std::filesystem::path kOracle = ZINC_SOURCE_DIR "/../shared/oracle/tokenizers";

// Reads plain and gzipped files alike.
std::string read_unzipped(const std::filesystem::path& path) {
  std::string bytes;
  const gzFile file = gzopen(path.c_str(), "rb");
  ZINC_CHECK(file);
  std::vector<char> buffer(1 << 20);
  int n_bytes = 0;
  while ((n_bytes = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    bytes.append(buffer.data(), static_cast<size_t>(n_bytes));
  }
  ZINC_CHECK(n_bytes == 0);
  gzclose(file);
  return bytes;
}

void check_family(const std::filesystem::path& path, const std::string& family) {
  const std::string bytes = read_unzipped(path);
  const Result<GgufFile> file = GgufFile::parse(std::as_bytes(std::span(bytes)), path.string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Result<Tokenizer> tokenizer = Tokenizer::load(file.value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<TokenVector> vectors = read_token_vectors(kOracle / (family + ".jsonl"));
  int n_equal = 0;
  std::vector<TokenId> ids;
  for (const TokenVector& vector : vectors) {
    ids.clear();
    tokenizer.value().encode(vector.text, vector.options, ids);
    EXPECT_EQ(ids, vector.ids) << family << ": " << vector.text;
    n_equal += ids == vector.ids;
  }
  fmt::print("{} {}/{}\n", family, n_equal, vectors.size());
  EXPECT_GT(vectors.size(), 400u);
}

TEST(TokenizerOracle, every_vector_of_every_family_matches) {
  if (!std::filesystem::exists(kOracle)) GTEST_SKIP() << "no oracle at " << kOracle;
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kOracle)) files.insert(entry.path());
  int n_families = 0;
  for (const std::filesystem::path& path : files) {
    const std::string name = path.filename().string();
    const size_t suffix = name.find(".gguf");
    if (suffix == std::string::npos) continue;
    check_family(path, name.substr(0, suffix));
    ++n_families;
  }
  EXPECT_GE(n_families, 17);
}

}  // namespace
}  // namespace zinc
