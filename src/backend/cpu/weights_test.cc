#include "backend/cpu/weights.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/conformance.h"

namespace zinc::cpu {
namespace {

// How often the file pages of the case's matrix are released after n_reads reads of 32 rows.
int n_releases(std::string_view case_name, int n_reads) {
  const std::vector<conformance::CaseSource> sources = conformance::linear_cases();
  const auto source = std::ranges::find(sources, case_name, &conformance::CaseSource::name);
  const conformance::Case c = source->make(source->name);
  const auto linear = std::ranges::find(c.graph.nodes(), Op::linear, &Node::op);
  const ValueInfo& table = c.graph.info(linear->in[1]);
  const Graph* const graph = &c.graph;
  ThreadPool threads(1);
  int n = 0;
  const ReleaseFilePages count = [&](std::span<const std::byte> bytes) {
    n += bytes.data() == table.weight.bytes.data();
  };
  const auto weights = std::move(
      CpuWeights::pack({&graph, 1}, *supported_kernels().front(), threads, AlignedBuffer::allocate, count).value());
  const int n_packing = n;
  for (int i = 0; i < n_reads; ++i) weights->note_rows_read(table, 32);
  return n - n_packing;
}

TEST(CpuWeights, file_pages_of_a_table_are_released_every_64_rows) {
  EXPECT_EQ(n_releases("linear q8_0 32x1 T1 heads1", 1), 0);
  EXPECT_EQ(n_releases("linear q8_0 32x1 T1 heads1", 5), 2);
}

TEST(CpuWeights, a_table_that_matmuls_read_in_place_is_not_released) {
  EXPECT_EQ(n_releases("linear iq2_xxs 256x1 T1 heads1", 5), 0);
}

}  // namespace
}  // namespace zinc::cpu
