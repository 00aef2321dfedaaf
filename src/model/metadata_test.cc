#include "model/metadata.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/contains_all.h"
#include "tests/support/gguf_writer.h"

namespace zinc {
namespace {

// A file with metadata only, read as architecture "toy".
class MetadataTest : public testing::Test {
 public:
  template <class T>
  MetadataTest& with(std::string_view key, const T& value) {
    writer_.add(key, value);
    return *this;
  }
  Metadata& metadata() {
    bytes_ = writer_.bytes();
    file_ =
        std::make_unique<GgufFile>(std::move(GgufFile::parse(std::as_bytes(std::span(bytes_)), "toy.gguf").value()));
    metadata_ = std::make_unique<Metadata>(*file_, "toy");
    return *metadata_;
  }
  std::string error() const { return metadata_->status().ok() ? "" : metadata_->status().error().message; }

  GgufWriter writer_;
  std::string bytes_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Metadata> metadata_;
};

TEST_F(MetadataTest, keys_are_those_of_the_architecture) {
  Metadata& m = with("toy.width", uint32_t{7}).with("other.height", uint32_t{8}).metadata();
  EXPECT_TRUE(m.has("width"));
  EXPECT_FALSE(m.has("height"));
  EXPECT_EQ(m.count("width"), 7);
  EXPECT_EQ(error(), "");
}

TEST_F(MetadataTest, a_missing_count_is_named_with_the_file) {
  EXPECT_EQ(metadata().count("width"), 1);  // a placeholder that cannot divide by zero
  EXPECT_TRUE(contains_all(error(), {"toy.gguf", "toy.width"}));
}

TEST_F(MetadataTest, a_count_of_another_type_is_named_with_that_type) {
  with("toy.width", "seven").metadata().count("width");
  EXPECT_TRUE(contains_all(error(), {"toy.width", "string"}));
}

TEST_F(MetadataTest, counts_out_of_range_are_refused_with_the_range) {
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
    writer_ = GgufWriter();
    EXPECT_EQ(with("toy.width", bad).metadata().count("width"), 1) << bad;
    EXPECT_TRUE(contains_all(error(), {"toy.width", std::to_string(bad), "2147483647"}));
  }
}

TEST_F(MetadataTest, a_count_beyond_64_signed_bits_is_rejected) {
  with("toy.width", std::numeric_limits<uint64_t>::max()).metadata().count("width");
  EXPECT_TRUE(contains_all(error(), {"toy.width"}));
}

TEST_F(MetadataTest, an_optional_count_may_be_absent_or_zero_but_not_wrong) {
  Metadata& m = with("toy.zero", uint32_t{0}).with("toy.bad", "x").metadata();
  EXPECT_EQ(m.count_or("absent", 9), 9);
  EXPECT_EQ(m.count_or("zero", 9), 0);
  EXPECT_EQ(error(), "");
  m.count_or("bad", 9);
  EXPECT_TRUE(contains_all(error(), {"toy.bad"}));
}

TEST_F(MetadataTest, a_negative_optional_count_is_rejected) {
  with("toy.width", int32_t{-3}).metadata().count_or("width", 9);
  EXPECT_TRUE(contains_all(error(), {"toy.width", "-3"}));
}

TEST_F(MetadataTest, a_real_number_may_be_given_as_an_integer) {
  Metadata& m = with("toy.base", uint32_t{10000}).with("toy.eps", 1e-5f).metadata();
  EXPECT_EQ(m.real("base"), 10000.0f);
  EXPECT_EQ(m.real("eps"), 1e-5f);
  EXPECT_EQ(m.real_or("absent", 0.5f), 0.5f);
  EXPECT_EQ(error(), "");
}

TEST_F(MetadataTest, a_missing_real_is_named) {
  metadata().real("eps");
  EXPECT_TRUE(contains_all(error(), {"toy.gguf", "toy.eps"}));
}

TEST_F(MetadataTest, nan_and_infinite_reals_are_rejected) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    writer_ = GgufWriter();
    EXPECT_TRUE(std::isfinite(with("toy.eps", bad).metadata().real_or("eps", 1)));
    EXPECT_TRUE(contains_all(error(), {"toy.eps", "finite"}));
  }
}

TEST_F(MetadataTest, a_real_too_large_for_a_float_is_rejected) {
  EXPECT_TRUE(std::isfinite(with("toy.base", 1e300).metadata().real("base")));
  EXPECT_TRUE(contains_all(error(), {"toy.base", "finite"}));
}

TEST_F(MetadataTest, text_may_be_absent) {
  Metadata& m = with("toy.kind", "yarn").metadata();
  EXPECT_EQ(m.text_or("kind", "none"), "yarn");
  EXPECT_EQ(m.text_or("absent", "none"), "none");
}

TEST_F(MetadataTest, text_of_another_type_is_rejected) {
  with("toy.kind", uint32_t{3}).metadata().text_or("kind", "none");
  EXPECT_TRUE(contains_all(error(), {"toy.kind"}));
}

TEST_F(MetadataTest, a_single_number_stands_for_every_layer) {
  EXPECT_EQ(with("toy.heads", uint32_t{4}).metadata().per_layer("heads", 3), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(error(), "");
}

TEST_F(MetadataTest, a_list_gives_each_layer_its_own_and_may_be_longer) {
  Metadata& m = with("toy.heads", std::vector<int32_t>{4, 0, 8, 9}).metadata();
  EXPECT_EQ(m.per_layer("heads", 3), (std::vector<int64_t>{4, 0, 8}));
  EXPECT_EQ(error(), "");
}

TEST_F(MetadataTest, a_list_of_booleans_is_zeros_and_ones) {
  Metadata& m = with("toy.sliding", std::vector<bool>{true, false}).metadata();
  EXPECT_EQ(m.per_layer("sliding", 2), (std::vector<int64_t>{1, 0}));
}

TEST_F(MetadataTest, a_list_shorter_than_the_layers_is_rejected) {
  EXPECT_EQ(with("toy.heads", std::vector<int32_t>{4, 4}).metadata().per_layer("heads", 3).size(), 3u);
  EXPECT_TRUE(contains_all(error(), {"toy.heads", "2", "3 layers"}));
}

TEST_F(MetadataTest, a_list_with_one_number_out_of_range_is_rejected) {
  EXPECT_EQ(with("toy.heads", std::vector<int32_t>{4, -4, 4}).metadata().per_layer("heads", 3).size(), 3u);
  EXPECT_TRUE(contains_all(error(), {"toy.heads", "-4"}));
}

TEST_F(MetadataTest, a_missing_list_is_named_unless_there_is_a_fallback) {
  Metadata& m = metadata();
  EXPECT_EQ(m.per_layer_or("heads", 2, 5), (std::vector<int64_t>{5, 5}));
  EXPECT_EQ(error(), "");
  EXPECT_EQ(m.per_layer("heads", 2).size(), 2u);
  EXPECT_TRUE(contains_all(error(), {"toy.heads"}));
}

TEST_F(MetadataTest, the_first_error_is_kept) {
  Metadata& m = metadata();
  m.count("first");
  m.count("second");
  EXPECT_TRUE(contains_all(error(), {"toy.first"}));
}

}  // namespace
}  // namespace zinc
