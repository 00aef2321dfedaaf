#include "tensor/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/iq_grids.h"

namespace zinc {
namespace {

const std::string kOwnVectors = ZINC_SOURCE_DIR "/tests/data/quants";
const std::string kOracleVectors = ZINC_SOURCE_DIR "/../shared/oracle/quants";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Dequantizes TYPE.bin and compares every bit with TYPE.f32.
void check_type(const std::string& folder, const std::string& type, const json::object& facts) {
  SCOPED_TRACE(type);
  const Format* format = find_format(lower(type));
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format, find_format(static_cast<uint32_t>(facts.at("ggml_type").as_int64())));
  EXPECT_EQ(format->block_elems, facts.at("block_values").as_int64());
  EXPECT_EQ(format->block_bytes, facts.at("block_bytes").as_int64());
  const std::string blocks = read_file(folder + "/" + type + ".bin");
  const std::string floats = read_file(folder + "/" + type + ".f32");
  ASSERT_EQ(blocks.size(), static_cast<size_t>(facts.at("blocks").as_int64()) * format->block_bytes);
  std::vector<float> dequantized(floats.size() / sizeof(float));
  format->dequantize(std::as_bytes(std::span(blocks)), dequantized);
  for (size_t i = 0; i < dequantized.size(); ++i) {
    float expected;
    std::memcpy(&expected, floats.data() + i * sizeof(float), sizeof(float));
    ASSERT_EQ(std::bit_cast<uint32_t>(dequantized[i]), std::bit_cast<uint32_t>(expected))
        << "element " << i << ": " << dequantized[i] << ", expected " << expected;
  }
}

int check_folder(const std::string& folder) {
  const auto index = parse_json(read_file(folder + "/index.json"));
  EXPECT_TRUE(index.ok());
  int n_types = 0;
  for (const auto& [type, facts] : index.value().as_object()) {
    check_type(folder, std::string(type), facts.as_object());
    ++n_types;
  }
  return n_types;
}

TEST(Format, own_vectors_dequantize_bit_for_bit) { EXPECT_EQ(check_folder(kOwnVectors), 27); }

TEST(Format, oracle_vectors_dequantize_bit_for_bit) {
  if (!std::filesystem::exists(kOracleVectors)) GTEST_SKIP() << kOracleVectors << " is absent";
  EXPECT_EQ(check_folder(kOracleVectors), 27);
}

TEST(Format, names_and_type_numbers_are_unique_and_found) {
  std::set<std::string_view> names;
  std::set<uint32_t> ids;
  for (const Format* const* f = kFormats; *f; ++f) {
    EXPECT_TRUE(names.insert((*f)->name).second) << (*f)->name;
    EXPECT_EQ(find_format((*f)->name), *f);
    EXPECT_NE((*f)->dequantize, nullptr);
    if ((*f)->gguf_id == kNoGgufType) continue;
    EXPECT_TRUE(ids.insert((*f)->gguf_id).second) << (*f)->name;
    EXPECT_EQ(find_format((*f)->gguf_id), *f);
  }
  EXPECT_EQ(names.size(), 34u);
  EXPECT_EQ(ids.size(), 33u);
  EXPECT_EQ(find_format("q4_2"), nullptr);
  for (const uint32_t removed : {4u, 5u, 9u, 15u, 31u, 32u, 33u, 36u, 43u, 0xFFFFFFFFu}) {
    EXPECT_EQ(find_format(removed), nullptr) << removed;
  }
}

template <class T>
std::vector<float> dequantize_all(std::string_view format, const std::vector<T>& values) {
  std::vector<float> out(values.size());
  find_format(format)->dequantize(std::as_bytes(std::span(values)), out);
  return out;
}

TEST(Format, unquantized_types_dequantize_to_floats) {
  EXPECT_EQ(dequantize_all<int8_t>("i8", {-128, 0, 127}), (std::vector<float>{-128, 0, 127}));
  EXPECT_EQ(dequantize_all<int16_t>("i16", {-32768, 7}), (std::vector<float>{-32768, 7}));
  EXPECT_EQ(dequantize_all<int32_t>("i32", {INT32_MIN, 16777217}), (std::vector<float>{-2147483648.0f, 16777216.0f}));
  EXPECT_EQ(dequantize_all<int64_t>("i64", {INT64_MIN, 3}), (std::vector<float>{-0x1p63f, 3}));
  EXPECT_EQ(dequantize_all<double>("f64", {0.1, -2.5}), (std::vector<float>{0.1f, -2.5f}));
  EXPECT_EQ(dequantize_all<float>("f32", {0.1f, -2.5f}), (std::vector<float>{0.1f, -2.5f}));
}

TEST(Format, dequantize_reads_unaligned_blocks) {
  const std::string blocks = read_file(kOwnVectors + "/IQ2_XS.bin");
  const Format* format = find_format("iq2_xs");
  std::vector<float> aligned(1024), shifted(1024);
  format->dequantize(std::as_bytes(std::span(blocks)), aligned);
  std::vector<char> moved(blocks.size() + 1);
  std::copy(blocks.begin(), blocks.end(), moved.begin() + 1);
  format->dequantize(std::as_bytes(std::span(moved)).subspan(1), shifted);
  EXPECT_EQ(aligned, shifted);
}

std::vector<float> dequantize_vectors(const Format& format, const std::string& blocks) {
  std::vector<float> out(blocks.size() / format.block_bytes * format.block_elems);
  format.dequantize(std::as_bytes(std::span(blocks)), out);
  return out;
}

TEST(Format, f16_and_bf16_round_trip) {
  for (const std::string type : {"F16", "BF16"}) {
    const Format& format = *find_format(lower(type));
    const std::string blocks = read_file(kOwnVectors + "/" + type + ".bin");
    std::string encoded(blocks.size(), '\0');
    format.quantize(dequantize_vectors(format, blocks), std::as_writable_bytes(std::span(encoded)));
    EXPECT_EQ(encoded, blocks) << type;
  }
}

TEST(Format, q8_0_error_is_within_half_a_step) {
  const Format& format = *find_format("q8_0");
  const std::string blocks = read_file(kOwnVectors + "/Q8_0.bin");
  const std::vector<float> in = dequantize_vectors(format, blocks);
  std::string encoded(blocks.size(), '\0');
  format.quantize(in, std::as_writable_bytes(std::span(encoded)));
  const std::vector<float> out = dequantize_vectors(format, encoded);
  for (size_t i = 0; i < in.size(); ++i) {
    float largest = 0;
    for (size_t j = 0; j < 32; ++j) largest = std::max(largest, std::abs(in[i / 32 * 32 + j]));
    EXPECT_NEAR(out[i], in[i], largest / 254 + largest * 0x1p-11f) << i;  // half a step, and the scale's rounding
  }
}

TEST(Format, q8_0_handles_non_finite_values) {
  std::vector<float> in(32, 1.0f), out(32);
  in[0] = std::nanf(""), in[1] = 1e-42f;
  std::vector<std::byte> block(34);
  find_format("q8_0")->quantize(in, block);
  find_format("q8_0")->dequantize(block, out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NEAR(out[2], 1.0f, 1e-3f);
  in.assign(32, std::numeric_limits<float>::infinity());
  find_format("q8_0")->quantize(in, block);
  in.assign(32, 1e-42f);  // 1 / d overflows
  find_format("q8_0")->quantize(in, block);
  find_format("q8_0")->dequantize(block, out);
  EXPECT_EQ(out, std::vector<float>(32, 0.0f));
}

TEST(Format, q8_0_scales_by_the_largest_magnitude_and_rounds_half_away) {
  std::vector<float> in(32, 0.0f);
  in[0] = -127.0f, in[1] = 2.5f, in[2] = -2.5f, in[3] = 0.49f;
  std::vector<std::byte> block(34);
  find_format("q8_0")->quantize(in, block);
  const auto* q = reinterpret_cast<const int8_t*>(block.data() + 2);
  EXPECT_EQ(block[0], std::byte{0x00});  // f16 1.0
  EXPECT_EQ(block[1], std::byte{0x3C});
  EXPECT_EQ((std::vector<int>(q, q + 4)), (std::vector<int>{-127, 3, -3, 0}));
}

std::vector<float> through_q4_0(const std::vector<float>& in) {
  const Format& format = *find_format("q4_0");
  std::string encoded(row_bytes(format, in.size()), '\0');
  format.quantize(in, std::as_writable_bytes(std::span(encoded)));
  return dequantize_vectors(format, encoded);
}

TEST(Format, q4_0_makes_the_largest_magnitude_minus_8_and_rounds_to_the_nearest) {
  std::vector<float> in(64);
  for (size_t i = 0; i < 16; ++i) {
    in[i] = static_cast<float>(i) - 8;       // -8 to 7: a step of 1
    in[i + 16] = in[i] * 0.5f;               // halves are rounded up
    in[i + 32] = 4 - static_cast<float>(i);  // 4 to -11
  }
  const std::vector<float> out = through_q4_0(in);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], in[i]) << i;
    EXPECT_EQ(out[i + 16], std::floor(in[i + 16] + 0.5f)) << i;
    EXPECT_NEAR(out[i + 32], in[i + 32], 11.0f / 16 + 0.01f) << i;
  }
  EXPECT_NEAR(out[47], -11, 0.01f);
}

TEST(Format, q4_0_error_is_within_a_step_of_the_largest_magnitude) {
  const std::vector<float> in = dequantize_vectors(*find_format("q8_0"), read_file(kOwnVectors + "/Q8_0.bin")),
                           out = through_q4_0(in);
  for (size_t i = 0; i < in.size(); ++i) {
    float largest = 0;
    for (size_t j = 0; j < 32; ++j) largest = std::max(largest, std::abs(in[i / 32 * 32 + j]));
    EXPECT_NEAR(out[i], in[i], largest * 0.126f) << i;  // 7/8 is the most on the other side of zero
  }
}

TEST(Format, q4_0_encodes_not_a_number_as_zero) {
  std::vector<float> in(32, 0.0f);
  in[3] = std::numeric_limits<float>::quiet_NaN();
  in[4] = -4;
  const std::vector<float> out = through_q4_0(in);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i == 4 ? -4.0f : 0.0f) << i;
}

TEST(Format, q8_0_block_of_zeros_quantizes_to_zeros) {
  const std::vector<float> in(64, 0.0f);
  std::vector<std::byte> blocks(68, std::byte{0xFF});
  find_format("q8_0")->quantize(in, blocks);
  EXPECT_EQ(blocks, std::vector<std::byte>(68));
}

template <size_t kPoints, size_t kDims>
uint64_t checksum(const Grid<kPoints, kDims>& grid) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325u;
  for (const auto& point : grid) {
    for (const int8_t value : point) hash = (hash ^ static_cast<uint8_t>(value)) * 0x100000001B3u;
  }
  return hash;
}

// The test vectors do not cover every grid point.
TEST(Format, every_grid_point_matches_its_checksum) {
  EXPECT_EQ(checksum(kIq2XxsGrid), 0xBB4EE025B5AC6E8Eu);
  EXPECT_EQ(checksum(kIq2XsGrid), 0xC9B1EE61E79909BDu);
  EXPECT_EQ(checksum(kIq2SGrid), 0x123EDD38A3B62B90u);
  EXPECT_EQ(checksum(kIq3XxsGrid), 0xDFA5DC83D6A155D5u);
  EXPECT_EQ(checksum(kIq3SGrid), 0xFA37020C25B44829u);
  EXPECT_EQ(checksum(kIq1Grid), 0x6703ED863501AE2Eu);
}

}  // namespace
}  // namespace zinc
