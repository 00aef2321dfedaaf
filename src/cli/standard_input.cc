#include "cli/standard_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "cli/output.h"

namespace zinc {
namespace {

constexpr std::chrono::milliseconds kQuietInput{2000};
constexpr size_t kMaxInputBytes = size_t{64} << 20;  // more than any model's context holds

// Waits for the first byte; prints the notice if none arrives soon.
void await_input(std::string_view notice) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&input, 1, static_cast<int>(kQuietInput.count())) == 0) print_stderr(notice);
}

}  // namespace

bool has_piped_input() { return ::fcntl(STDIN_FILENO, F_GETFD) != -1 && !::isatty(STDIN_FILENO); }

Result<std::string> read_standard_input(std::string_view notice) {
  await_input(notice);
  std::string text;
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return fail(ErrorCode::io, "the prompt could not be read from standard input: {}", std::strerror(errno));
    }
    if (n == 0) return text;
    text.append(block.data(), static_cast<size_t>(n));
    if (text.size() > kMaxInputBytes) {
      return fail(ErrorCode::invalid_input, "the prompt on standard input is longer than {} bytes", kMaxInputBytes);
    }
  }
}

}  // namespace zinc
