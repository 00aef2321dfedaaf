// Download progress on standard error: a bar with rate and time left if it is a terminal with cursor control, else an
// occasional line.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include "hub/download.h"

namespace zinc {

// "[=====>    ]  42 %  2.11 of 5.03 GB  35.2 MB/s  1 min 23 s left", at most `width` columns wide.
std::string progress_bar_text(const DownloadProgress& progress, double bytes_per_s, int width);
std::string progress_line(const DownloadProgress& progress, double bytes_per_s);  // the same as a log line

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // clears the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(const DownloadProgress& progress);
  void print_line(std::string_view line);  // above the bar

 private:
  using Clock = std::chrono::steady_clock;
  double rate(const DownloadProgress& progress, Clock::time_point now);
  void clear_bar();

  bool is_terminal_;  // with cursor control
  bool has_bar_ = false;
  Clock::time_point shown_{};
  DownloadPhase phase_ = DownloadPhase::downloading;
  struct Sample {
    Clock::time_point at;
    uint64_t n_done;
  };
  std::deque<Sample> samples_;
};

}  // namespace zinc
