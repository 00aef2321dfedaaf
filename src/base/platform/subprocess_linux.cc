#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/deferred_sigint.h"

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 20;  // how late an exit without output, a Ctrl-C or the time limit is noticed
constexpr std::chrono::seconds kInterruptGrace{1};

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Descriptors 0 to 2 become the child's streams. If ours are closed, a new descriptor may get one of these numbers and
// would be overwritten in the child; so all are moved above 2.
Fd above_standard_streams(Fd fd) {
  if (fd.get() < 0 || fd.get() > 2) return fd;
  return Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
}

struct Pipe {
  Fd read_end, write_end;
};

Result<Pipe> open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::io, "cannot open a pipe: {}", std::strerror(errno));
  Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  pipe.read_end = above_standard_streams(std::move(pipe.read_end));
  pipe.write_end = above_standard_streams(std::move(pipe.write_end));
  return pipe;
}

// argv or environment as execvpe wants it. The strings must outlive it.
std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> merged_environment(const Process& process) {
  std::vector<std::string> merged;
  const auto is_replaced = [&](std::string_view entry) {
    for (const auto& [name, value] : process.environment) {
      if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) return true;
    }
    return false;
  };
  for (char** entry = environ; entry && *entry; ++entry) {
    if (!is_replaced(*entry)) merged.emplace_back(*entry);
  }
  for (const auto& [name, value] : process.environment) merged.push_back(name + "=" + value);
  return merged;
}

// Everything the child needs, prepared before fork(): between fork and exec it must not allocate.
struct ChildSetup {
  char** argv;
  char** environment;
  const char* folder;
  int in, out, err, report;  // descriptors; an errno is written to `report` if the program cannot be started
  pid_t parent;
};

[[noreturn]] void exec_child(const ChildSetup& setup) {
  const auto report_and_exit = [&] {
    const int reason = errno;
    [[maybe_unused]] const ssize_t n = ::write(setup.report, &reason, sizeof reason);
    ::_exit(127);
  };
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != setup.parent) ::_exit(127);  // the parent died before prctl()
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (::dup2(setup.in, 0) < 0 || ::dup2(setup.out, 1) < 0 || ::dup2(setup.err, 2) < 0) report_and_exit();
  if (*setup.folder && ::chdir(setup.folder) != 0) report_and_exit();
  ::execvpe(setup.argv[0], setup.argv, setup.environment);
  report_and_exit();
  ::_exit(127);
}

// Appends all readable bytes of `fd`, up to the limit; closes it at end of file.
void drain(Fd& fd, std::string& into) {
  std::array<char, 65536> chunk;
  while (fd.get() >= 0) {
    const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return fd.close();
    const size_t n_free = kMaxCaptureBytes - into.size();
    into.append(chunk.data(), std::min(n_free, static_cast<size_t>(n)));
  }
}

struct Child {
  pid_t pid;
  Fd out, err;  // read ends; closed where the output is not captured
};

ProcessResult wait_for(Child child, const Process& process) {
  ProcessResult end;
  const Clock::time_point started = Clock::now();
  std::optional<Clock::time_point> interrupted;
  for (const Fd* fd : {&child.out, &child.err}) {
    if (fd->get() >= 0) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  }
  for (;;) {
    pollfd polled[2] = {{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}};  // poll skips negative descriptors
    ::poll(polled, 2, kPollMs);
    // waitpid() before the last read: then all output of the child is in the pipes. Later output of a grandchild is
    // not waited for.
    int status = 0;
    const bool ended = ::waitpid(child.pid, &status, WNOHANG) == child.pid;
    drain(child.out, end.out);
    drain(child.err, end.err);
    if (ended) {
      end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return end;
    }
    // A Ctrl-C in a terminal reaches the child as well; give it time to clean up.
    if (!interrupted && (sigint_pending() || process.cancelled())) interrupted = Clock::now();
    if (interrupted && Clock::now() - *interrupted > kInterruptGrace) ::kill(child.pid, SIGTERM);
    const bool is_late = process.time_limit.count() > 0 && Clock::now() - started > process.time_limit;
    if (is_late && !end.timed_out) {
      end.timed_out = true;
      ::kill(child.pid, SIGKILL);
    }
  }
}

// The errno if exec failed in the child; nullopt if it succeeded.
std::optional<int> read_start_failure(const Fd& report) {
  int reason = 0;
  ssize_t n;
  do {
    n = ::read(report.get(), &reason, sizeof reason);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof reason) return reason;
  return std::nullopt;
}

struct Streams {
  Pipe out, err;
};

Result<Streams> open_streams(ProcessOutput output, const Fd& dev_null) {
  if (output == ProcessOutput::capture) {
    ZINC_TRY(out, open_pipe());
    ZINC_TRY(err, open_pipe());
    return Streams{std::move(out), std::move(err)};
  }
  const bool has_stderr = ::fcntl(2, F_GETFD) >= 0;
  const int shown = has_stderr ? 2 : dev_null.get();
  const auto copy = [shown] { return Pipe{Fd(), Fd(::fcntl(shown, F_DUPFD_CLOEXEC, 3))}; };
  return Streams{copy(), copy()};
}

}  // namespace

Result<ProcessResult> run_process(const Process& process) {
  ZINC_CHECK(!process.argv.empty());
  const std::vector<std::string> environment = merged_environment(process);
  const std::string folder = process.folder.string();
  std::vector<char*> argv_pointers = pointers_to(process.argv);
  std::vector<char*> environment_pointers = pointers_to(environment);
  const Fd dev_null = above_standard_streams(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  ZINC_TRY(report, open_pipe());
  ZINC_TRY(streams, open_streams(process.output, dev_null));
  auto& [out, err] = streams;
  const ChildSetup setup{.argv = argv_pointers.data(),
                         .environment = environment_pointers.data(),
                         .folder = folder.c_str(),
                         .in = dev_null.get(),
                         .out = out.write_end.get(),
                         .err = err.write_end.get(),
                         .report = report.write_end.get(),
                         .parent = ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::io, "{}: cannot start a process: {}", process.argv[0], std::strerror(errno));
  if (pid == 0) exec_child(setup);
  for (Fd* fd : {&report.write_end, &out.write_end, &err.write_end}) fd->close();
  if (const std::optional<int> reason = read_start_failure(report.read_end)) {
    ::waitpid(pid, nullptr, 0);
    const ErrorCode code = *reason == ENOENT ? ErrorCode::not_found : ErrorCode::io;
    return fail(code, "{}: cannot run the program: {}", process.argv[0], std::strerror(*reason));
  }
  return wait_for({pid, std::move(out.read_end), std::move(err.read_end)}, process);
}

}  // namespace zinc
