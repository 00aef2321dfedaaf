#include "gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

std::vector<std::byte> bytes_of(size_t n, int first) {
  std::vector<std::byte> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return out;
}

size_t n_files(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Metadata of every type, and tensors whose sizes are not multiples of the alignment.
GgufHeader sample_header() {
  GgufHeader h;
  h.set("general.architecture", "llama").set("a.u8", uint8_t{200}).set("a.i8", int8_t{-100});
  h.set("a.u16", uint16_t{60000}).set("a.i16", int16_t{-30000}).set("a.u32", uint32_t{4000000000});
  h.set("a.i32", int32_t{-2000000000}).set("a.f32", 0.1f).set("a.bool", true).set("a.u64", ~uint64_t{0});
  h.set("a.i64", -(int64_t{1} << 40)).set("a.f64", 0.1).set("a.empty", std::vector<std::string>{});
  h.set("a.ints", std::vector<int32_t>{3, -1, 2}).set("a.strings", std::vector<std::string>{"", "b", "cc"});
  h.set("a.nested", std::vector<std::vector<uint16_t>>{{1, 2}, {}, {3}});
  h.add_tensor("one", {3}, k_f32).add_tensor("two", {3, 2, 32}, *find_format("q8_0")).add_tensor("three", {5}, k_f16);
  return h;
}

Status write_sample(const std::filesystem::path& path, const GgufHeader& header, size_t piece_bytes) {
  ZINC_TRY(writer, GgufFileWriter::create(path, header));
  for (size_t i = 0; i < header.tensors().size(); ++i) {
    const std::vector<std::byte> data = bytes_of(header.tensors()[i].n_bytes, static_cast<int>(i) * 50);
    for (size_t at = 0; at < data.size(); at += piece_bytes) {
      ZINC_TRY(written, writer.write(std::span(data).subspan(at, std::min(piece_bytes, data.size() - at))));
    }
  }
  EXPECT_EQ(writer.n_written(), header.file_bytes());
  return writer.commit();
}

TEST(GgufFileWriter, written_file_is_read_back) {
  const TestFolder folder;
  const GgufHeader header = sample_header();
  for (const size_t piece_bytes : {1u, 7u, 1000u}) {
    const Status written = write_sample(folder / "a.gguf", header, piece_bytes);
    ASSERT_TRUE(written.ok()) << written.error().message;
    const auto opened = GgufFile::open(folder / "a.gguf");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const GgufFile& file = opened.value();
    EXPECT_EQ(file.file_bytes(), header.file_bytes());
    ASSERT_EQ(file.metadata().size(), header.n_metadata());
    EXPECT_EQ(file.metadata()[6].first, "a.i32");
    EXPECT_EQ(file.metadata()[6].second.type, GgufType::i32);
    EXPECT_EQ(file.get<int64_t>("a.i32").value(), -2000000000);
    EXPECT_EQ(file.get<double>("a.f32").value(), double{0.1f});
    EXPECT_EQ(file.get<double>("a.f64").value(), 0.1);
    EXPECT_EQ(file.get<std::vector<int64_t>>("a.ints").value(), (std::vector<int64_t>{3, -1, 2}));
    EXPECT_EQ(file.find("a.nested")->type_name(), "array of 3 array");
    ASSERT_EQ(file.tensors().size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const GgufTensor& tensor = file.tensors()[i];
      EXPECT_EQ(tensor.name, header.tensors()[i].name);
      EXPECT_EQ(tensor.view.shape, header.tensors()[i].shape);
      EXPECT_EQ(tensor.view.format, header.tensors()[i].format);
      EXPECT_EQ(tensor.offset % 32, 0u);
      EXPECT_TRUE(
          std::ranges::equal(tensor.view.bytes, bytes_of(header.tensors()[i].n_bytes, static_cast<int>(i) * 50)));
    }
    EXPECT_EQ(n_files(folder.path()), 1u);
  }
}

TEST(GgufHeader, values_read_from_a_file_are_written_unchanged) {
  const GgufHeader header = sample_header();
  const std::string bytes = header.encode() + std::string(header.file_bytes() - header.encode().size(), '\0');
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  GgufHeader copy;
  for (const auto& [key, value] : file.value().metadata()) copy.set(key, value);
  for (const GgufTensor& tensor : file.value().tensors()) {
    copy.add_tensor(tensor.name, tensor.view.shape, *tensor.view.format);
  }
  EXPECT_EQ(copy.encode(), header.encode());
}

TEST(GgufHeader, alignment_key_decides_offsets) {
  GgufHeader header;
  header.set("general.alignment", uint32_t{256}).add_tensor("a", {3}, k_f32).add_tensor("b", {1}, k_f32);
  EXPECT_EQ(header.tensors()[1].offset, 256u);
  EXPECT_EQ(header.encode().size() % 256, 0u);
  EXPECT_EQ(header.file_bytes(), header.encode().size() + 512);
  const TestFolder folder;
  ASSERT_TRUE(write_sample(folder / "a.gguf", header, 100).ok());
  EXPECT_TRUE(GgufFile::open(folder / "a.gguf").ok());
}

TEST(GgufHeader, later_value_replaces_the_earlier_one_in_its_position) {
  GgufHeader header;
  header.set("a", 1).set("b", 2).set("a", "text");
  EXPECT_TRUE(header.has("b"));
  EXPECT_FALSE(header.has("c"));
  const std::string bytes = header.encode();
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file.value().metadata().size(), 2u);
  EXPECT_EQ(file.value().metadata()[0].first, "a");
  EXPECT_EQ(file.value().get<std::string_view>("a").value(), "text");
}

TEST(GgufFileWriter, uncommitted_file_leaves_the_old_one_and_nothing_else) {
  const TestFolder folder;
  put(folder / "a.gguf", "old");
  {
    auto writer = GgufFileWriter::create(folder / "a.gguf", sample_header());
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer.value().write(bytes_of(12, 0)).ok());
    EXPECT_EQ(writer.value().current().name, "two");
    EXPECT_EQ(n_files(folder.path()), 2u);
  }
  EXPECT_EQ(n_files(folder.path()), 1u);
  EXPECT_EQ(contents(folder / "a.gguf"), "old");
}

TEST(GgufFileWriter, folder_that_does_not_exist_is_an_error) {
  const auto writer = GgufFileWriter::create("no/such/folder/a.gguf", sample_header());
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.error().message.find("no/such/folder/a.gguf"), std::string::npos) << writer.error().message;
}

TEST(GgufFileWriterDeathTest, incomplete_file_cannot_be_committed) {
  const TestFolder folder;
  auto writer = GgufFileWriter::create(folder / "a.gguf", sample_header());
  ASSERT_TRUE(writer.ok());
  EXPECT_DEATH(static_cast<void>(writer.value().commit()), "is_complete");
  EXPECT_DEATH(static_cast<void>(writer.value().write(bytes_of(13, 0))), "n_bytes");  // 'one' has 12
}

}  // namespace
}  // namespace zinc
