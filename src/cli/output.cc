#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace zinc {

Status write_output(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return flush_output();
}

Status flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return ok_status();
  return fail(ErrorCode::io, "standard output could not be written: {}",
              errno != 0 ? std::strerror(errno) : "an earlier write failed");
}

void note(std::string_view line) {
  const std::string whole = std::string(line) + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

}  // namespace zinc
