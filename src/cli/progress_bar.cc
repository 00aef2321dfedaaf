#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/format_memory.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/terminal.h"
#include "cli/time_text.h"
#include "hub/inventory.h"

namespace zinc {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(150);
constexpr auto kLineInterval = std::chrono::seconds(10);
constexpr auto kRateWindow = std::chrono::seconds(5);
constexpr int kBarColumns = 28;

std::string_view phase_name(DownloadPhase phase) {
  if (phase == DownloadPhase::verifying) return "verifying";
  if (phase == DownloadPhase::converting) return "converting";
  if (phase == DownloadPhase::quantizing) return "quantizing";
  return phase == DownloadPhase::unpacking ? "unpacking" : "downloading";
}

int bar_columns() {
  const int width = terminal_width(STDERR_FILENO);
  return (width > 0 ? width : 80) - 1;
}

double share_of(const DownloadProgress& p) {
  return p.n_bytes == 0 ? 0 : std::min(1.0, static_cast<double>(p.n_done) / static_cast<double>(p.n_bytes));
}

std::string figures(const DownloadProgress& p, double bytes_per_s) {
  std::string text = fmt::format("{:3.0f} %  {} of {}", std::floor(100 * share_of(p)), format_memory(p.n_done),
                                 human_bytes(p.n_bytes));
  if (bytes_per_s > 0) {
    text += fmt::format("  {}/s  {} left", human_bytes(static_cast<uint64_t>(bytes_per_s)),
                        time_text(static_cast<double>(p.n_bytes - p.n_done) / bytes_per_s));
  }
  return text;
}

}  // namespace

std::string progress_bar_text(const DownloadProgress& progress, double bytes_per_s, int width) {
  const int filled = static_cast<int>(share_of(progress) * kBarColumns);
  std::string bar(static_cast<size_t>(kBarColumns), ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < kBarColumns) bar[static_cast<size_t>(filled)] = '>';
  const std::string text = figures(progress, bytes_per_s);
  const bool is_download = progress.phase == DownloadPhase::downloading;
  const std::string word = is_download ? "" : fmt::format("{} ", phase_name(progress.phase));
  std::string line = fmt::format("{}[{}] {}", word, bar, text);
  if (static_cast<int>(line.size()) > width) line = word + text;
  return line.substr(0, static_cast<size_t>(std::max(0, width)));
}

std::string progress_line(const DownloadProgress& progress, double bytes_per_s) {
  const std::string text = figures(progress, bytes_per_s);
  return fmt::format("{}: {}", phase_name(progress.phase), text.substr(text.find_first_not_of(' ')));
}

ProgressBar::ProgressBar() : is_terminal_(::isatty(STDERR_FILENO) == 1 && !is_dumb_terminal()) {}

ProgressBar::~ProgressBar() { clear_bar(); }

void ProgressBar::clear_bar() {
  if (!has_bar_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  has_bar_ = false;
}

double ProgressBar::rate(const DownloadProgress& progress, Clock::time_point now) {
  if (progress.phase != phase_ || (!samples_.empty() && progress.n_done < samples_.back().n_done)) samples_.clear();
  phase_ = progress.phase;
  samples_.push_back({now, progress.n_done});
  while (samples_.size() > 2 && now - samples_[1].at > kRateWindow) samples_.pop_front();
  const std::chrono::duration<double> elapsed = now - samples_.front().at;
  if (elapsed.count() < 0.5) return 0;
  return static_cast<double>(progress.n_done - samples_.front().n_done) / elapsed.count();
}

void ProgressBar::show(const DownloadProgress& progress) {
  const Clock::time_point now = Clock::now();
  const bool is_first = shown_ == Clock::time_point{};
  if (is_first && !is_terminal_) shown_ = now;  // short downloads are not worth a line
  const auto interval = is_terminal_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval);
  const bool is_new = is_terminal_ && (is_first || progress.phase != phase_);  // shown at once
  if (now - shown_ < interval && !is_new) {
    if (samples_.empty() || now - samples_.back().at > kBarInterval) static_cast<void>(rate(progress, now));
    return;
  }
  shown_ = now;
  const double bytes_per_s = rate(progress, now);
  if (!is_terminal_) return print_stderr(progress_line(progress, bytes_per_s));
  const std::string line = fmt::format("\r{}\033[K", progress_bar_text(progress, bytes_per_s, bar_columns()));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  has_bar_ = true;
}

void ProgressBar::print_line(std::string_view line) {
  clear_bar();
  print_stderr(sanitize_line(line));
}

}  // namespace zinc
