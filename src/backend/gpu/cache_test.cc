#include "backend/gpu/cache.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/host_device.h"

namespace zinc::gpu {
namespace {

constexpr std::array<KvFormat, 2> kFormats = {{{"f32", 128}, {"f16", 64}}};

// Two layers with full attention, one with a window; the last one has a recurrent state too.
std::vector<LayerCache> hybrid_layers() {
  std::vector<LayerCache> layers(3);
  for (LayerCache& layer : layers) layer.attention = {.kv_heads = 2, .k_dim = 40, .v_dim = 32};
  layers[1].attention.window = 64;
  layers[2].recurrent = {.conv_channels = 3, .conv_taps = 4, .heads = 2, .k_dim = 5, .v_dim = 7};
  return layers;
}

class GpuCache : public testing::Test {
 protected:
  Result<std::unique_ptr<Cache>> allocate(const char* format, int max_length = 0) {
    const CacheSizes sizes{.n_pages = {6, 4}, .max_length = max_length, .n_slots = 3, .kv_format = find_format(format)};
    return Cache::allocate(hybrid_layers(), sizes, device_, {.backend = "test", .kv_formats = kFormats});
  }
  HostDevice device_;
};

TEST_F(GpuCache, a_page_has_keys_padded_to_blocks_and_values_of_all_layers_of_its_group) {
  const auto cache = std::move(allocate("f16").value());
  constexpr size_t kHead = (64 + 32) * 2 * 32;  // keys of 40 are padded to 64
  EXPECT_EQ(cache->page_bytes(0), 2 * 2 * kHead);
  EXPECT_EQ(cache->page_bytes(1), 2 * kHead);
  const KvLayer layer = cache->kv_layer(2);
  EXPECT_EQ(layer.page_bytes, 2 * kHead);
  EXPECT_EQ(layer.value_begin, 64 * 2 * 32);
  EXPECT_EQ(layer.group, 0);
  EXPECT_EQ(cache->pages(2).size(), 6 * 2 * kHead);
  EXPECT_EQ(cache->state_bytes(), (3 * 4 + 2 * 5 * 7) * sizeof(float));
  EXPECT_EQ(cache->delta_states(2) - cache->conv_states(2), 3 * 4 * sizeof(float));
}

TEST_F(GpuCache, a_row_sees_the_window_the_maximum_length_or_all_pages) {
  EXPECT_EQ(allocate("f16").value()->max_visible_positions(0), 6 * kPageTokens);
  EXPECT_EQ(allocate("f16", 100).value()->max_visible_positions(0), 100);
  EXPECT_EQ(allocate("f16", 100).value()->max_visible_positions(1), 64);
  EXPECT_EQ(allocate("f16", 50).value()->max_visible_positions(1), 50);
}

TEST_F(GpuCache, a_copied_page_and_a_copied_state_read_back_as_the_original) {
  const auto cache = std::move(allocate("f32").value());
  std::vector<std::byte> page(cache->page_bytes(0)), state(cache->state_bytes());
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i * 13 >> 2);
  for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<std::byte>(i * 7);
  ASSERT_TRUE(cache->write_page(0, 2, page).ok());
  ASSERT_TRUE(cache->write_state(0, state).ok());
  cache->copy_page(0, 2, 5);
  cache->copy_state(0, 2);
  std::vector<std::byte> page_back(page.size()), state_back(state.size());
  ASSERT_TRUE(cache->read_page(0, 5, page_back).ok());
  ASSERT_TRUE(cache->read_state(2, state_back).ok());
  EXPECT_EQ(page_back, page);
  EXPECT_EQ(state_back, state);
  ASSERT_TRUE(cache->read_page(0, 4, page_back).ok());
  EXPECT_EQ(page_back, std::vector<std::byte>(page.size())) << "a neighboring page was written";
}

// As the states of all layers of 64 sequences do on drivers with allocations of up to 4 GiB.
TEST_F(GpuCache, only_the_states_of_one_layer_have_to_fit_the_largest_allocation) {
  std::vector<LayerCache> layers(3);
  for (LayerCache& layer : layers) {
    layer.recurrent = {.conv_channels = 3, .conv_taps = 4, .heads = 2, .k_dim = 5, .v_dim = 7};
  }
  constexpr size_t kSlot = (3 * 4 + 2 * 5 * 7) * sizeof(float);
  const CacheSizes sizes{.n_pages = {}, .n_slots = 8, .kv_format = find_format("f16")};
  const KernelFormats formats{.backend = "test", .kv_formats = kFormats};
  device_.max_bytes = 8 * kSlot;
  const auto allocated = Cache::allocate(layers, sizes, device_, formats);
  ASSERT_TRUE(allocated.ok()) << allocated.error().message;
  Cache& cache = *allocated.value();
  EXPECT_EQ(cache.state_bytes(), 3 * kSlot);
  EXPECT_EQ(cache.slot_bytes(1), kSlot);
  std::vector<std::byte> state(cache.state_bytes()), back(cache.state_bytes());
  for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<std::byte>(i * 7);
  ASSERT_TRUE(cache.write_state(7, state).ok());
  cache.copy_state(7, 3);
  ASSERT_TRUE(cache.read_state(3, back).ok());
  EXPECT_EQ(back, state);
  device_.max_bytes = 8 * kSlot - 1;
  EXPECT_FALSE(Cache::allocate(layers, sizes, device_, formats).ok());
}

TEST_F(GpuCache, the_first_failed_copy_is_kept_for_the_next_step) {
  const auto cache = std::move(allocate("f16").value());
  cache->copy_page(0, 1, 2);
  EXPECT_FALSE(cache->failed_copy());
  device_.copies_fail = true;
  cache->copy_state(0, 1);
  ASSERT_TRUE(cache->failed_copy());
  EXPECT_EQ(cache->failed_copy()->message, "copying failed");
}

TEST_F(GpuCache, an_unsupported_format_is_an_error_that_lists_the_supported_ones) {
  const auto cache = allocate("q8_0");
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.error().message, "the test backend does not support KV cache format 'q8_0'; it supports f32 and f16");
}

TEST_F(GpuCache, more_windows_than_a_step_can_address_are_an_error) {
  std::vector<LayerCache> layers(kMaxPageGroups + 1);
  for (int i = 0; i <= kMaxPageGroups; ++i) {
    layers[static_cast<size_t>(i)].attention = {.kv_heads = 1, .k_dim = 32, .v_dim = 32, .window = 32 * i};
  }
  const CacheSizes sizes{.n_pages = std::vector<int>(layers.size(), 1), .kv_format = find_format("f16")};
  const auto cache = Cache::allocate(layers, sizes, device_, {.backend = "test", .kv_formats = kFormats});
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(cache.error().message.find("up to 4 different attention windows; this model has 5"), std::string::npos)
      << cache.error().message;
}

}  // namespace
}  // namespace zinc::gpu
