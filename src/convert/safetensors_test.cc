#include "convert/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "tests/support/contains_all.h"

namespace zinc {
namespace {

std::string file_of(const std::string& header, size_t n_data) {
  std::string out(sizeof(uint64_t), '\0');
  const uint64_t n = header.size();
  std::memcpy(out.data(), &n, sizeof(n));
  return out + header + std::string(n_data, '\x3c');
}

Result<std::vector<SafetensorsTensor>> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "m.safetensors");
}

std::string error_of(const std::string& bytes) {
  const auto tensors = parse(bytes);
  if (tensors.ok()) return "";
  EXPECT_TRUE(tensors.error().message.starts_with("m.safetensors: ")) << tensors.error().message;
  return tensors.error().message;
}

void expect_error(const std::string& header, size_t n_data, std::initializer_list<std::string_view> words) {
  const std::string message = error_of(file_of(header, n_data));
  EXPECT_TRUE(contains_all(message, words)) << message;
}

constexpr const char* kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},)"
    R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";

TEST(Safetensors, tensors_are_read_in_the_order_of_their_data) {
  const std::string bytes = file_of(kTwoTensors, 28);
  const auto tensors = parse(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors.value().size(), 2u);
  EXPECT_EQ(tensors.value()[0].name, "a");
  EXPECT_EQ(tensors.value()[1].name, "b");
  EXPECT_EQ(tensors.value()[1].type->name, "BF16");
  EXPECT_EQ(tensors.value()[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors.value()[1].bytes.size(), 12u);
  EXPECT_EQ(reinterpret_cast<const char*>(tensors.value()[1].bytes.data()), bytes.data() + bytes.size() - 12);
}

TEST(Safetensors, scalars_and_empty_tensors_are_allowed) {
  const std::string header =
      R"({"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[2,2]}})";
  EXPECT_EQ(error_of(file_of(header, 2)), "");
}

TEST(Safetensors, invalid_header_sizes_are_errors) {
  EXPECT_TRUE(contains_all(error_of("1234567"), {"7 bytes", "too few"}));
  std::string huge = file_of(kTwoTensors, 28);
  huge[7] = '\x7f';
  EXPECT_TRUE(contains_all(error_of(huge), {"at most 100000000"}));
  std::string beyond = file_of(kTwoTensors, 28);
  beyond[1] = '\x10';
  EXPECT_TRUE(contains_all(error_of(beyond), {"cut short"}));
  expect_error("[]", 0, {"does not begin with '{'"});
  expect_error("{", 0, {"not valid"});
}

TEST(Safetensors, overlaps_and_holes_are_errors) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(error_of(file_of(two("[0,4]", "[4,8]"), 8)), "");
  expect_error(two("[0,4]", "[3,7]"), 7, {"'b'", "inside of another tensor"});
  expect_error(two("[0,4]", "[0,4]"), 4, {"inside of another tensor"});
  expect_error(two("[0,4]", "[5,9]"), 9, {"'b'", "expected 4", "hole"});
  expect_error(two("[1,5]", "[5,9]"), 9, {"'a'", "hole"});
  expect_error(two("[0,4]", "[4,8]"), 9, {"9 bytes of data", "end at byte 8"});
  expect_error(two("[0,4]", "[4,8]"), 7, {"'b'", "ends at byte 8", "cut short"});
}

TEST(Safetensors, sizes_that_do_not_fit_their_type_are_errors) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  expect_error(one("[3]", "[0,8]"), 8, {"'t' [3] of F32", "12 bytes", "span 8"});
  expect_error(one("[4611686018427387904]", "[0,0]"), 0, {"63 bits"});  // times 4 wraps to 0
  expect_error(one("[4294967296,4294967296]", "[0,0]"), 0, {"63 bits"});
  expect_error(one("[-1]", "[0,0]"), 0, {"not a length"});
  expect_error(one("[1.0]", "[0,4]"), 4, {"not a length"});
  expect_error(one("[18446744073709551615]", "[0,4]"), 4, {"not a length"});
  expect_error(one("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, {"9 dimensions"});
  expect_error(one("[1]", "[4,0]"), 4, {"invalid data_offsets"});
  expect_error(one("[1]", "[0]"), 4, {"invalid data_offsets"});
  expect_error(one("[1]", "[-4,0]"), 4, {"invalid data_offsets"});
}

TEST(Safetensors, names_and_types_are_checked) {
  const std::string t = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_error("{" + t + "," + t + "}", 1, {"'t' twice"});
  expect_error(R"({"t":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1, {"'dtype' twice"});
  expect_error(R"({"t":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1, {"'t'", "'F4'", "BF16"});
  expect_error(R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1, {"'t' needs a dtype"});
  expect_error(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, {"needs"});
  expect_error(R"({"t":3})", 0, {"'t' needs a dtype"});
}

TEST(Safetensors, every_truncation_is_an_error) {
  const std::string bytes = file_of(kTwoTensors, 28);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_NE(error_of(bytes.substr(0, n)), "") << n;
}

TEST(Safetensors, mutated_files_load_or_fail_cleanly) {
  const std::string original = file_of(kTwoTensors, 28);
  std::mt19937 random(7);
  int n_rejected = 0;
  constexpr int kMutations = 5000;
  for (int i = 0; i < kMutations; ++i) {
    std::string bytes = original;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto tensors = parse(bytes);
    n_rejected += !tensors.ok();
  }
  EXPECT_GT(n_rejected, kMutations / 2);
}

TEST(ElementType, small_floats_are_decoded) {
  const auto value = [](const char* type, uint32_t bits) {
    float out = 0;
    const ElementType& element = *find_element_type(type);
    element.to_float(std::as_bytes(std::span(&bits, 1)).first(element.n_bytes), std::span(&out, 1));
    return out;
  };
  EXPECT_EQ(value("F32", 0x40490fdb), 3.14159274f);
  EXPECT_EQ(value("F16", 0x3c00), 1.0f);
  EXPECT_EQ(value("BF16", 0xc000), -2.0f);
  EXPECT_EQ(value("F8_E4M3", 0x7e), 448.0f);
  EXPECT_EQ(value("F8_E5M2", 0x3d), 1.25f);
  EXPECT_EQ(value("F8_E8M0", 130), 8.0f);
  EXPECT_EQ(find_element_type("U8")->to_float, nullptr);
}

}  // namespace
}  // namespace zinc
