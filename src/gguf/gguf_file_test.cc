#include "gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

Result<GgufFile> parse(const std::string& bytes) { return GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf"); }

// The message of the error, which must name the file; "" if there is none.
std::string error_of(const std::string& bytes) {
  const Result<GgufFile> file = parse(bytes);
  if (file.ok()) return "";
  EXPECT_TRUE(file.error().message.starts_with("m.gguf: ")) << file.error().message;
  return file.error().message;
}

void expect_error(const std::string& bytes, const std::vector<std::string>& words) {
  const std::string message = error_of(bytes);
  EXPECT_NE(message, "") << "accepted, expected '" << words.at(0) << "'";
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message << "\n  " << word;
}

void expect_error(const GgufWriter& writer, const std::vector<std::string>& words) {
  expect_error(writer.bytes(), words);
}

// A small file with metadata of every type and tensors in three formats.
GgufWriter sample_file() {
  GgufWriter w;
  w.add("general.architecture", "llama").add("a.u8", uint8_t{200}).add("a.i8", int8_t{-100});
  w.add("a.u16", uint16_t{60000}).add("a.i16", int16_t{-30000}).add("a.u32", uint32_t{4000000000});
  w.add("a.i32", int32_t{-2000000000}).add("a.f32", 0.5f).add("a.bool", true).add("a.u64", uint64_t{1} << 40);
  w.add("a.i64", -(int64_t{1} << 40)).add("a.f64", 0.1).add("a.empty", std::vector<std::string>{});
  w.add("a.ints", std::vector<int32_t>{3, -1, 2}).add("a.floats", std::vector<float>{0.25f, -8.0f});
  w.add("a.strings", std::vector<std::string>{"", "b", "cc"});
  w.add("a.nested", std::vector<std::vector<uint16_t>>{{1, 2}, {}, {3}});
  w.add_tensor("one", {2, 32}, *find_format("f32"), std::vector<float>(64, 1.5f));
  w.add_tensor("two", {3, 2, 32}, *find_format("q8_0"), std::vector<float>(192, -0.5f));
  w.add_tensor("three", {5}, *find_format("f16"), std::vector<float>{1, 2, 3, 4, 5});
  return w;
}

TEST(GgufFile, metadata_of_every_type_is_read) {
  const std::string bytes = sample_file().bytes();
  const auto opened = parse(bytes);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile& file = opened.value();
  EXPECT_EQ(file.metadata().size(), 17u);
  EXPECT_EQ(file.metadata()[1].first, "a.u8");
  EXPECT_EQ(file.get<std::string_view>("general.architecture").value(), "llama");
  EXPECT_EQ(file.get<int64_t>("a.u8").value(), 200);
  EXPECT_EQ(file.get<int64_t>("a.i8").value(), -100);
  EXPECT_EQ(file.get<int64_t>("a.u16").value(), 60000);
  EXPECT_EQ(file.get<int64_t>("a.i16").value(), -30000);
  EXPECT_EQ(file.get<int64_t>("a.u32").value(), 4000000000);
  EXPECT_EQ(file.get<int64_t>("a.i32").value(), -2000000000);
  EXPECT_EQ(file.get<int64_t>("a.u64").value(), int64_t{1} << 40);
  EXPECT_EQ(file.get<int64_t>("a.i64").value(), -(int64_t{1} << 40));
  EXPECT_EQ(file.get<double>("a.f32").value(), 0.5);
  EXPECT_EQ(file.get<double>("a.f64").value(), 0.1);
  EXPECT_EQ(file.get<double>("a.i8").value(), -100.0);
  EXPECT_TRUE(file.get<bool>("a.bool").value());
  EXPECT_EQ(file.get<std::vector<int64_t>>("a.ints").value(), (std::vector<int64_t>{3, -1, 2}));
  EXPECT_EQ(file.get<std::vector<double>>("a.floats").value(), (std::vector<double>{0.25, -8.0}));
  EXPECT_EQ(file.get<std::vector<std::string_view>>("a.strings").value(),
            (std::vector<std::string_view>{"", "b", "cc"}));
  EXPECT_TRUE(file.get<std::vector<std::string_view>>("a.empty").value().empty());
}

TEST(GgufFile, nested_arrays_are_read) {
  const std::string bytes = sample_file().bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok());
  const GgufValue& nested = *file.value().find("a.nested");
  EXPECT_EQ(nested.type_name(), "array of 3 array");
  std::vector<std::vector<int64_t>> found;
  std::get<GgufArray>(nested.data).for_each([&](const GgufValue& row) {
    found.emplace_back();
    for (const GgufValue& v : std::get<GgufArray>(row.data).first(9)) found.back().push_back(std::get<int64_t>(v.data));
    return true;
  });
  EXPECT_EQ(found, (std::vector<std::vector<int64_t>>{{1, 2}, {}, {3}}));
}

TEST(GgufFile, wrong_type_error_names_expected_and_found) {
  const std::string bytes = sample_file().add("a.huge", std::numeric_limits<uint64_t>::max()).bytes();
  const auto opened = parse(bytes);
  ASSERT_TRUE(opened.ok());
  const GgufFile& file = opened.value();
  EXPECT_EQ(file.get<int64_t>("a.f32").error().message,
            "m.gguf: metadata key 'a.f32' is of type f32; expected an integer below 2^63");
  EXPECT_EQ(file.get<int64_t>("a.huge").error().code, ErrorCode::invalid_input);
  EXPECT_EQ(file.get<std::vector<int64_t>>("a.strings").error().message,
            "m.gguf: metadata key 'a.strings' is of type array of 3 string; expected an array of integers below 2^63");
  EXPECT_EQ(file.get<bool>("absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(file.get<bool>("absent").error().message, "m.gguf: missing metadata key 'absent'; expected a bool");
  EXPECT_EQ(file.get_or<int64_t>("absent", 7), 7);
  EXPECT_EQ(file.get_or<int64_t>("a.f32", 7), 7);
  EXPECT_EQ(file.get_or<int64_t>("a.huge", 7), 7);
  EXPECT_EQ(file.get_or<int64_t>("a.u8", 7), 200);
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(GgufFile, bool_arrays_convert_to_bools_and_integers) {
  const std::string array =
      GgufWriter::number(uint32_t{7}) + GgufWriter::number(uint64_t{3}) + std::string("\1\0\2", 3);
  const std::string bytes = GgufWriter().add_raw("flags", 9, array).bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().get<std::vector<bool>>("flags").value(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(file.value().get<std::vector<int64_t>>("flags").value(), (std::vector<int64_t>{1, 0, 1}));
}

TEST(GgufFile, tensors_have_their_shape_outermost_first_and_their_bytes) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes = sample_file().set_version(version).bytes();
    const auto opened = parse(bytes);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const GgufFile& file = opened.value();
    ASSERT_EQ(file.tensors().size(), 3u);
    const GgufTensor& two = file.tensors()[1];
    EXPECT_EQ(two.name, "two");
    EXPECT_EQ(two.view.shape, (Shape{3, 2, 32}));
    EXPECT_EQ(two.view.format->name, "q8_0");
    EXPECT_EQ(two.view.bytes.size(), 6u * 34);
    EXPECT_EQ(two.offset % 32, 0u);
    EXPECT_EQ(reinterpret_cast<const char*>(two.view.bytes.data()), bytes.data() + two.offset);
    std::vector<float> decoded(192);
    two.view.format->dequantize(two.view.bytes, decoded);
    EXPECT_NEAR(decoded[191], -0.5f, 1e-3f);
    EXPECT_EQ(file.tensor("three").value().shape, (Shape{5}));
    EXPECT_EQ(file.find_tensor("two"), &two);
    EXPECT_EQ(file.find_tensor("four"), nullptr);
    EXPECT_EQ(file.tensor("four").error().message, "m.gguf: missing tensor 'four'");
  }
}

TEST(GgufFile, general_alignment_is_respected) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufWriter w;
    w.set_alignment(alignment);
    w.add_tensor("a", {3}, *find_format("f32"), std::vector<float>{1, 2, 3});
    w.add_tensor("b", {3}, *find_format("f32"), std::vector<float>{4, 5, 6});
    const std::string bytes = w.bytes();
    const auto file = parse(bytes);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file.value().find_tensor("b")->offset % alignment, 0u);
    EXPECT_EQ(std::to_integer<int>(file.value().find_tensor("b")->view.bytes[3]), 0x40);
  }
}

TEST(GgufFile, tensor_without_dimensions_is_one_element) {
  const std::string bytes = GgufWriter().add_record({"scalar", {}, 0, std::string(4, '\0')}).bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().tensors()[0].view.bytes.size(), 4u);
  expect_error(GgufWriter().add_record({"scalar", {}, 8, std::string(34, '\0')}), {"'scalar'", "q8_0", "32"});
}

TEST(GgufFile, files_without_tensors_or_metadata_are_read) {
  EXPECT_TRUE(parse(GgufWriter().bytes()).ok());
  EXPECT_TRUE(parse(GgufWriter().add("vocab", "only").bytes()).ok());
}

TEST(GgufFile, other_file_formats_are_recognized) {
  expect_error("", {"is empty"});
  expect_error("G", {"is not a GGUF file", "'G'"});
  expect_error("GGU\x01", {"is not a GGUF file", "'GGU\\u0001'"});
  expect_error("FUGG" + std::string(60, '\0'), {"big-endian"});
  expect_error("tjgg....", {"which GGUF replaced"});
  expect_error("version https://git-lfs.github.com/spec/v1\n", {"Git LFS pointer", "git lfs pull"});
  expect_error("<!DOCTYPE html>", {"HTML page"});
  expect_error(GgufWriter().set_version(0x03000000), {"big-endian"});
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    expect_error(GgufWriter().set_version(version), {fmt::format("GGUF version {} is", version), "2 or 3"});
  }
}

TEST(GgufFile, counts_beyond_the_file_are_errors) {
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  expect_error(sample_file().set_counts(3, huge), {"18446744073709551615 metadata keys"});
  expect_error(sample_file().set_counts(huge, 17), {"18446744073709551615 tensors"});
  expect_error(sample_file().set_counts(uint64_t{1} << 60, 17), {"tensors"});
  expect_error(GgufWriter().add("a", uint8_t{1}).set_counts(0, 2), {"2 metadata keys"});
}

TEST(GgufFile, malformed_metadata_is_an_error) {
  const std::string huge = GgufWriter::number(std::numeric_limits<uint64_t>::max());
  expect_error(GgufWriter().add("", uint32_t{1}), {"metadata key 0", "0 bytes"});
  expect_error(GgufWriter().add(std::string(65536, 'k'), uint8_t{1}), {"65536 bytes", "65535"});
  expect_error(GgufWriter().add("twice", 1).add("twice", 2), {"'twice' appears twice"});
  expect_error(GgufWriter().add_raw("bad", 13, "12345678"), {"'bad'", "unknown type 13"});
  expect_error(GgufWriter().add_raw("bad", 0xFFFFFFFFu, "12345678"), {"'bad'", "4294967295"});
  expect_error(GgufWriter().add_raw("text", 8, huge + "abc"), {"'text'", "18446744073709551615", "3"});
  expect_error("GGUF" + GgufWriter::number(3) + GgufWriter::number(uint64_t{0}) + GgufWriter::number(uint64_t{1}) +
                   huge + std::string(30, 'x'),
               {"metadata key 0", "18446744073709551615"});
}

std::string array_head(uint32_t type, uint64_t size) { return GgufWriter::number(type) + GgufWriter::number(size); }

TEST(GgufFile, malformed_arrays_are_errors) {
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  expect_error(GgufWriter().add_raw("a", 9, array_head(4, huge) + "1234"), {"'a'", "18446744073709551615 elements"});
  expect_error(GgufWriter().add_raw("a", 9, array_head(4, huge / 4 + 1) + "1234"), {"'a'", "elements"});  // wraps to 0
  expect_error(GgufWriter().add_raw("a", 9, array_head(4, 2) + "1234567"), {"'a'", "2 elements", "7 bytes"});
  expect_error(GgufWriter().add_raw("a", 9, array_head(8, 3) + GgufWriter::string("x") + "123456789"), {"'a'"});
  expect_error(GgufWriter().add_raw("a", 9, array_head(13, 1) + "1"), {"'a'", "unknown type 13"});
  expect_error(GgufWriter().add_raw("a", 9, array_head(99, 0)), {"'a'", "unknown type 99"});
}

TEST(GgufFile, huge_array_allocates_no_memory) {
  constexpr uint64_t kElements = uint64_t{1} << 38;
  const TestFolder folder;
  const std::filesystem::path path =
      put(folder / "a.gguf", GgufWriter().add_raw("a", 9, array_head(0, kElements)).bytes());
  std::error_code error;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + kElements, error);  // a hole
  if (error) GTEST_SKIP() << "no file may be that large here: " << error.message();
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_FALSE(file.value().get<std::vector<std::string_view>>("a").ok());
  const auto numbers = file.value().get<std::vector<int64_t>>("a");
  ASSERT_FALSE(numbers.ok());
  EXPECT_NE(numbers.error().message.find("array of 274877906944 u8"), std::string::npos) << numbers.error().message;
}

TEST(GgufFile, array_nesting_is_limited) {
  const auto nested = [](int depth) {
    std::string bytes;
    for (int i = 0; i < depth; ++i) bytes += array_head(9, 1);
    return GgufWriter().add_raw("deep", 9, bytes + array_head(0, 1) + "x").bytes();
  };
  EXPECT_EQ(error_of(nested(3)), "");
  expect_error(nested(8), {"'deep'", "more than 8 deep"});
  expect_error(nested(100000), {"'deep'", "more than 8 deep"});
}

TEST(GgufFile, invalid_alignments_are_errors) {
  for (const uint32_t alignment : {0u, 3u, 48u, 0xFFFFFFFFu}) {
    expect_error(GgufWriter().add("general.alignment", alignment),
                 {"general.alignment", fmt::format("is {};", alignment), "power of two"});
  }
  expect_error(GgufWriter().add("general.alignment", uint64_t{32}), {"general.alignment", "u64", "expected u32"});
  expect_error(GgufWriter().add("general.alignment", "32"), {"general.alignment", "string"});
  GgufWriter far;  // the data would begin at 2 GiB
  far.add("general.alignment", 0x80000000u).add_record({"t", {8}, 0, std::string(32, '\0')});
  expect_error(far, {"'t'", "2147483648"});
}

TEST(GgufFile, invalid_shapes_are_errors) {
  const std::string data(1024, '\0');
  expect_error(GgufWriter().add_record({"t", {1, 1, 1, 1, 1}, 0, data}), {"'t'", "5 dimensions", "at most 4"});
  expect_error(GgufWriter().add_record({"t", {8, 0}, 0, data}), {"'t'", "length 0"});
  expect_error(GgufWriter().add_record({"t", {uint64_t{1} << 63}, 0, data}), {"'t'", "63 bits"});
  // The product of the dimensions wraps to 0, 4 and a small number of bytes.
  expect_error(GgufWriter().add_record({"t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, data}), {"'t'", "63 bits"});
  expect_error(GgufWriter().add_record({"t", {(uint64_t{1} << 62) + 1, 4}, 0, data}), {"'t'", "63 bits"});
  expect_error(GgufWriter().add_record({"t", {uint64_t{1} << 61, 2}, 0, data}), {"'t'", "does not fit"});
  expect_error(GgufWriter().add_record({"t", {33}, 8, data}), {"'t' [33]", "q8_0", "multiple of 32"});
  expect_error(GgufWriter().add_record({"t", {16, 2}, 2, data}), {"'t' [2,16]", "q4_0"});
}

TEST(GgufFile, unknown_tensor_type_error_gives_the_number) {
  for (const uint32_t type : {4u, 9u, 15u, 31u, 43u, 0x80000000u, 0xFFFFFFFFu}) {
    const std::string bytes = GgufWriter().add_record({"t", {32}, type, std::string(128, '\0')}).bytes();
    const auto file = parse(bytes);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::unsupported);
    EXPECT_EQ(file.error().message, fmt::format("m.gguf: tensor 't' has type {}, which is not supported", type));
  }
}

TEST(GgufFile, tensors_outside_the_file_are_errors) {
  const std::string data(1024, '\0');
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  expect_error(GgufWriter().add_record({"t", {257}, 0, data}), {"'t'", "does not fit"});
  expect_error(GgufWriter().add_record({"t", {256}, 0, data, 32}), {"'t'", "does not fit"});
  expect_error(GgufWriter().add_record({"t", {256}, 0, data, 1}), {"'t'", "offset 1", "alignment 32"});
  expect_error(GgufWriter().add_record({"t", {256}, 0, data, huge - 31}), {"'t'", "does not fit"});  // end wraps
  expect_error(GgufWriter().add_record({"t", {256}, 0, data, huge - 1023}), {"'t'", "does not fit"});
  EXPECT_EQ(error_of(GgufWriter().add_record({"t", {256}, 0, data}).bytes()), "");
}

TEST(GgufFile, tensor_names_are_unique_and_not_empty) {
  const std::string data(32, '\0');
  expect_error(GgufWriter().add_record({"", {8}, 0, data}), {"tensor 0", "0 bytes"});
  expect_error(GgufWriter().add_record({"t", {8}, 0, data}).add_record({"t", {8}, 0, data}), {"'t' appears twice"});
}

TEST(GgufFile, overlapping_tensors_are_errors) {
  GgufWriter w;
  w.add_record({"a", {16}, 0, std::string(64, '\0')}).add_record({"b", {8}, 0, std::string(32, '\0'), 32});
  expect_error(w, {"'a' and 'b' overlap"});
}

TEST(GgufFile, names_in_messages_are_sanitized) {
  const std::string message = error_of(GgufWriter().add("evil\x1b[2J\n\xff", 1).add("evil\x1b[2J\n\xff", 1).bytes());
  EXPECT_EQ(message, "m.gguf: metadata key 'evil\\u001b[2J\\n\\xff' appears twice");
  const std::string long_name(5000, 'n');
  EXPECT_LT(error_of(GgufWriter().add(long_name, 1).add(long_name, 1).bytes()).size(), 300u);
}

TEST(GgufFile, every_truncation_is_an_error) {
  const std::string bytes = sample_file().bytes();
  const size_t last_data = bytes.size() - 32 + 10;  // tensor 'three' has 10 bytes; padding after it may be absent
  for (size_t n = 0; n < last_data; ++n) {
    const std::string cut = bytes.substr(0, n);  // its own buffer, so that ASan sees a read past its end
    ASSERT_NE(error_of(cut), "") << "cut to " << n << " of " << bytes.size();
  }
  EXPECT_EQ(error_of(bytes.substr(0, last_data)), "");
}

// Reads all data of a GgufFile; returns a value that depends on it.
size_t touch(const GgufFile& file) {
  size_t sum = 0;
  const auto touch_value = [&sum](const auto& self, const GgufValue& value) -> void {
    if (const auto* text = std::get_if<std::string_view>(&value.data)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
    if (const auto* array = std::get_if<GgufArray>(&value.data)) {
      array->for_each([&](const GgufValue& element) { return self(self, element), true; });
    }
  };
  for (const auto& [key, value] : file.metadata()) touch_value(touch_value, value);
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<float> row(static_cast<size_t>(tensor.view.shape.elems()));
    tensor.view.format->dequantize(tensor.view.bytes, row);
    sum += row.size();
  }
  return sum;
}

TEST(GgufFile, mutated_files_load_or_fail_cleanly) {
  const std::string original = sample_file().bytes();
  std::mt19937 random(20240817);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::vector<char> kCornerBytes = {'\0', '\1', '\x7f', '\x80', '\xff'};
  int n_rejected = 0;
  constexpr int kMutations = 20000;
  for (int i = 0; i < kMutations; ++i) {
    std::string bytes = original;
    for (size_t n = 1 + below(4); n > 0; --n) {
      const size_t at = below(bytes.size());
      if (random() % 2 == 0) {
        bytes[at] = static_cast<char>(random());
      } else {
        const size_t n_filled = std::min(bytes.size() - at, size_t{1} << below(4));
        std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), n_filled, kCornerBytes[below(kCornerBytes.size())]);
      }
    }
    const auto file = parse(bytes);
    if (file.ok()) {
      touch(file.value());
    } else {
      ++n_rejected;
      ASSERT_FALSE(file.error().message.empty());
    }
  }
  EXPECT_GT(n_rejected, kMutations / 10);
  EXPECT_LT(n_rejected, kMutations);
}

TEST(GgufFile, errors_name_missing_and_non_regular_files) {
  const auto absent = GgufFile::open("no/such/file.gguf");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::not_found);
  EXPECT_NE(absent.error().message.find("no/such/file.gguf"), std::string::npos);
  const TestFolder folder;
  const auto directory = GgufFile::open(folder.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find("not a regular file"), std::string::npos);
}

TEST(GgufFile, opened_file_can_be_moved) {
  const TestFolder folder;
  sample_file().write(folder / "a.gguf");
  auto opened = GgufFile::open(folder / "a.gguf");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile moved = std::move(opened.value());
  EXPECT_EQ(moved.get<std::string_view>("general.architecture").value(), "llama");
  EXPECT_EQ(moved.tensor("one").value().bytes.size(), 256u);
  EXPECT_EQ(moved.name(), (folder / "a.gguf").string());
  EXPECT_EQ(moved.file_bytes(), std::filesystem::file_size(folder / "a.gguf"));
}

TEST(GgufSplit, tensors_of_all_shards_are_found) {
  const TestFolder folder;
  const auto first = sample_file().write_split(folder / "model", 3);
  const auto opened = GgufFile::open(first);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile& file = opened.value();
  EXPECT_EQ(file.shard_names().size(), 3u);
  ASSERT_EQ(file.tensors().size(), 3u);
  const std::string whole_bytes = sample_file().bytes();
  const auto whole = parse(whole_bytes);
  for (int i = 0; i < 3; ++i) {
    const GgufTensor& tensor = file.tensors()[static_cast<size_t>(i)];
    const GgufTensor& expected = whole.value().tensors()[static_cast<size_t>(i)];
    EXPECT_EQ(tensor.shard, i);
    EXPECT_EQ(tensor.name, expected.name);
    EXPECT_EQ(tensor.view.shape, expected.view.shape);
    EXPECT_TRUE(std::equal(tensor.view.bytes.begin(), tensor.view.bytes.end(), expected.view.bytes.begin(),
                           expected.view.bytes.end()));
  }
  EXPECT_EQ(file.get<int64_t>("a.u8").value(), 200);
  EXPECT_EQ(file.tensor("three").value().shape, (Shape{5}));
}

std::string split_error(const std::filesystem::path& path) {
  const auto opened = GgufFile::open(path);
  return opened.ok() ? "" : opened.error().message;
}

TEST(GgufSplit, error_names_the_missing_shard) {
  const TestFolder folder;
  const auto first = sample_file().write_split(folder / "model", 3);
  std::filesystem::remove(GgufWriter::shard_path(folder / "model", 1, 3));
  const std::string message = split_error(first);
  EXPECT_NE(message.find("shard 2"), std::string::npos) << message;
  EXPECT_NE(message.find("model-00002-of-00003.gguf"), std::string::npos) << message;
}

TEST(GgufSplit, later_shard_error_names_the_first_shard) {
  const TestFolder folder;
  const auto first = sample_file().write_split(folder / "model", 3);
  const std::string message = split_error(GgufWriter::shard_path(folder / "model", 1, 3));
  EXPECT_NE(message.find("is shard 2 of 3; pass the first one, " + first.string()), std::string::npos) << message;
}

TEST(GgufSplit, renamed_shard_is_an_error) {
  const TestFolder folder;
  const auto first = sample_file().write_split(folder / "model", 2);
  std::filesystem::rename(first, folder / "other.gguf");
  const std::string message = split_error(folder / "other.gguf");
  EXPECT_NE(message.find("-00001-of-00002.gguf"), std::string::npos) << message;
}

TEST(GgufSplit, mismatched_shards_are_errors) {
  const TestFolder folder;
  const auto first = sample_file().write_split(folder / "model", 3);
  const auto path = [&](int i) { return GgufWriter::shard_path(folder / "model", i, 3); };
  std::filesystem::copy_file(path(2), path(1), std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(split_error(first).find("expected split.no 1 and split.count 3, found 2 and 3"), std::string::npos)
      << split_error(first);
  GgufWriter().add("split.no", uint16_t{1}).add("split.count", uint16_t{3}).write(path(1));
  EXPECT_NE(split_error(first).find("split.tensors.count is 3, but the 3 shards hold 2 tensors"), std::string::npos)
      << split_error(first);
  GgufWriter twice;
  twice.add("split.no", uint16_t{1}).add("split.count", uint16_t{3});
  twice.add_tensor("one", {2}, *find_format("f32"), std::vector<float>{1, 2}).write(path(1));
  EXPECT_NE(split_error(first).find("tensor 'one' is also in an earlier shard"), std::string::npos)
      << split_error(first);
  GgufWriter().write(path(1));
  EXPECT_NE(split_error(first).find("found -1 and -1"), std::string::npos) << split_error(first);
}

TEST(GgufSplit, invalid_shard_numbers_are_errors) {
  const TestFolder folder;
  const auto path = folder / "m-00001-of-00002.gguf";
  GgufWriter().add("split.no", int32_t{-1}).add("split.count", int32_t{2}).write(path);
  EXPECT_NE(split_error(path).find("split.no is -1"), std::string::npos);
  GgufWriter().add("split.no", uint16_t{0}).add("split.count", int64_t{1} << 40).write(path);
  EXPECT_NE(split_error(path).find("split.count is 1099511627776"), std::string::npos);
  GgufWriter().add("split.no", uint16_t{0}).add("split.count", int32_t{-2}).write(path);
  EXPECT_NE(split_error(path).find("split.count is -2"), std::string::npos);
  GgufWriter().add("split.count", "two").write(path);
  EXPECT_NE(split_error(path).find("'split.count' is of type string"), std::string::npos);
}

TEST(GgufFile, vocabulary_of_256k_strings_opens_fast) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256 * 1024; ++i) tokens.push_back(fmt::format("token{}", i));
  const std::string bytes = GgufWriter().add("tokens", tokens).bytes();
  const std::clock_t begin = std::clock();  // processor time, independent of machine load
  const auto file = parse(bytes);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(file.ok());
  EXPECT_LT(seconds, 0.5);  // about a millisecond; the limit allows for sanitizers
  const auto read = file.value().get<std::vector<std::string_view>>("tokens");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().size(), tokens.size());
  EXPECT_EQ(read.value().back(), "token262143");
}

TEST(GgufFile, oracle_models_open_and_dequantize) {
  const std::filesystem::path folder = ZINC_SOURCE_DIR "/../shared/oracle/models";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  int n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::open(entry.path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_GT(touch(file.value()), 0u);
    EXPECT_TRUE(file.value().get<std::vector<std::string_view>>("tokenizer.ggml.tokens").ok());
    ++n_files;
  }
  EXPECT_GT(n_files, 50);
}

}  // namespace
}  // namespace zinc
