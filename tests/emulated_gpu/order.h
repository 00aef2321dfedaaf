// The order in which unordered threads of a warp, warps of a block and blocks of a launch are scheduled, from
// ZINC_EMULATED_ORDER: unset for forward, "backward", or the seed of a shuffle. Correct kernels give the same bits in
// every order.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace zinc::emulated {

class Order {
 public:
  static Order& of_process();
  explicit Order(const std::string& text);

  // Before the first round.
  template <class T>
  void arrange(std::vector<T>& run_order) {
    if (is_backward_) std::ranges::reverse(run_order);
    arrange_again(run_order);
  }
  // Before each later round.
  template <class T>
  void arrange_again(std::vector<T>& run_order) {
    if (shuffle_) std::ranges::shuffle(run_order, *shuffle_);
  }

  // Whether a dependent launch starts early; random in a shuffle.
  bool starts_dependent_early() { return !shuffle_ || (*shuffle_)() % 2 == 0; }

 private:
  bool is_backward_ = false;
  std::optional<std::minstd_rand> shuffle_;
};

}  // namespace zinc::emulated
