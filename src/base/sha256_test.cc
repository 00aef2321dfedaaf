#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Messages and digests published by NIST with FIPS 180 (one block, two blocks, empty, a million letters).
TEST(Sha256, published_messages_have_their_published_digests) {
  EXPECT_EQ(sha256_hex(bytes_of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(bytes_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                                "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// 55, 56, 63, 64 and 65 bytes are where the padding changes shape; digests from coreutils' sha256sum.
TEST(Sha256, padding_is_right_around_the_block_boundary) {
  EXPECT_EQ(sha256_hex(bytes_of(std::string(55, 'a'))),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(56, 'a'))),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(63, 'a'))),
            "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(65, 'a'))),
            "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0");
}

TEST(Sha256, any_split_of_a_message_gives_the_same_digest) {
  std::string message;
  for (int i = 0; i < 300; ++i) message.push_back(static_cast<char>(i * 7));
  const std::string whole = sha256_hex(bytes_of(message));
  for (size_t first = 0; first <= 130; ++first) {
    for (const size_t second : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{128}}) {
      Sha256 hash;
      hash.update(bytes_of(message).first(first));
      hash.update(bytes_of(message).subspan(first, second));
      hash.update(bytes_of(message).subspan(first + second));
      EXPECT_EQ(to_hex(hash.finish()), whole) << first << " + " << second;
    }
  }
}

TEST(Sha256, a_file_is_hashed_whole_and_a_missing_one_is_named) {
  const TestFolder folder;
  const Result<std::string> hash = sha256_of_file(put(folder / "file", "abc"));
  ASSERT_TRUE(hash.ok()) << hash.error().message;
  EXPECT_EQ(hash.value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");

  const std::filesystem::path absent = folder / "absent";
  const Result<std::string> missing = sha256_of_file(absent);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find(absent.string()), std::string::npos);
}

}  // namespace
}  // namespace zinc
