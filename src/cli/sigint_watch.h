// Ctrl-C ends the work in progress, not the program: results so far are kept and reported. A second Ctrl-C, during a
// long step, ends the program. One at a time.
#pragma once

namespace zinc {

class SigintWatch {
 public:
  SigintWatch();
  ~SigintWatch();
  SigintWatch(const SigintWatch&) = delete;
  SigintWatch& operator=(const SigintWatch&) = delete;

  static bool is_interrupted();  // since the last one was created

 private:
  void (*previous_)(int);
};

}  // namespace zinc
