#include "backend/cuda/kernel_cache.h"

#include <cstring>
#include <fstream>
#include <span>

#include "backend/gpu/panel_format.h"
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

std::vector<SourceFile> simt_sources() {
  std::vector<SourceFile> files;
  for (const SourceFile* file = kSimtSources; file->name; ++file) files.push_back(*file);
  return files;
}

bool has_format(std::string_view name) {
  const std::string path = fmt::format("backend/simt/format/{}.h", name);
  for (const SourceFile* file = kSimtSources; file->name; ++file) {
    if (path == file->name) return true;
  }
  return false;
}

std::string KernelProgram::source() const {
  const std::string defined =
      shape.empty() ? "" : fmt::format("#include \"backend/simt/params.h\"\nnamespace zinc::simt {{ {} }}\n", shape);
  const std::string kernel_include = fmt::format("{}#include \"backend/simt/{}.cu\"\n", defined, file);
  if (const gpu::PanelFormat* panel = gpu::find_panel_format(format)) {
    return fmt::format(
        "namespace zinc::simt {{ inline constexpr int kHostHeaderBytes = {}, kHostGroupBytes = {}, kHostQ8Block = "
        "{}; }}\n#include \"backend/simt/format/{}.h\"\n"
        "namespace zinc::simt {{ using Formats = List<WeightFormat>; }}\n{}",
        panel->header_bytes, panel->group_bytes, panel->q8_block, format, kernel_include);
  }
  if (format.empty()) return kernel_include;
  std::string out, list;
  for (size_t begin = 0; begin < format.size();) {
    const size_t end_of_name = std::min(format.find('+', begin), format.size());
    const std::string name = format.substr(begin, end_of_name - begin);
    out += fmt::format("#define WeightFormat Format_{0}\n#include \"backend/simt/format/{0}.h\"\n#undef WeightFormat\n",
                       name);
    list += (list.empty() ? "Format_" : ", Format_") + name;
    begin = end_of_name + 1;
  }
  return out + fmt::format("namespace zinc::simt {{ using Formats = List<{}>; }}\n", list) + kernel_include;
}

std::filesystem::path KernelCache::path_of(const std::string& source, const std::string& compiler) const {
  std::string all = source + "|" + architecture_ + "|" + compiler;
  for (const SourceFile& file : simt_sources()) all += fmt::format("|{}|{}", file.name, file.text);
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
  ZINC_TRY(compiled, nvrtc.compile(source, simt_sources(), architecture_));
  ++n_compiled_;
  if (!path.empty()) write_entry(path, compiled.cubin);
  return std::move(compiled.cubin);
}

}  // namespace zinc::cuda
