#include "backend/simt/host/kernel_program.h"

#include <algorithm>

#include "backend/gpu/panel_format.h"

namespace zinc::simt::host {

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

std::vector<std::string_view> kv_format_names() {
  constexpr std::string_view kFolder = "backend/simt/kv_format/", kEnding = ".h";
  std::vector<std::string_view> names;
  for (const SourceFile* file = kSimtSources; file->name; ++file) {
    std::string_view name = file->name;
    if (!name.starts_with(kFolder)) continue;
    name.remove_prefix(kFolder.size());
    name.remove_suffix(kEnding.size());
    names.push_back(name);
  }
  return names;
}

std::string KernelProgram::source() const {
  std::string defined =
      shape.empty() ? "" : fmt::format("#include \"backend/simt/params.h\"\nnamespace zinc::simt {{ {} }}\n", shape);
  if (!kv_format.empty()) defined += fmt::format("#include \"backend/simt/kv_format/{}.h\"\n", kv_format);
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

}  // namespace zinc::simt::host
