#include "backend/gpu/class_preparer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace zinc::gpu {
namespace {

// Records the order in which classes are prepared, and waits in the first one until the test lets it go on.
class ClassPreparerTest : public testing::Test {
 protected:
  Status prepare(size_t step_class) {
    if (order_.empty()) {
      begun_.set_value();
      go_on_.get_future().wait();
    }
    order_.push_back(step_class);
    return step_class == 3 ? Status(fail(ErrorCode::unsupported, "no kernel")) : ok_status();
  }
  ClassPreparer::Prepare prepares() {
    return [this](size_t step_class) { return prepare(step_class); };
  }

  std::promise<void> begun_, go_on_;
  std::vector<size_t> order_;  // read by the test when the thread is idle or has ended
};

TEST_F(ClassPreparerTest, prepares_in_the_order_of_requests_and_each_class_once) {
  ClassPreparer preparer(4, prepares());
  for (const size_t c : {2u, 0u, 2u, 1u, 0u}) preparer.request(c);
  begun_.get_future().wait();
  EXPECT_EQ(preparer.result(2), nullptr);
  go_on_.set_value();
  EXPECT_TRUE(preparer.wait_for_requested().ok());
  EXPECT_TRUE(preparer.wait_for(1).ok());
  EXPECT_EQ(order_, (std::vector<size_t>{2, 0, 1}));
  ASSERT_NE(preparer.result(2), nullptr);
  EXPECT_TRUE(preparer.result(2)->ok());
  EXPECT_EQ(preparer.result(3), nullptr) << "not requested";
}

TEST_F(ClassPreparerTest, a_class_that_a_step_needs_is_prepared_before_those_requested_earlier) {
  ClassPreparer preparer(6, prepares());
  for (const size_t c : {0u, 1u, 2u, 4u}) preparer.request(c);
  begun_.get_future().wait();
  preparer.prepare_next(4);
  preparer.prepare_next(0);  // it has begun
  preparer.prepare_next(5);
  preparer.prepare_next(5);
  go_on_.set_value();
  EXPECT_TRUE(preparer.wait_for_requested().ok());
  EXPECT_EQ(order_, (std::vector<size_t>{0, 5, 4, 1, 2}));
}

TEST_F(ClassPreparerTest, an_error_is_the_result_of_its_class) {
  go_on_.set_value();
  ClassPreparer preparer(4, prepares());
  EXPECT_TRUE(preparer.wait_for(0).ok());
  EXPECT_TRUE(preparer.wait_for_requested().ok());
  EXPECT_EQ(preparer.wait_for(3).error().message, "no kernel");
  EXPECT_EQ(preparer.wait_for_requested().error().message, "no kernel");
  EXPECT_EQ(preparer.result(3)->error().message, "no kernel");
  EXPECT_TRUE(preparer.wait_for(1).ok());
}

TEST(ClassPreparer, ends_after_the_class_being_prepared) {
  constexpr size_t kClasses = 1000;  // of a millisecond each: far more than the destructor waits for
  std::atomic<size_t> n_begun = 0, n_prepared = 0;
  {
    ClassPreparer preparer(kClasses, [&](size_t) {
      ++n_begun;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++n_prepared;
      return ok_status();
    });
    for (size_t c = 0; c < kClasses; ++c) preparer.request(c);
    EXPECT_TRUE(preparer.wait_for(0).ok());
  }
  EXPECT_EQ(n_begun.load(), n_prepared.load());
  EXPECT_LT(n_prepared.load(), kClasses);
}

}  // namespace
}  // namespace zinc::gpu
