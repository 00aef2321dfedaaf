// The embedded kernels are those of the sources. Host and kernels read the parameters of params/*.h from the same
// declaration; this compares the layout that the GLSL compiler gave them with the C++ layout.
#include "backend/vulkan/kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "backend/vulkan/params.h"

namespace zinc::vulkan {
namespace {

// The types of a SPIR-V module, laid out by the rules of C++.
class Types {
 public:
  struct Layout {
    uint32_t size = 0, alignment = 1;
  };

  explicit Types(std::span<const uint32_t> module) {
    constexpr size_t kHeaderWords = 5;
    for (std::span<const uint32_t> rest = module.subspan(kHeaderWords); !rest.empty();) {
      const size_t n_words = rest[0] >> 16;
      add(rest[0] & 0xFFFFu, rest.subspan(1, n_words - 1));
      rest = rest.subspan(n_words);
    }
  }

  const std::vector<uint32_t>& uniform_blocks() const { return uniform_blocks_; }  // types, in the order of declaration
  const std::vector<std::string>& differences() const { return differences_; }     // found by layout_of()

  Layout layout_of(uint32_t type) {
    const Type& t = types_.at(type);
    switch (t.op) {
      case kTypeInt:
      case kTypeFloat:
        return {t.operands[0] / 8, t.operands[0] / 8};
      case kTypeArray: {
        const Layout element = layout_of(t.operands[0]);
        expect("stride of an array", array_strides_.at(type), element.size);
        return {element.size * constants_.at(t.operands[1]), element.alignment};
      }
      case kTypeStruct:
        return layout_of_struct(type, t);
      default:
        differences_.push_back(fmt::format("a parameter has the type of opcode {}", t.op));
        return {};
    }
  }

 private:
  enum Op : uint32_t {
    kTypeInt = 21,
    kTypeFloat = 22,
    kTypeArray = 28,
    kTypeStruct = 30,
    kTypePointer = 32,
    kConstant = 43,
    kVariable = 59,
    kDecorate = 71,
    kMemberDecorate = 72
  };
  enum Decoration : uint32_t { kArrayStride = 6, kOffset = 35 };
  static constexpr uint32_t kUniform = 2;  // storage class

  struct Type {
    uint32_t op;
    std::vector<uint32_t> operands;  // after the result
  };

  void add(uint32_t op, std::span<const uint32_t> w) {
    if (op == kTypeInt || op == kTypeFloat || op == kTypeArray || op == kTypeStruct || op == kTypePointer) {
      types_[w[0]] = {op, {w.begin() + 1, w.end()}};
    }
    if (op == kConstant) constants_[w[1]] = w[2];
    if (op == kDecorate && w[1] == kArrayStride) array_strides_[w[0]] = w[2];
    if (op == kMemberDecorate && w[2] == kOffset) offsets_[{w[0], w[1]}] = w[3];
    if (op == kVariable && w[2] == kUniform) uniform_blocks_.push_back(types_.at(w[0]).operands[1]);
  }

  Layout layout_of_struct(uint32_t type, const Type& t) {
    Layout out;
    for (uint32_t i = 0; i < t.operands.size(); ++i) {
      const Layout member = layout_of(t.operands[i]);
      out.size = round_up(out.size, member.alignment);
      expect(fmt::format("offset of member {}", i), offsets_.at({type, i}), out.size);
      out.size += member.size;
      out.alignment = std::max(out.alignment, member.alignment);
    }
    out.size = round_up(out.size, out.alignment);
    return out;
  }

  void expect(std::string_view what, uint32_t in_kernel, uint32_t in_cpp) {
    if (in_kernel != in_cpp) differences_.push_back(fmt::format("{}: {}, in C++ {}", what, in_kernel, in_cpp));
  }
  static uint32_t round_up(uint32_t n, uint32_t alignment) { return (n + alignment - 1) / alignment * alignment; }

  std::map<uint32_t, Type> types_;
  std::map<uint32_t, uint32_t> constants_, array_strides_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> offsets_;
  std::vector<uint32_t> uniform_blocks_;
  std::vector<std::string> differences_;
};

// Of a folder of shaders and of the params folders, as tools/shaders computes it.
uint64_t hash_sources(const std::filesystem::path& shaders) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    hash *= 0x100000001b3u;  // a zero byte terminates each
  };
  const std::filesystem::path backends = shaders.parent_path().parent_path();
  for (const auto& folder : {shaders, backends / "gpu/params", backends / "vulkan/params"}) {
    std::vector<std::pair<std::string, std::filesystem::path>> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      files.emplace_back(entry.path().lexically_relative(folder).generic_string(), entry.path());
    }
    std::ranges::sort(files);
    for (const auto& [name, path] : files) {
      std::ifstream file(path, std::ios::binary);
      add(name);
      add(std::string(std::istreambuf_iterator<char>(file), {}));
    }
  }
  return hash;
}

TEST(Kernels, spv_file_matches_shader_sources) {
  const std::filesystem::path folder = std::filesystem::path(ZINC_SOURCE_DIR) / "src/backend/vulkan/shader";
  EXPECT_EQ(kernels_hash(), hash_sources(folder))
      << "kernels.spv was not built from these shaders: see Rebuilding the kernels in src/backend/vulkan/README.md";
}

TEST(Kernels, parameters_have_the_layout_of_the_host) {
  for (const std::string_view name : kernel_names()) {
    Types types(find_kernel(name));
    ASSERT_FALSE(types.uniform_blocks().empty()) << name;
    for (const uint32_t block : types.uniform_blocks()) types.layout_of(block);
    EXPECT_EQ(types.differences(), std::vector<std::string>{}) << name;
  }
}

TEST(Kernels, parameters_have_the_size_of_the_host) {
  const auto sizes = [](std::string_view kernel) {
    Types types(find_kernel(kernel));
    std::vector<size_t> out;
    for (const uint32_t block : types.uniform_blocks()) out.push_back(types.layout_of(block).size);
    std::ranges::sort(out);
    return out;
  };
  const size_t step = sizeof(shader::StepParams);
  EXPECT_EQ(sizes("linear.q4_k"), (std::vector{step, sizeof(shader::LinearParams)}));
  EXPECT_EQ(sizes("attention.f16"), (std::vector{step, sizeof(shader::AttentionParams)}));
  EXPECT_EQ(sizes("delta_decode"), (std::vector{step, sizeof(shader::DeltaDecodeParams)}));
  EXPECT_EQ(sizes("elementwise"), (std::vector{sizeof(shader::ElementwiseParams), step}));
}

}  // namespace
}  // namespace zinc::vulkan
