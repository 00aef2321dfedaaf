// Runs the program `zinc inspect` on generated files.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

struct Finished {
  std::string output;  // stdout and stderr
  int exit_code;
};

Finished run_inspect(const std::string& arguments) {
  FILE* pipe = ::popen((std::string(ZINC_PROGRAM " inspect ") + arguments + " 2>&1").c_str(), "r");
  Finished finished{};
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) finished.output.append(buffer, n);
  finished.exit_code = WEXITSTATUS(::pclose(pipe));
  return finished;
}

class Inspect : public testing::Test {
 protected:
  static GgufWriter model() {
    GgufWriter w;
    w.add("general.architecture", "llama").add("general.name", "Tiny\x1b[2J").add("llama.block_count", uint32_t{2});
    w.add("llama.rope.freq_base", 10000.5f).add("big", std::numeric_limits<uint64_t>::max());
    w.add("inf", std::numeric_limits<float>::infinity()).add("raw", "\xff");
    w.add("tokens", std::vector<std::string>(20, "tok")).add("pairs", std::vector<std::vector<int32_t>>{{1, 2}, {3}});
    w.add_tensor("embd", {3, 32}, *find_format("q8_0"), std::vector<float>(96, 1.0f));
    w.add_tensor("norm", {4}, *find_format("f32"), std::vector<float>(4, 1.0f));
    return w;
  }

  json::object inspect_json(const std::filesystem::path& path) {
    const Finished finished = run_inspect("--json " + path.string());
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    const auto parsed = parse_json(finished.output.substr(0, finished.output.size() - 1));
    EXPECT_TRUE(parsed.ok()) << finished.output;
    return parsed.ok() ? parsed.value().as_object() : json::object();
  }

  const TestFolder folder_;
};

TEST_F(Inspect, json_contains_metadata_and_tensors) {
  model().write(folder_ / "m.gguf");
  json::object found = inspect_json(folder_ / "m.gguf");
  EXPECT_EQ(found["architecture"], "llama");
  EXPECT_EQ(found["file_bytes"], std::filesystem::file_size(folder_ / "m.gguf"));
  EXPECT_EQ(found["total"].at("parameters"), 100);
  EXPECT_EQ(found["total"].at("bytes"), 3 * 34 + 16);
  EXPECT_EQ(found["types"].at("q8_0").at("bits_per_weight"), 8.5);
  const json::value& metadata = found["metadata"];
  EXPECT_EQ(metadata.at("llama.block_count"), (json::value{{"type", "u32"}, {"value", 2}}));
  EXPECT_EQ(metadata.at("llama.rope.freq_base").at("value"), 10000.5);
  EXPECT_EQ(metadata.at("big").at("value"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(metadata.at("inf").at("value"), "inf");
  EXPECT_EQ(metadata.at("raw").at("value"), "\xEF\xBF\xBD");
  EXPECT_EQ(metadata.at("tokens").at("element_type"), "string");
  EXPECT_EQ(metadata.at("tokens").at("length"), 20);
  EXPECT_EQ(metadata.at("tokens").at("first").as_array().size(), 8u);
  EXPECT_EQ(metadata.at("pairs").at("first").at(0).at("first"), (json::array{1, 2}));
  json::value embd = found["tensors"].at(0);
  EXPECT_EQ(embd.at("offset").to_number<uint64_t>() % 32, 0u);
  embd.as_object().erase("offset");
  EXPECT_EQ(
      embd,
      (json::value{{"name", "embd"}, {"type", "q8_0"}, {"shape", json::array{3, 32}}, {"bytes", 102}, {"shard", 0}}));
}

TEST_F(Inspect, tensors_of_a_split_model_have_their_shard) {
  json::object found = inspect_json(model().write_split(folder_ / "m", 2));
  EXPECT_EQ(found["shards"].as_array().size(), 2u);
  EXPECT_EQ(found["tensors"].at(1).at("name"), "norm");
  EXPECT_EQ(found["tensors"].at(1).at("shard"), 1);
}

TEST_F(Inspect, human_readable_output_shortens_arrays_and_escapes_names) {
  model().write(folder_ / "m.gguf");
  const Finished brief = run_inspect((folder_ / "m.gguf").string());
  EXPECT_EQ(brief.output.find("[3,32]"), std::string::npos) << "tensors only on request";
  EXPECT_NE(brief.output.find("--tensors"), std::string::npos);
  const Finished finished = run_inspect((folder_ / "m.gguf").string() + " --tensors");
  EXPECT_EQ(finished.exit_code, 0);
  for (const std::string expected :
       {"Tiny\\u001b[2J", "llama", "string[20]", "'tok', ...]", "[3,32]", "q8_0", "parameters       100 "}) {
    EXPECT_NE(finished.output.find(expected), std::string::npos) << expected << "\n" << finished.output;
  }
  EXPECT_EQ(finished.output.find('\x1b'), std::string::npos);
}

TEST_F(Inspect, tensors_are_listed_in_natural_order) {
  GgufWriter w = model();
  for (const char* name : {"blk.10.norm", "blk.2.norm"}) {
    w.add_tensor(name, {4}, *find_format("f32"), std::vector<float>(4, 1.0f));
  }
  w.write(folder_ / "m.gguf");
  const std::string output = run_inspect((folder_ / "m.gguf").string() + " --tensors").output;
  ASSERT_NE(output.find("blk.10.norm"), std::string::npos) << output;
  EXPECT_LT(output.find("blk.2.norm"), output.find("blk.10.norm")) << output;
}

TEST_F(Inspect, a_bad_file_is_one_line_and_exit_code_1) {
  const Finished absent = run_inspect((folder_ / "absent.gguf").string());
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_EQ(std::count(absent.output.begin(), absent.output.end(), '\n'), 1) << absent.output;
  EXPECT_NE(absent.output.find("absent.gguf"), std::string::npos);
}

}  // namespace
}  // namespace zinc
