#include "backend/cuda/kernel_cache.h"

#include <cstring>
#include <fstream>
#include <span>

#include "base/atomic_file.h"
#include "base/sha256.h"

namespace zinc::cuda {
namespace {

constexpr size_t kHashChars = 64;

std::string hash_of(std::span<const char> bytes) { return sha256_hex(std::as_bytes(bytes)); }

// An entry: hash of the machine code, then the code.
std::vector<char> read_entry(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() <= kHashChars) return {};
  const std::vector<char> code(bytes.begin() + kHashChars, bytes.end());
  if (hash_of(code) != std::string_view(bytes.data(), kHashChars)) return {};
  return code;
}

void write_entry(const std::filesystem::path& path, const std::vector<char>& code) {
  std::error_code ignored;  // an unwritable cache is not an error
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::string bytes = hash_of(code);
  bytes.append(code.begin(), code.end());
  [[maybe_unused]] const Status written = write_file_atomically(path, bytes);
}

}  // namespace

std::filesystem::path KernelCache::path_of(const std::string& source, const std::string& compiler) const {
  std::string all = source + "|" + architecture_ + "|" + compiler;
  for (const simt::host::SourceFile& file : simt::host::simt_sources())
    all += fmt::format("|{}|{}", file.name, file.text);
  return cache_dir_ / "kernels" / (hash_of(all) + ".cubin");
}

Result<Nvrtc> KernelCache::compiler() {
  const std::lock_guard lock(mutex_);
  if (!compiler_) {
    ZINC_TRY(compiler, Nvrtc::open(library_));
    compiler_ = compiler;
  }
  return *compiler_;
}

Result<std::vector<char>> KernelCache::get_or_compile(const KernelProgram& program) {
  ZINC_TRY(nvrtc, compiler());
  const std::string source = program.source();
  const std::filesystem::path path = cache_dir_.empty() ? cache_dir_ : path_of(source, nvrtc.version());
  if (!path.empty()) {
    if (std::vector<char> cached = read_entry(path); !cached.empty()) return cached;
  }
  ZINC_TRY(compiled, nvrtc.compile(source, simt::host::simt_sources(), architecture_));
  ++n_compiled_;
  if (!path.empty()) write_entry(path, compiled.cubin);
  return std::move(compiled.cubin);
}

}  // namespace zinc::cuda
