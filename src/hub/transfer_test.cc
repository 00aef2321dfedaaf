#include "hub/transfer.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(SameOrigin, is_scheme_host_and_port) {
  EXPECT_TRUE(is_same_origin("https://Host/a", "https://host/b?c"));
  EXPECT_TRUE(is_same_origin("https://host", "https://host/b"));
  EXPECT_FALSE(is_same_origin("https://host/a", "http://host/a"));
  EXPECT_FALSE(is_same_origin("https://host/a", "https://host:444/a"));
  EXPECT_FALSE(is_same_origin("https://host/a", "https://host.example/a"));
  EXPECT_FALSE(is_same_origin("", ""));
}

TEST(ContentRange, is_read_strictly) {
  EXPECT_EQ(parse_content_range("bytes 0-99/200"), (ContentRange{0, 100, 200}));
  EXPECT_EQ(parse_content_range("Bytes 5-5/*"), (ContentRange{5, 6, std::nullopt}));
  EXPECT_EQ(parse_content_range("bytes */0"), (ContentRange{0, 0, 0}));
  for (const char* wrong : {"", "bytes", "bytes 1-0/5", "bytes 0-5/5", "bytes -1-2/5", "bytes 0-1/x", "items 0-1/2",
                            "bytes 0-18446744073709551615/*", "bytes 0-1"}) {
    EXPECT_EQ(parse_content_range(wrong), std::nullopt) << wrong;
  }
}

TEST(ShownUrl, contains_no_secrets) {
  EXPECT_EQ(display_url("https://user:password@host/a/b?token=x"), "https://host/a/b");
  EXPECT_EQ(display_url("https://host/a@b"), "https://host/a@b");
}

}  // namespace
}  // namespace zinc
