#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "cli/terminal.h"
#include "cli/word_wrap.h"

namespace zinc {

Status write_output(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return flush_output();
}

Status flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return ok_status();
  return fail(ErrorCode::io, "cannot write to standard output: {}",
              errno != 0 ? std::strerror(errno) : "an earlier write failed");
}

void write_stderr(std::string_view line) {
  const std::string with_newline = std::string(line) + "\n";
  std::fwrite(with_newline.data(), 1, with_newline.size(), stderr);
}

void print_stderr(std::string_view line) {
  constexpr int kIndent = 2;  // of continuation lines
  write_stderr(wrap_words(line, terminal_width(STDERR_FILENO), kIndent));
}

}  // namespace zinc
