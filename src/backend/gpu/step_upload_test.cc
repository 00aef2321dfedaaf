#include "backend/gpu/step_upload.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "backend/gpu/step_class.h"
#include "tests/support/host_device.h"

namespace zinc::gpu {
namespace {

constexpr std::array<KvFormat, 1> kFormats = {{{"f16", 64}}};

TEST(StepUpload, has_only_the_page_table_columns_that_the_step_reads_or_writes) {
  HostDevice device;
  std::vector<LayerCache> layers(2);
  for (LayerCache& layer : layers) layer.attention = {.kv_heads = 1, .k_dim = 32, .v_dim = 32};
  layers[1].attention.window = 40;
  const CacheSizes sizes{.n_pages = {20, 20}, .n_slots = 4, .kv_format = find_format("f16")};
  const auto cache =
      std::move(Cache::allocate(layers, sizes, device, {.backend = "test", .kv_formats = kFormats}).value());
  const Bucket bucket{.max_tokens = 8, .max_seqs = 3, .max_outputs = 4};
  const UploadLayout layout(bucket, *cache, {.has_logit_rows = true});

  // Sequence 0 is at position 200 with three tokens, sequence 1 at position 31 with one.
  const std::vector<TokenId> tokens = {7, 8, 9, 5};
  const std::vector<int32_t> positions = {200, 201, 202, 31}, seq_begin = {0, 3, 4}, slots = {2, 0}, outputs = {2, 3};
  const double uniform = std::nextafter(0.5, 1.0);
  const std::vector<DeviceSampling> sampling = {
      {}, {.temperature = 0.5f, .top_k = 40, .top_p = 0.9f, .min_p = 0.25f, .uniform = uniform}};
  std::vector<PageId> pages(2 * 10);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<PageId>(100 + i);
  const std::vector<PageTable> tables(2, PageTable{pages, 10});
  std::vector<int> upload(layout.n_ints, -7);
  const size_t n_ints = fill_upload({.tokens = tokens,
                                     .positions = positions,
                                     .seq_begin = seq_begin,
                                     .slots = slots,
                                     .page_tables = tables,
                                     .output_rows = outputs,
                                     .sampling = sampling,
                                     .logit_rows = {},
                                     .hidden = {}},
                                    layout, *cache, bucket.max_seqs, upload.data());
  EXPECT_EQ(upload[kTokens], 4);
  EXPECT_EQ(upload[kSeqs], 2);
  EXPECT_EQ(upload[kOutputs], 2);
  EXPECT_EQ(upload[layout.seq_of_token + 2], 0);
  EXPECT_EQ(upload[layout.seq_of_token + 3], 1);
  EXPECT_EQ(std::vector(upload.begin() + static_cast<ptrdiff_t>(layout.row_slots),
                        upload.begin() + static_cast<ptrdiff_t>(layout.row_slots + tokens.size())),
            (std::vector{kNoSlot, kNoSlot, 2, 0}))
      << "without row_slots, the state after a sequence's last row";
  EXPECT_EQ(upload[layout.output_rows + 1], 3);
  EXPECT_EQ(upload[layout.logit_rows], -7) << "an array of the backend";
  EXPECT_EQ(upload[kSampledRows], 2);
  EXPECT_EQ(upload[layout.sampling + kInvTemperature], 0) << "greedy";
  const int* second_row = &upload[layout.sampling + kSamplingInts];
  EXPECT_EQ(std::bit_cast<float>(second_row[kInvTemperature]), 2.0f);
  EXPECT_EQ(second_row[kTopK], 40);
  EXPECT_EQ(std::bit_cast<float>(second_row[kTopP]), 0.9f);
  EXPECT_EQ(std::bit_cast<float>(second_row[kLogMinP]), std::log(0.25f));
  EXPECT_EQ(second_row[kUniformLow], 1);
  EXPECT_EQ(second_row[kUniformHigh], 0x3FE00000);
  // Positions 0 to 202 are in columns 0 to 6. A window of 40 from position 200 begins at 161, in column 5.
  EXPECT_EQ(upload[kPageTableStride], 7);
  EXPECT_EQ(upload[kPageTableStride + 1], 2);
  const size_t second = layout.first_column + static_cast<size_t>(bucket.max_seqs);
  EXPECT_EQ(upload[layout.first_column], 0);
  EXPECT_EQ(upload[second], 5);
  EXPECT_EQ(upload[second + 1], 0);
  const auto entry = [&](int group, size_t s, size_t column) {
    const size_t stride = static_cast<size_t>(upload[static_cast<size_t>(kPageTableStride + group)]);
    return upload[static_cast<size_t>(upload[static_cast<size_t>(kPageTableOffset + group)]) + s * stride + column];
  };
  EXPECT_EQ(entry(0, 0, 6), 106);
  EXPECT_EQ(entry(0, 1, 0), 110);
  EXPECT_EQ(entry(1, 0, 0), 105);
  EXPECT_EQ(entry(1, 0, 1), 106);
  EXPECT_EQ(entry(1, 1, 0), 110);
  EXPECT_EQ(n_ints, layout.page_tables + 2 * 7 + 2 * 2);
}

TEST(StepClasses, ascend_to_the_bucket_and_the_smallest_that_fits_is_found) {
  const auto sizes_of = [](const Bucket& bucket) {
    std::vector<std::pair<int, int>> sizes;
    for (const StepClass& c : step_classes(bucket)) sizes.emplace_back(c.max_tokens, c.max_outputs);
    return sizes;
  };
  using Sizes = std::vector<std::pair<int, int>>;
  EXPECT_EQ(sizes_of({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1}), (Sizes{{1, 1}}));
  EXPECT_EQ(sizes_of({.max_tokens = 20, .max_seqs = 2, .max_outputs = 6}),
            (Sizes{{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 4}, {8, 1}, {8, 6}, {16, 1}, {16, 6}, {20, 1}, {20, 6}}));
  EXPECT_EQ(sizes_of({.max_tokens = 4, .max_seqs = 3, .max_outputs = 1}), (Sizes{{1, 1}, {2, 1}, {3, 1}, {4, 1}}))
      << "with a class of one token of each sequence";
  const std::vector<StepClass> classes = step_classes({.max_tokens = 20, .max_seqs = 2, .max_outputs = 6});
  EXPECT_EQ(find_step_class(classes, {1, 0}), 0u);
  EXPECT_EQ(find_step_class(classes, {2, 2}), 2u);
  EXPECT_EQ(find_step_class(classes, {5, 1}), 5u);
  EXPECT_EQ(find_step_class(classes, {20, 5}), 10u);
}

TEST(StepClasses, batches_without_prefill_rows_have_classes_of_their_own) {
  const std::vector<StepClass> classes =
      step_classes({.max_tokens = 1024, .max_seqs = 64, .max_outputs = 64}, /*has_batches=*/true);
  const auto class_of_step = [&](int n_tokens, int n_outputs, int max_seq_tokens) {
    return classes[find_step_class(classes, {n_tokens, n_outputs, max_seq_tokens})];
  };
  EXPECT_FALSE(has_prefill_rows(class_of_step(8, 8, 8)));
  EXPECT_FALSE(has_prefill_rows(class_of_step(33, 33, 1)));
  EXPECT_EQ(class_of_step(33, 33, 1).max_tokens, 64);
  EXPECT_TRUE(has_prefill_rows(class_of_step(33, 33, kMaxSplitTokens + 1)));
  EXPECT_EQ(class_of_step(33, 33, kMaxSplitTokens + 1).max_tokens, 64);
  EXPECT_EQ(classes.back(), (StepClass{1024, 64})) << "fits every step";
}

TEST(StepClasses, no_step_up_to_512_tokens_has_a_class_of_double_its_size) {
  const std::vector<StepClass> classes = step_classes({.max_tokens = 2048, .max_seqs = 2, .max_outputs = 256});
  for (int n = 1; n <= 512; ++n) {
    EXPECT_LT(classes[find_step_class(classes, {n, 1})].max_tokens, 2 * n) << n;
  }
}

}  // namespace
}  // namespace zinc::gpu
