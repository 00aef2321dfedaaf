#include "quantize/grid_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tensor/iq_grids.h"

namespace zinc {
namespace {

template <class Index, class Grid>
void expect_nearest_points(const Grid& grid, float delta) {
  const Index index(grid);
  std::mt19937 random(26);
  std::normal_distribution<float> normal;
  constexpr size_t kDims = Index::kDims;
  const float typical = index.level()[Index::kLevels / 2] == 0 ? 1 : index.level()[Index::kLevels / 2];
  const bool has_negative = index.level()[0] < 0;
  for (int round = 0; round < 200; ++round) {
    std::array<float, kDims> x, w, wx;
    for (size_t j = 0; j < kDims; ++j) {
      x[j] = has_negative ? normal(random) : std::abs(normal(random));
      w[j] = std::exp(normal(random));
      wx[j] = w[j] * x[j];
    }
    GridSearch<Index> search;
    search.fill(index, w.data(), wx.data(), delta, 0);
    search.fill_patterns();
    for (const float s : {0.5F / typical, 1 / typical, 2 / typical}) {
      const auto error = [&](size_t code) {
        double sum = 0;
        for (size_t j = 0; j < kDims; ++j) {
          const double difference = x[j] - double{s} * (static_cast<double>(grid[code][j]) + double{delta});
          sum += w[j] * difference * difference;
        }
        return sum;
      };
      double least = error(0);
      for (size_t code = 1; code < grid.size(); ++code) least = std::min(least, error(code));
      const PointSums found = search.best(index, s, search.start(index, s));
      EXPECT_LE(error(index.code(found)), least + 1e-4);
    }
  }
}

TEST(GridIndex, finds_the_nearest_point_of_every_grid) {
  expect_nearest_points<GridIndex<8, 3>>(kIq2XxsGrid, 0);
  expect_nearest_points<GridIndex<8, 3>>(kIq2XsGrid, 0);
  expect_nearest_points<GridIndex<8, 3>>(kIq2SGrid, 0);
  expect_nearest_points<GridIndex<4, 8>>(kIq3XxsGrid, 0);
  expect_nearest_points<GridIndex<4, 8>>(kIq3SGrid, 0);
  expect_nearest_points<GridIndex<8, 3>>(kIq1Grid, 0.125F);
  expect_nearest_points<GridIndex<8, 3>>(kIq1Grid, -0.125F);
}

}  // namespace
}  // namespace zinc
