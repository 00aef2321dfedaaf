#include "backend/cuda/kernel_store.h"

#include <cstring>
#include <fstream>
#include <span>

#include "backend/cuda/formats.h"
#include "base/atomic_file.h"
#include "base/sha256.h"

namespace zinc::cuda {
namespace {

constexpr size_t kHashChars = 64;

std::string hash_of(std::span<const char> bytes) { return sha256_hex(std::as_bytes(bytes)); }

// An entry is the hash of the machine code, then the code.
std::vector<char> read_entry(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() <= kHashChars) return {};
  const std::vector<char> code(bytes.begin() + kHashChars, bytes.end());
  if (hash_of(code) != std::string_view(bytes.data(), kHashChars)) return {};
  return code;
}

void write_entry(const std::filesystem::path& path, const std::vector<char>& code) {
  std::error_code ignored;  // a cache that cannot be written is no error
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

std::string KernelProgram::text() const {
  const std::string defined =
      shape.empty() ? "" : fmt::format("#include \"backend/simt/params.h\"\nnamespace zinc::simt {{ {} }}\n", shape);
  const std::string end = fmt::format("{}#include \"backend/simt/{}.cu\"\n", defined, file);
  if (const PanelFormat* panel = find_panel_format(format)) {
    return fmt::format(
        "namespace zinc::simt {{ inline constexpr int kHostHeaderBytes = {}, kHostGroupBytes = {}, kHostRoundedBlock = "
        "{}; }}\n#include \"backend/simt/format/{}.h\"\n"
        "namespace zinc::simt {{ using Formats = List<WeightFormat>; }}\n{}",
        panel->header_bytes, panel->group_bytes, panel->rounded_block, format, end);
  }
  if (format.empty()) return end;
  std::string out, list;
  for (size_t begin = 0; begin < format.size();) {
    const size_t past = std::min(format.find('+', begin), format.size());
    const std::string name = format.substr(begin, past - begin);
    out += fmt::format("#define WeightFormat Format_{0}\n#include \"backend/simt/format/{0}.h\"\n#undef WeightFormat\n",
                       name);
    list += (list.empty() ? "Format_" : ", Format_") + name;
    begin = past + 1;
  }
  return out + fmt::format("namespace zinc::simt {{ using Formats = List<{}>; }}\n", list) + end;
}

std::filesystem::path KernelStore::path_of(const std::string& text, const std::string& compiler) const {
  std::string all = text + "|" + architecture_ + "|" + compiler;
  for (const SourceFile& file : simt_sources()) all += fmt::format("|{}|{}", file.name, file.text);
  return folder_ / "kernels" / (hash_of(all) + ".cubin");
}

Result<Nvrtc> KernelStore::compiler() {
  const std::lock_guard lock(mutex_);
  if (!compiler_) {
    ZINC_TRY(compiler, Nvrtc::open(library_));
    compiler_ = compiler;
  }
  return *compiler_;
}

Result<std::vector<char>> KernelStore::cubin(const KernelProgram& program) {
  ZINC_TRY(nvrtc, compiler());
  const std::string text = program.text();
  const std::filesystem::path path = folder_.empty() ? folder_ : path_of(text, nvrtc.version());
  if (!path.empty()) {
    if (std::vector<char> kept = read_entry(path); !kept.empty()) return kept;
  }
  ZINC_TRY(compiled, nvrtc.compile(text, simt_sources(), architecture_));
  ++n_compiled_;
  if (!path.empty()) write_entry(path, compiled.cubin);
  return std::move(compiled.cubin);
}

}  // namespace zinc::cuda
