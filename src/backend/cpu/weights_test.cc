#include "backend/cpu/weights.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc::cpu {
namespace {

// How often the file pages of a matrix of 1x32 are released after n_reads reads of 32 rows.
int n_releases(std::string_view format_name, int n_reads) {
  WeightSet matrices;
  matrices.add("table", {1, 32}, *find_format(format_name));
  GraphBuilder g("test", matrices.source());
  const Value table = g.weight("table", {1, 32});
  g.logits(g.rows(g.linear(g.hidden_in(32), table)));
  const Graph graph = std::move(g.finish().value());
  const Graph* const graphs = &graph;
  const ValueInfo& info = graph.info(table);
  ThreadPool threads(1);
  int n = 0;
  const ReleaseFilePages count = [&](std::span<const std::byte> bytes) {
    n += bytes.data() == info.weight.bytes.data();
  };
  const auto weights = std::move(
      CpuWeights::pack({&graphs, 1}, *supported_kernels().front(), threads, AlignedBuffer::allocate, count).value());
  const int n_packing = n;
  for (int i = 0; i < n_reads; ++i) weights->note_rows_read(info, 32);
  return n - n_packing;
}

TEST(CpuWeights, file_pages_of_a_table_are_released_every_64_rows) {
  EXPECT_EQ(n_releases("q8_0", 1), 0);
  EXPECT_EQ(n_releases("q8_0", 5), 2);
}

TEST(CpuWeights, a_table_that_matmuls_read_in_place_is_not_released) { EXPECT_EQ(n_releases("f64", 5), 0); }

}  // namespace
}  // namespace zinc::cpu
