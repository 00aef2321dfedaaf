#include "server/event_loop_notifier.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

class Listener final : public OutputListener {
 public:
  void on_output() override { ++n_calls; }
  int n_calls = 0;
};

class EventLoopNotifierTest : public testing::Test {
 protected:
  std::shared_ptr<BufferingSink> sink(BufferingSink::Options options) {
    return std::make_shared<BufferingSink>(notifier_, listener_, options);
  }
  // As the engine thread calls it.
  static void generate(RequestSink& sink, int n_tokens) {
    const OutputToken token{};
    for (int i = 0; i < n_tokens; ++i) sink.tokens("x", std::span(&token, 1));
  }

  std::vector<std::function<void()>> posted_;
  EventLoopNotifier notifier_{[this](std::function<void()> task) { posted_.push_back(std::move(task)); }};
  const std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
};

TEST_F(EventLoopNotifierTest, loop_that_does_not_run_gets_one_task_and_each_sink_holds_its_own_output) {
  constexpr int kTokens = 10000;
  const auto text = sink({}), both = sink({.tokens = true});
  for (int i = 0; i < kTokens; ++i) {
    generate(*text, 1);
    generate(*both, 1);
  }
  EXPECT_EQ(posted_.size(), 1u);
  posted_.front()();
  EXPECT_EQ(listener_->n_calls, 2) << "once for each sink";
  const BufferingSink::PendingOutput output = text->drain();
  EXPECT_EQ(output.text.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(output.n_tokens, kTokens);
  EXPECT_TRUE(output.tokens.empty()) << "not requested";
  EXPECT_EQ(both->drain().tokens.size(), static_cast<size_t>(kTokens));
  EXPECT_TRUE(both->drain().text.empty());
}

TEST_F(EventLoopNotifierTest, output_after_a_drain_wakes_the_loop_again) {
  const auto one = sink({});
  for (size_t n_posted = 1; n_posted <= 3; ++n_posted) {
    generate(*one, 5);
    ASSERT_EQ(posted_.size(), n_posted);
    posted_.back()();
    EXPECT_EQ(one->drain().n_tokens, 5);
  }
}

TEST_F(EventLoopNotifierTest, sink_without_a_listener_does_not_fill_the_queue) {
  const auto one =
      std::make_shared<BufferingSink>(notifier_, std::weak_ptr<OutputListener>(), BufferingSink::Options{});
  generate(*one, 100);
  ASSERT_EQ(posted_.size(), 1u);
  posted_.front()();
  generate(*one, 100);
  EXPECT_EQ(posted_.size(), 1u);
}

}  // namespace
}  // namespace zinc
