// Progress of a download, for people: a bar with rate and time left where standard error is a terminal that can
// draw one, a line now and then where it is not.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include "hub/download.h"

namespace zinc {

// "[=====>    ]  42 %  2.11 of 5.03 GB  35.2 MB/s  1 min 23 s left", at most `width` columns wide.
std::string progress_bar(const DownloadProgress& progress, double bytes_per_s, int width);
std::string progress_sentence(const DownloadProgress& progress, double bytes_per_s);  // the same, to be logged

class FetchProgress {
 public:
  FetchProgress();
  ~FetchProgress();  // leaves the line it drew on
  FetchProgress(const FetchProgress&) = delete;
  FetchProgress& operator=(const FetchProgress&) = delete;

  void show(const DownloadProgress& progress);
  void say(std::string_view line);  // a line of its own, the bar below it

 private:
  using Clock = std::chrono::steady_clock;
  double rate(const DownloadProgress& progress, Clock::time_point now);
  void clear_bar();

  bool is_terminal_;  // one that moves its cursor
  bool has_bar_ = false;
  Clock::time_point shown_{};
  DownloadPhase phase_ = DownloadPhase::fetching;
  struct Sample {
    Clock::time_point at;
    uint64_t n_done;
  };
  std::deque<Sample> samples_;
};

}  // namespace zinc
