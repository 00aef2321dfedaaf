// How a gemv is split over the SMs of a GPU. Its weights are read once, so a launch takes as long as its busiest block:
// the tests check how much each block reads.
#include "backend/simt/host/gemv_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/ceil_div.h"

namespace zinc::simt::host {
namespace {

constexpr int kSms = 132, kKiB = 1024;
const DeviceLimits kH200 = {
    .name = "H200", .major = 9, .minor = 0, .n_sms = kSms, .max_shared_bytes = 227 * kKiB, .has_clusters = true};
const DeviceLimits kRtx4090 = {.name = "RTX 4090", .major = 8, .minor = 9, .n_sms = 128, .max_shared_bytes = 99 * kKiB};
const DeviceLimits kTuring = {.name = "T4", .major = 7, .minor = 5, .n_sms = 40, .max_shared_bytes = 64 * kKiB};

GemvWork::Part part(std::string_view format, int n_out, bool is_split_k = false) {
  return {gpu::find_panel_format(format), n_out, is_split_k};
}

GemvWork work(int n_in, std::vector<GemvWork::Part> parts) {
  GemvWork work;
  work.n_in = n_in;
  work.parts = std::move(parts);
  return work;
}

GemvSchedule schedule(const GemvWork& work, bool has_clusters = true) {
  DeviceLimits device = kH200;
  device.has_clusters = has_clusters;
  return GemvSchedule(work, device);
}

int64_t n_blocks_of(const GemvSchedule& schedule, size_t problem) {
  const auto& all = schedule.problems();
  const int64_t end = problem + 1 < all.size() ? all[problem + 1].first_block : schedule.n_blocks();
  return end - all[problem].first_block;
}

// A cluster of several blocks works on the same panels; a split-K problem is divided among blocks.
int64_t n_shares_of(const GemvSchedule& schedule, size_t problem) {
  const bool is_split_k = schedule.problems()[problem].is_split_k != 0;
  return n_blocks_of(schedule, problem) / (is_split_k ? 1 : schedule.shape().cluster_size);
}

// Segments of 256 inputs that the busiest block of a problem reads, of 32 rows each.
int64_t busiest_tiles(const GemvSchedule& schedule, size_t problem) {
  const PanelSplit& split = schedule.problems()[problem].split;
  return (split.panels_per_cluster + (split.n_extra > 0 ? 1 : 0)) * max_block_tiles(schedule.shape());
}

TEST(GemvSchedule, every_panel_belongs_to_one_cluster_and_every_sm_has_a_block) {
  for (const int n_in : {64, 1024, 4096, 5120, 12288}) {
    for (const int n_out : {32, 1000, 4096, 151936}) {
      SCOPED_TRACE(fmt::format("{} x {}", n_in, n_out));
      GemvWork w = work(n_in, {part("q4_k", n_out), part("q6_k", n_out / 2), part("f32", 128, /*is_split_k=*/true)});
      const GemvSchedule s = schedule(w);
      int64_t next_block = 0;
      ASSERT_EQ(s.problems().size(), 3u);
      for (size_t i = 0; i < s.problems().size(); ++i) {
        const GemvProblem& problem = s.problems()[i];
        EXPECT_EQ(problem.first_block, next_block);
        next_block += n_blocks_of(s, i);
        const int n_panels = s.panels_of(w.parts[s.order()[i]]);
        EXPECT_EQ(problem.split.panels_per_cluster * n_shares_of(s, i) + problem.split.n_extra, n_panels);
        EXPECT_LT(problem.split.n_extra, n_shares_of(s, i)) << "only so many can have one panel more";
      }
      EXPECT_EQ(next_block, s.n_blocks());
      EXPECT_LE(s.n_blocks(), kSms) << "a second wave would wait for the first";
      EXPECT_GT(s.n_blocks(), kSms - s.shape().cluster_size) << "SMs without a block read nothing";
    }
  }
}

TEST(GemvSchedule, parts_of_one_format_are_one_problem) {
  const GemvSchedule s = schedule(work(4096, {part("q6_k", 1024), part("q4_k", 4096), part("q4_k", 1024)}));
  ASSERT_EQ(s.problems().size(), 2u);
  EXPECT_EQ(s.format_names(), "q4_k+q6_k") << "the formats that the program is compiled for";
  EXPECT_EQ(s.order(), (std::vector<size_t>{1, 2, 0})) << "the parts, by problem";
  EXPECT_EQ(s.problems()[0].first_part, 0);
  EXPECT_EQ(s.problems()[1].first_part, 2);
  EXPECT_EQ(s.problems()[1].format, 1);
}

TEST(GemvSchedule, blocks_are_shared_out_by_the_bytes_that_they_read) {
  const GemvSchedule s = schedule(work(4096, {part("q4_k", 32768), part("q8_0", 32768)}), /*has_clusters=*/false);
  const auto bytes = [&](size_t i, std::string_view format) {
    return static_cast<double>(busiest_tiles(s, i) * gpu::find_panel_format(format)->segment_bytes());
  };
  EXPECT_GT(n_blocks_of(s, 1), n_blocks_of(s, 0)) << "Q8_0 has nearly twice the bytes of Q4_K";
  EXPECT_NEAR(bytes(0, "q4_k") / bytes(1, "q8_0"), 1, 0.15) << "both end at about the same time";
}

TEST(GemvSchedule, a_matrix_of_few_panels_is_split_along_k_over_the_blocks_of_a_cluster) {
  const GemvWork few = work(12288, {part("q4_k", 2048)});  // 64 panels of 48 segments
  const GemvSchedule alone = schedule(few, /*has_clusters=*/false), clusters = schedule(few);
  EXPECT_EQ(busiest_tiles(alone, 0), 48) << "64 of 132 blocks have a panel";
  EXPECT_EQ(clusters.shape().cluster_size, 2);
  EXPECT_EQ(busiest_tiles(clusters, 0), 24) << "half a panel each, on 128 blocks";
}

TEST(GemvSchedule, a_cluster_reduces_all_its_panels_at_once) {
  for (const int n_out : {1024, 4096, 16384, 151936}) {
    const GemvSchedule s = schedule(work(12288, {part("q4_k", n_out)}));
    if (s.shape().cluster_size == 1) continue;
    EXPECT_EQ(panels_per_batch(s.shape()), s.shape().max_panels) << n_out << " outputs: sums are exchanged once";
  }
  EXPECT_EQ(schedule(work(12288, {part("q4_k", 151936)})).shape().cluster_size, 1) << "36 panels of a block do not fit";
}

TEST(GemvSchedule, a_cluster_that_reads_the_same_bytes_per_block_still_quantizes_less_of_the_row) {
  const GemvWork square = work(4096, {part("q4_k", 4096)});  // 128 panels of 16 segments
  const GemvSchedule alone = schedule(square, /*has_clusters=*/false), clusters = schedule(square);
  EXPECT_EQ(clusters.shape().cluster_size, 2);
  EXPECT_EQ(busiest_tiles(clusters, 0), busiest_tiles(alone, 0));
  EXPECT_EQ(max_block_segments(alone.shape()), 16);
  EXPECT_EQ(max_block_segments(clusters.shape()), 8);
}

TEST(GemvSchedule, a_block_with_a_tile_per_warp_pair_needs_no_cluster) {
  const GemvSchedule s = schedule(work(2048, {part("q4_k", 2048)}));  // 64 panels of 8 segments
  EXPECT_EQ(s.shape().n_warp_pairs, 8);
  EXPECT_EQ(s.shape().cluster_size, 1) << "all tiles are in flight at once: another block would only add a wait";
}

TEST(GemvSchedule, split_k_gets_at_most_half_of_the_blocks_beside_another_problem) {
  const GemvWork router = work(4096, {part("f32", 4096, /*is_split_k=*/true)});
  const GemvSchedule alone = schedule(router);
  EXPECT_EQ(n_blocks_of(alone, 0), kSms) << "2048 segments of panels, two per block and wave";
  GemvWork beside = router;
  beside.parts.push_back(part("q4_k", 4096));
  const GemvSchedule both = schedule(beside);
  ASSERT_EQ(both.problems()[0].is_split_k, 1);
  EXPECT_LE(n_blocks_of(both, 0), kSms / 2);
}

TEST(GemvSchedule, each_selected_expert_has_panels_of_its_own) {
  GemvWork experts = work(2048, {part("q4_k", 768)});
  experts.n_matrices = 2;  // gate and up
  experts.n_selected = 8;
  const GemvSchedule s = schedule(experts);
  EXPECT_EQ(s.shape().expert_panels, 24);
  const PanelSplit& split = s.problems()[0].split;
  EXPECT_EQ(split.panels_per_cluster * n_shares_of(s, 0) + split.n_extra, 8 * 24);
}

// The prologue holds a normed row in registers: fewer warps have more of them.
TEST(GemvSchedule, long_normed_rows_take_fewer_warp_pairs) {
  const auto warp_pairs = [](int n_in, int n_normed_rows) {
    GemvWork w = work(n_in, {part("q4_k", 4096)});
    w.n_normed_rows = n_normed_rows;
    return schedule(w).shape().n_warp_pairs;
  };
  EXPECT_EQ(warp_pairs(16384, 0), 8) << "without a norm";
  EXPECT_EQ(warp_pairs(6144, 1), 8);
  EXPECT_EQ(warp_pairs(8192, 1), 6);
  EXPECT_EQ(warp_pairs(12288, 1), 4);
  EXPECT_EQ(warp_pairs(6144, 2), 6) << "with its residual";
}

// Blocks of two launches share an SM of 228 KB: one works while the weights of the next are on their way.
TEST(GemvSchedule, shared_memory_leaves_half_an_sm_to_the_next_launch) {
  for (const char* format : {"q4_k", "q6_k", "q8_0", "mxfp4"}) {
    for (const int n_in : {1024, 4096, 12288}) {
      GemvWork w = work(n_in, {part(format, 4096)});
      w.n_normed_rows = 1;  // its weights are in shared memory too
      const GemvSchedule s = schedule(w);
      EXPECT_LE(s.shared_bytes(), size_t{112 * kKiB}) << format << ", " << n_in;
      const int segment = w.parts[0].format->segment_bytes();
      EXPECT_GE(pipeline_stages(s.shape(), segment), s.shape().n_warp_pairs) << "each warp pair has a copy in flight";
    }
  }
}

// Without bulk copies a warp pair fills the stages that only it reads.
TEST(GemvSchedule, warp_pairs_without_bulk_copies_have_equally_many_stages_of_their_own) {
  for (const DeviceLimits& device : {kRtx4090, kTuring}) {
    for (const char* format : {"q4_k", "q6_k", "q8_0", "mxfp4"}) {
      for (const int n_in : {1024, 4096, 12288}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", device.name, format, n_in));
        const GemvWork w = work(n_in, {part(format, 4096)});
        const GemvSchedule s(w, device);
        EXPECT_EQ(s.shape().has_bulk_copies, 0);
        EXPECT_EQ(s.shape().cluster_size, 1);
        EXPECT_EQ(pipeline_stages(s.shape(), w.parts[0].format->segment_bytes()) % s.shape().n_warp_pairs, 0);
        EXPECT_LE(s.shared_bytes(), static_cast<size_t>(device.max_shared_bytes));
      }
    }
  }
}

TEST(GemvSchedule, a_router_fits_the_smallest_shared_memory) {
  GemvWork w = work(2880, {part("f32", 128, /*is_split_k=*/true), part("q4_k", 4096)});
  w.n_normed_rows = 1;
  EXPECT_LE(GemvSchedule(w, kTuring).shared_bytes(), static_cast<size_t>(kTuring.max_shared_bytes));
}

TEST(GemvSchedule, tokens_have_equally_many_blocks_in_whole_clusters) {
  for (const int n_sms : {4, 33, kSms}) {
    DeviceLimits device = kH200;
    device.n_sms = n_sms;
    GemvWork w = work(2048, {part("q4_k", 512)});
    w.n_matrices = 2;
    w.n_tokens = 8;
    w.n_selected = 8;
    const GemvSchedule s(w, device);
    const int cluster_size = s.shape().cluster_size, n_blocks = s.shape().blocks_per_token;
    EXPECT_GT(n_blocks, 0) << n_sms;
    EXPECT_EQ(n_blocks % cluster_size, 0) << n_sms;
    EXPECT_EQ(s.n_blocks() % cluster_size, 0) << n_sms;
    EXPECT_GE(s.n_blocks(), 8 * n_blocks) << n_sms;
  }
}

TEST(GemvSchedule, few_rows_fit_shared_memory) {
  for (const int n_columns : {2, 3, 4, 8}) {
    for (const char* format : {"q4_k", "q6_k", "q8_0", "mxfp4"}) {
      for (const int n_out : {1024, 4096, 151936}) {
        GemvWork w = work(192 / n_columns * 256, {part(format, n_out)});
        w.n_columns = n_columns;
        SCOPED_TRACE(fmt::format("{} columns, {}, {}", n_columns, format, n_out));
        EXPECT_LE(GemvSchedule(w, kH200).shared_bytes(), static_cast<size_t>(kH200.max_shared_bytes));
      }
    }
  }
}

TEST(GemvSchedule, without_dependent_launch_a_block_has_all_shared_memory) {
  const GemvWork w = work(4096, {part("q4_k", 4096)});
  const GemvSchedule s(w, kRtx4090);
  EXPECT_EQ(s.shape().n_warp_pairs, 8);
  EXPECT_EQ(pipeline_stages(s.shape(), w.parts[0].format->segment_bytes()), 16) << "two stages per warp pair";
}

}  // namespace
}  // namespace zinc::simt::host
