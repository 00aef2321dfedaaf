// In which order those take their turns that no rule puts in order: threads of a warp, warps of a block, blocks of a
// launch. The variable ZINC_EMULATED_ORDER says it: nothing for forward, "backward", or a number that a shuffle begins
// with. Right kernels give the same bits in every order.
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

  // Before the first round of turns.
  template <class T>
  void arrange(std::vector<T>& turns) {
    if (is_backward_) std::ranges::reverse(turns);
    arrange_again(turns);
  }
  // Before each later one.
  template <class T>
  void arrange_again(std::vector<T>& turns) {
    if (shuffle_) std::ranges::shuffle(turns, *shuffle_);
  }

  // Whether a launch that may start early does; in a shuffle as often as not.
  bool starts_early() { return !shuffle_ || (*shuffle_)() % 2 == 0; }

 private:
  bool is_backward_ = false;
  std::optional<std::minstd_rand> shuffle_;
};

}  // namespace zinc::emulated
