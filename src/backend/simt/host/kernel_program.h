// Programs of the kernels in backend/simt, as source text: what a run-time compiler compiles. The kernel sources are
// embedded in the program.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::simt::host {

struct SourceFile {
  const char* name;  // include path
  const char* text;
};
extern const SourceFile kSimtSources[];  // all files of backend/simt, terminated by a null name
std::vector<SourceFile> simt_sources();
bool has_format(std::string_view name);           // a weight format of the kernels: backend/simt/format has its file
std::vector<std::string_view> kv_format_names();  // the files of backend/simt/kv_format

// One compilation unit: a kernel file of backend/simt, with the formats it is compiled for.
struct KernelProgram {
  std::string file;                 // "linear"
  std::string format;               // "q4_k", or several: "q4_k+q6_k"; empty: none
  std::string shape = "";           // compile-time shape, as a definition of kShape; empty: none
  std::string_view kv_format = "";  // KV cache format: a file of backend/simt/kv_format; empty: none
  std::string source() const;
};

// Defines a program's compile-time shape. A shape is a struct of ints (backend/simt/params): they are written in the
// order of their declaration.
template <class Shape>
std::string shape_definition(std::string_view type, const Shape& shape, std::string_view name = "kShape") {
  std::string ints;
  for (const int n : std::bit_cast<std::array<int, sizeof(Shape) / sizeof(int)>>(shape)) {
    ints += fmt::format("{}{}", ints.empty() ? "" : ", ", n);
  }
  return fmt::format("inline constexpr {} {} = {{{}}};", type, name, ints);
}

}  // namespace zinc::simt::host
