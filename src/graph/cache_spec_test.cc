#include "graph/cache_spec.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

LayerCache attention_layer(int kv_heads, int dim, int window) {
  return {.attention = {.kv_heads = kv_heads, .k_dim = dim, .v_dim = dim, .window = window}, .recurrent = {}};
}

TEST(PageGroups, gather_layers_by_window_with_the_unbounded_group_first) {
  const std::vector<LayerCache> layers = {
      attention_layer(2, 64, 1024), attention_layer(2, 64, 0),    LayerCache{},
      attention_layer(2, 64, 512),  attention_layer(2, 64, 1024), attention_layer(1, 64, 0)};
  const std::vector<PageGroup> groups = page_groups(layers);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_EQ(groups[0].layers, (std::vector<int>{1, 5}));
  EXPECT_EQ(groups[1].window, 512);
  EXPECT_EQ(groups[1].layers, std::vector<int>{3});
  EXPECT_EQ(groups[2].window, 1024);
  EXPECT_EQ(groups[2].layers, (std::vector<int>{0, 4}));
}

TEST(PageGroups, of_a_purely_recurrent_model_are_none) {
  const std::vector<LayerCache> layers(3,
                                       LayerCache{.attention = {}, .recurrent = {.conv_channels = 4, .conv_taps = 4}});
  EXPECT_TRUE(page_groups(layers).empty());
}

TEST(PageBytes, count_keys_and_values_of_every_head_and_layer) {
  const std::vector<LayerCache> layers = {
      {.attention = {.kv_heads = 2, .k_dim = 64, .v_dim = 32, .window = 0}, .recurrent = {}},
      attention_layer(4, 32, 0)};
  const PageGroup group = page_groups(layers).at(0);
  // per position: 2 heads x (64 + 32) and 4 heads x (32 + 32) elements
  EXPECT_EQ(page_bytes(group, layers, k_f32), 32u * (2 * 96 + 4 * 64) * 4);
  EXPECT_EQ(page_bytes(group, layers, k_f16), 32u * (2 * 96 + 4 * 64) * 2);
  // q8_0: 34 bytes per 32 elements
  EXPECT_EQ(page_bytes(group, layers, *find_format("q8_0")), 32u * (2 * 3 + 4 * 2) * 34);
  // fp8: 33
  EXPECT_EQ(page_bytes(group, layers, *find_format("fp8")), 32u * (2 * 3 + 4 * 2) * 33);
}

// Qwen3.5-35B-A3B has ten attention layers of 2 x 256: 20 KiB per token at f16.
TEST(PageBytes, of_a_known_model_are_its_known_figure) {
  const std::vector<LayerCache> layers(10, attention_layer(2, 256, 0));
  EXPECT_EQ(page_bytes(page_groups(layers).at(0), layers, k_f16), 20u * 1024 * kPageTokens);
}

TEST(StateBytes, count_the_convolutions_past_inputs_and_the_delta_state) {
  const RecurrentCache recurrent{.conv_channels = 10, .conv_taps = 4, .heads = 3, .k_dim = 8, .v_dim = 5};
  const std::vector<LayerCache> layers = {LayerCache{.attention = {}, .recurrent = recurrent},
                                          attention_layer(2, 64, 0),
                                          LayerCache{.attention = {}, .recurrent = recurrent}};
  EXPECT_EQ(state_bytes(layers), 2u * (10 * 3 + 3 * 8 * 5) * 4);
}

TEST(StateBytes, of_a_model_without_recurrence_are_zero) {
  const std::vector<LayerCache> layers = {attention_layer(2, 64, 0)};
  EXPECT_EQ(state_bytes(layers), 0u);
}

TEST(KvBlocks, must_divide_every_head) {
  const std::vector<LayerCache> whole = {LayerCache{}, attention_layer(2, 64, 0)};
  EXPECT_TRUE(check_kv_blocks(*find_format("q8_0"), whole).ok());
  const std::vector<LayerCache> part = {attention_layer(2, 64, 0), attention_layer(2, 80, 0)};
  EXPECT_TRUE(check_kv_blocks(k_f16, part).ok());
  const Status refused = check_kv_blocks(*find_format("q8_0"), part);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("blocks of 32 elements, but this model's heads have 80 key"),
            std::string::npos);
}

}  // namespace
}  // namespace zinc
