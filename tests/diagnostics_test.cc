// Traces, comparisons of backends, and the environment, as a user meets them: on tiny models.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <regex>
#include <set>

#include "base/json.h"
#include "base/subprocess.h"
#include "engine/compare_models.h"
#include "engine/model_runner.h"
#include "tests/support/contains_all.h"
#include "tests/support/serving.h"
#include "tests/support/test_files.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

const std::string kModel = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen3-q8_0.gguf";

struct Span {
  std::string name, category;
  double begin = 0, end = 0;
  json::object args = {};
  double duration() const { return end - begin; }
};

// The spans of a trace by the names of their group and track, and all names of instants.
struct ParsedTrace {
  std::map<std::string, std::vector<Span>> tracks;  // "group/track"
  std::vector<std::string> instants;
  std::set<std::string> counters;

  const std::vector<Span>& track(std::string_view ending) const {
    for (const auto& [name, spans] : tracks) {
      if (name.ends_with(ending)) return spans;
    }
    static const std::vector<Span> none;
    ADD_FAILURE() << "no track " << ending;
    return none;
  }
  bool has_instant(std::string_view beginning) const {
    return std::ranges::any_of(instants, [&](const std::string& name) { return name.starts_with(beginning); });
  }
};

ParsedTrace parse_trace(const fs::path& path) {
  ParsedTrace out;
  const Result<json::value> parsed = parse_json(contents(path));
  EXPECT_TRUE(parsed.ok()) << path;
  if (!parsed.ok()) return out;
  std::map<int64_t, std::string> groups, tracks;
  for (const json::value& event : parsed.value().at("traceEvents").as_array()) {
    const std::string phase(event.at("ph").as_string()), name(event.at("name").as_string());
    const int64_t track = event.at("tid").to_number<int64_t>();
    if (phase == "M") {
      if (name == "process_name")
        groups[event.at("pid").to_number<int64_t>()] = event.at("args").at("name").as_string();
      if (name == "thread_name") {
        tracks[track] =
            groups[event.at("pid").to_number<int64_t>()] + "/" + std::string(event.at("args").at("name").as_string());
      }
    } else if (phase == "i") {
      out.instants.push_back(name);
    } else if (phase == "C") {
      out.counters.insert(name);
    } else {
      EXPECT_EQ(phase, "X");
      const double begin = event.at("ts").to_number<double>();
      Span span{name, std::string(event.at("cat").as_string()), begin, begin + event.at("dur").to_number<double>()};
      if (const json::value* args = event.as_object().if_contains("args")) span.args = args->as_object();
      out.tracks[tracks.at(track)].push_back(std::move(span));
    }
  }
  return out;
}

// Every span lies inside the one that is open when it begins.
void expect_nesting(const ParsedTrace& trace) {
  constexpr double kRounding = 1e-3;  // microseconds
  for (const auto& [name, spans] : trace.tracks) {
    std::vector<double> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back() <= span.begin + kRounding) open.pop_back();
      EXPECT_TRUE(open.empty() || span.end <= open.back() + kRounding) << name << ": " << span.name;
      open.push_back(span.end);
    }
  }
}

double sum_of(const std::vector<Span>& spans, std::string_view category) {
  double sum = 0;
  for (const Span& span : spans) sum += span.category == category ? span.duration() : 0;
  return sum;
}

// The share of the steps' time that their kernels take.
double kernel_share(const std::vector<Span>& device) { return sum_of(device, "kernel") / sum_of(device, "span"); }

constexpr double kKernelShare = 0.9;
// Other programs may take the core between two kernels: one run without that is enough.
constexpr int kTimedAttempts = 10;

class TracedProgram : public testing::Test {
 protected:
  ProcessResult shell(const std::string& script) const {
    Process process{.argv = {"sh", "-c", script}, .folder = folder_.path(), .time_limit = std::chrono::seconds(120)};
    process.environment = {{"ZINC", ZINC_PROGRAM}, {"MODEL", kModel}};
    const Result<ProcessResult> end = run_process(process);
    EXPECT_TRUE(end.ok()) << end.error().message;
    return end.ok() ? end.value() : ProcessResult{.exit_code = -1};
  }
  ParsedTrace trace(std::string_view name = "trace.json") const { return parse_trace(folder_ / name); }

  const TestFolder folder_;
};

TEST_F(TracedProgram, run_has_a_request_its_steps_and_their_kernels) {
  ParsedTrace t;
  double covered = 0;  // of the request's time, by the steps
  for (int attempt = 0; attempt < kTimedAttempts; ++attempt) {
    const ProcessResult end =
        shell("$ZINC run $MODEL --raw -p 'one two three four' -n 12 --device cpu -t 1 --temp 1 --trace trace.json");
    ASSERT_EQ(end.exit_code, 0) << end.err;
    EXPECT_TRUE(contains_all(end.err, {"trace.json", "perfetto"}));
    t = trace();
    const std::vector<Span>& steps = t.track("/device");
    const std::vector<Span>& requests = t.track(" requests/row 0");
    ASSERT_FALSE(steps.empty() || requests.empty());
    covered = (steps.back().end - steps.front().begin) / requests[0].duration();
    if (kernel_share(steps) >= kKernelShare && covered >= 0.5) break;
  }
  expect_nesting(t);
  const std::vector<Span>& request = t.track(" requests/row 0");
  ASSERT_EQ(request.size(), 4u);
  EXPECT_TRUE(request[0].name.starts_with("request 1: "));
  EXPECT_EQ(request[1].name, "queued");
  EXPECT_EQ(request[2].name, "prefill");
  EXPECT_EQ(request[3].name, "decode");
  const double phases = request[1].duration() + request[2].duration() + request[3].duration();
  EXPECT_NEAR(phases, request[0].duration(), 0.05 * request[0].duration());
  const std::vector<Span>& device = t.track("/device");
  EXPECT_GE(kernel_share(device), kKernelShare);
  EXPECT_LE(kernel_share(device), 1.001);
  std::set<int64_t> layers;
  for (const Span& span : device) {
    if (span.category == "kernel" && span.args.contains("layer"))
      layers.insert(span.args.at("layer").to_number<int64_t>());
  }
  EXPECT_EQ(*layers.begin(), 0);
  EXPECT_EQ(layers.size(), static_cast<size_t>(*layers.rbegin()) + 1);
  EXPECT_GE(covered, 0.5) << "something else than the steps takes long";
  EXPECT_TRUE(std::ranges::any_of(t.track("/host"), [](const Span& span) { return span.name == "sampling"; }));
}

TEST_F(TracedProgram, steps_only_has_no_kernels) {
  ASSERT_EQ(shell("$ZINC run $MODEL --raw -p one -n 3 --device cpu --trace t.json --trace-detail steps").exit_code, 0);
  const ParsedTrace t = trace("t.json");
  EXPECT_EQ(sum_of(t.track("/device"), "kernel"), 0);
  EXPECT_GT(sum_of(t.track("/device"), "span"), 0);
}

TEST_F(TracedProgram, a_file_that_cannot_be_written_is_an_error_before_the_model_runs) {
  const ProcessResult end = shell("$ZINC run $MODEL --raw -p one -n 3 --trace no/such/folder/t.json");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_EQ(end.out, "");
  EXPECT_TRUE(contains_all(end.err, {"no/such/folder/t.json"}));
}

TEST_F(TracedProgram, bench_that_is_interrupted_still_writes_its_trace) {
  const ProcessResult end = shell(
      "$ZINC bench $MODEL -p 32 -n 100 -r 1000 --device cpu -t 1 --trace trace.json >out 2>err & pid=$!; "
      "while ! grep -q 'round 2' err; do sleep 0.1; done; kill -INT $pid; wait $pid");
  EXPECT_EQ(end.exit_code, 130);
  const ParsedTrace t = trace();
  expect_nesting(t);
  EXPECT_GT(t.track("/device").size(), 100u);
}

TEST_F(TracedProgram, serve_has_requests_scheduler_decisions_and_kernels) {
  put(folder_ / "mix.jsonl", R"({"name": "short", "prompt_words": 3, "max_tokens": 8})"
                             "\n");
  ParsedTrace t;
  for (int attempt = 0; attempt < kTimedAttempts; ++attempt) {
    const ProcessResult end = shell(
        ": >out; "
        "$ZINC serve tiny=$MODEL --port 0 --device cpu -t 1 --parallel 2 --trace trace.json >out 2>err & pid=$!; "
        "while ! grep -q listening out; do sleep 0.1; done; url=$(sed 's/listening on //' out); "
        "$ZINC bench serve $url --requests 6 --streams 3 --mix mix.jsonl >load 2>&1; kill -INT $pid; wait $pid");
    ASSERT_EQ(end.exit_code, 0) << contents(folder_ / "err") << contents(folder_ / "load");
    t = trace();
    if (kernel_share(t.track("tiny/device")) >= kKernelShare) break;
  }
  expect_nesting(t);
  int n_requests = 0;
  for (const auto& [name, spans] : t.tracks) {
    if (name.find("requests/") == std::string::npos) continue;
    for (const Span& span : spans) n_requests += span.name.starts_with("request ") ? 1 : 0;
  }
  EXPECT_GE(n_requests, 6);
  EXPECT_TRUE(t.has_instant("admit request"));
  EXPECT_TRUE(t.has_instant("step 1: "));
  EXPECT_TRUE(t.has_instant("finish: "));
  EXPECT_TRUE(t.counters.contains("KV pages"));
  EXPECT_GE(kernel_share(t.track("tiny/device")), kKernelShare);
}

// A cache of one context: the second request is preempted.
TEST(EngineTraceTest, preemptions_are_recorded) {
  Trace trace;
  const TestFolder folder;
  {
    EngineOptions options{.max_sequences = 1, .context = 256, .step_tokens = 64};
    options.cache_bytes = make_engine({.name = "qwen3-q8_0"}, options)->limits().cache_bytes;
    options.max_sequences = 2;
    options.trace = {.trace = &trace, .name = "m", .time_kernels = false};
    const std::unique_ptr<Engine> engine = make_engine({.name = "qwen3-q8_0"}, options);
    for (const uint32_t seed : {1u, 2u}) {
      submit(*engine, {.prompt = random_tokens(engine->tokenizer(), 20, seed), .options = greedy(0)});
    }
    run_all(*engine);
  }
  AtomicFile file = std::move(AtomicFile::create(folder / "trace.json").value());
  ASSERT_TRUE(trace.write(file).ok() && file.commit().ok());
  const ParsedTrace t = parse_trace(folder / "trace.json");
  expect_nesting(t);
  EXPECT_TRUE(t.has_instant("preempt request 2: no free KV pages"));
  EXPECT_TRUE(t.has_instant("resume request 2: "));
}

TEST(EngineTraceTest, rows_cache_hits_and_deferrals_are_recorded) {
  Trace trace;
  const TestFolder folder;
  {
    const std::unique_ptr<Engine> engine =
        make_engine({.name = "qwen3-q8_0"}, {.max_sequences = 2,
                                             .context = 256,
                                             .step_tokens = 64,
                                             .trace = {.trace = &trace, .name = "m", .time_kernels = true}});
    Request request;
    request.prompt = random_tokens(engine->tokenizer(), 100, 1);
    request.options = greedy(4);
    submit(*engine, request);
    run_all(*engine);
    submit(*engine, request);
    request.prompt.resize(40);
    submit(*engine, request);
    run_all(*engine);
  }
  AtomicFile file = std::move(AtomicFile::create(folder / "trace.json").value());
  ASSERT_TRUE(trace.write(file).ok() && file.commit().ok());
  const ParsedTrace t = parse_trace(folder / "trace.json");
  expect_nesting(t);
  EXPECT_TRUE(t.has_instant("step 1: 0 decode, "));
  EXPECT_TRUE(std::ranges::any_of(t.instants, [](const std::string& name) {
    return name.starts_with("step ") && name.ends_with(": 1 decode, 0 prefill");
  }));
  EXPECT_TRUE(std::ranges::any_of(t.instants, [](const std::string& name) {
    return name.starts_with("admit request") && name.ends_with("tokens cached");
  }));
  EXPECT_TRUE(t.has_instant("finish: max_tokens"));
}

// Emulated devices have no clock: their kernels may take no time.
TEST(KernelTimes, kernels_of_every_backend_are_in_order_and_compute_the_matmuls) {
  for (const BackendInfo* backend : available_backends()) {
    if (backend->name == "reference") continue;  // has none
    SCOPED_TRACE(backend->name);
    const ModelInstance model = load_model({.name = "qwen3-q8_0", .backend = backend->name});
    ModelRunner runner =
        std::move(ModelRunner::create(model, {.context = 40, .step_tokens = 16, .time_kernels = true}).value());
    const std::vector<TokenId> tokens(16, 1);
    for (const size_t n : {16u, 1u}) {
      const KernelTime::Time begin = std::chrono::steady_clock::now();
      ASSERT_TRUE(runner.feed(std::span(tokens).first(n)).ok());
      const std::span<const KernelTime> times = runner.plan().kernel_times();
      ASSERT_FALSE(times.empty());
      EXPECT_GE(times.front().begin, begin);
      std::set<int32_t> computed;
      for (size_t i = 0; i < times.size(); ++i) {
        EXPECT_LE(times[i].begin, times[i].end) << times[i].name;
        EXPECT_TRUE(i == 0 || times[i].begin >= times[i - 1].end) << times[i].name;
        computed.insert(times[i].nodes.begin(), times[i].nodes.end());
      }
      const std::span<const Node> nodes = model.model().graph.nodes();
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].op == Op::linear) {
          EXPECT_TRUE(computed.contains(static_cast<int32_t>(i))) << "node " << i;
        }
      }
    }
  }
}

// ---- zinc debug compare ----

// The tiny model with the sign of one weight tensor changed, at half of its bytes: q8_0 quants and floats alike.
std::string with_changed_tensor(std::string bytes, const std::string& name) {
  const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "tiny.gguf").value());
  const Result<TensorView> tensor = file.tensor(name);
  EXPECT_TRUE(tensor.ok()) << name;
  const size_t begin =
      static_cast<size_t>(tensor.value().bytes.data() - reinterpret_cast<const std::byte*>(bytes.data()));
  const size_t n = tensor.value().bytes.size();
  std::reverse(bytes.begin() + static_cast<ptrdiff_t>(begin),
               bytes.begin() + static_cast<ptrdiff_t>(begin + n / 4 * 4));
  return bytes;
}

class CompareCommand : public TracedProgram {};

TEST_F(CompareCommand, a_wrong_weight_is_named_with_its_layer_and_op) {
  const TinyModel model = tiny_model("qwen3");
  const std::string bytes = make_gguf(model);
  put(folder_ / "right.gguf", bytes);
  for (const auto& [tensor, op] : std::map<std::string, std::string>{{"blk.1.ffn_down.weight", "linear"},
                                                                     {"blk.0.attn_k.weight", "linear"},
                                                                     {"blk.1.attn_norm.weight", "norm"}}) {
    SCOPED_TRACE(tensor);
    put(folder_ / "wrong.gguf", with_changed_tensor(bytes, tensor));
    const ProcessResult end =
        shell("$ZINC debug compare right.gguf --backend cpu --against cpu --against-model wrong.gguf --json");
    EXPECT_EQ(end.exit_code, 1) << end.err;
    const json::value report = parse_json(end.out).value();
    const json::value& first = report.at("first_difference");
    ASSERT_TRUE(first.is_object()) << end.out;
    EXPECT_EQ(first.at("name"), json::value(tensor)) << end.out;
    EXPECT_EQ(first.at("op"), json::value(op));
    EXPECT_EQ(first.at("layer"), tensor[4] - '0');
    EXPECT_EQ(first.at("values").as_array().size(), 4u);
    EXPECT_TRUE(contains_all(end.err, {tensor, fmt::format("layer {}", tensor[4])}));
  }
}

TEST_F(CompareCommand, equal_backends_differ_nowhere) {
  const ProcessResult end = shell("$ZINC debug compare $MODEL --backend cpu --against reference --layers");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(contains_all(end.out, {"layer 0: relative error", "no op differs"}));
}

TEST_F(CompareCommand, files_of_other_architectures_are_refused) {
  const ProcessResult end = shell("$ZINC debug compare $MODEL --against-model " ZINC_SOURCE_DIR
                                  "/tests/data/oracle/models/qwen35-f16.gguf --backend cpu");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_TRUE(contains_all(end.err, {"other graphs"}));
}

// Rounding to 8 bits must not look like a mistake, whatever the architecture.
TEST(CompareModels, rounding_of_the_cpu_backend_is_within_the_bounds_for_every_tiny_model) {
  for (const TinyModel& tiny : tiny_models()) {
    SCOPED_TRACE(tiny.name);
    const std::string name = "tiny " + tiny.name;
    const ModelInstance a = load_model({.name = name, .backend = "cpu"});
    const ModelInstance b = load_model({.name = name, .kv_format = "f32", .backend = "reference"});
    CompareOptions options{.n_prefill = 20};
    for (int i = 0; i < 26; ++i) options.tokens.push_back((7 * i + 3) % static_cast<int>(kTinyVocabulary));
    const Result<CompareResult> result = compare_models(a, b, options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    if (const std::optional<OpDifference>& first = result.value().first) {
      ADD_FAILURE() << "node " << first->node << " " << op_name(first->op) << " " << first->name << ": "
                    << first->relative << " > " << first->bound << ", inputs " << first->input_error;
    }
    EXPECT_FALSE(result.value().fused_differs);
    EXPECT_GT(result.value().n_compared, 10);
  }
}

// ---- the environment ----

// Every variable that the program reads is in the man page, so that no switch is hidden.
TEST(Environment, variables_that_the_sources_read_are_in_the_man_page) {
  std::set<std::string> names;
  const std::regex read(R"re((?:getenv|variable|folder_in|envname)\("([A-Za-z_]+)"\))re");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(ZINC_SOURCE_DIR "/src")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".cc" || name.ends_with("_test.cc")) continue;
    const std::string text = contents(entry.path());
    for (std::sregex_iterator i(text.begin(), text.end(), read), end; i != end; ++i) names.insert((*i)[1]);
  }
  EXPECT_TRUE(names.contains("ZINC_API_KEY"));
  const Result<ProcessResult> man =
      run_process({.argv = {ZINC_PROGRAM, "completion", "man"}, .time_limit = std::chrono::seconds(120)});
  ASSERT_TRUE(man.ok());
  for (const std::string& name : names) {
    EXPECT_NE(man.value().out.find(name), std::string::npos) << name << " is not in the man page";
  }
}

}  // namespace
}  // namespace zinc
