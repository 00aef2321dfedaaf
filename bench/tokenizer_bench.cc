// Tokenization speed, and loading time of a vocabulary:
//   tokenizer_bench TEXT MODEL.gguf... [--benchmark_min_time=...]
// For each model: load, encode TEXT as a whole, encode it in prompts of 2 kB, and one word of a megabyte. Compare with
// llama_tokenize() of libllama on the same files and the same core at the same time.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "text/tokenizer.h"

namespace zinc {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void bench_load(benchmark::State& state, const GgufFile& file) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(file).ok());
}

void bench_encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text, size_t n_piece_bytes) {
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    for (size_t at = 0; at < text.size(); at += n_piece_bytes) {
      tokenizer.encode(std::string_view(text).substr(at, n_piece_bytes), {}, ids);
    }
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * static_cast<int64_t>(state.iterations()));
  state.counters["tokens"] = static_cast<double>(ids.size());
}

Status register_model(const std::string& path, const std::shared_ptr<const std::string>& text) {
  ZINC_TRY(opened, GgufFile::open(path));
  const auto file = std::make_shared<GgufFile>(std::move(opened));
  ZINC_TRY(tokenizer, Tokenizer::load(*file));
  constexpr size_t kPromptBytes = 2000;
  const std::string name = std::filesystem::path(path).stem().string();
  const auto encode = [&](const char* what, std::shared_ptr<const std::string> input, size_t n_piece_bytes) {
    const auto run = [tokenizer, input, n_piece_bytes](benchmark::State& state) {
      bench_encode(state, tokenizer, *input, n_piece_bytes);
    };
    benchmark::RegisterBenchmark((name + what).c_str(), run)->Unit(benchmark::kMillisecond);
  };
  benchmark::RegisterBenchmark((name + "/load").c_str(), [file](benchmark::State& state) {
    bench_load(state, *file);
  })->Unit(benchmark::kMillisecond);
  encode("/text", text, text->size());
  encode("/prompts", text, kPromptBytes);
  encode("/one_word", std::make_shared<std::string>(1 << 20, 'a'), 1 << 20);
  std::string chinese;
  while (chinese.size() < 1 << 20) chinese += "没有空格的一句很长的中文";
  encode("/one_chinese_word", std::make_shared<std::string>(chinese), chinese.size());
  return ok_status();
}

}  // namespace
}  // namespace zinc

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer_bench TEXT MODEL.gguf...\n");
    return 2;
  }
  const auto text = std::make_shared<const std::string>(zinc::read_file(argv[1]));
  if (text->empty()) {
    fmt::print(stderr, "{}: nothing to read\n", argv[1]);
    return 1;
  }
  for (int i = 2; i < argc; ++i) {
    const zinc::Status status = zinc::register_model(argv[i], text);
    if (status.ok()) continue;
    fmt::print(stderr, "{}\n", status.error().message);
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
