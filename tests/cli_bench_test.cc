// zinc bench and zinc perplexity as a user runs them, on tiny models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/json.h"
#include "base/subprocess.h"
#include "tests/support/contains_all.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

const std::string kModels = ZINC_SOURCE_DIR "/tests/data/oracle/models/";
const std::string kModel = kModels + "qwen3-q8_0.gguf";
const std::string kHybrid = kModels + "qwen35-f16.gguf";

class ProgramRunner : public testing::Test {
 protected:
  ProcessResult zinc(const Arguments& arguments) const {
    Process process{.argv = {ZINC_PROGRAM}, .folder = folder_.path(), .time_limit = std::chrono::seconds(60)};
    process.argv.insert(process.argv.end(), arguments.begin(), arguments.end());
    const Result<ProcessResult> end = run_process(process);
    EXPECT_TRUE(end.ok()) << end.error().message;
    return end.ok() ? end.value() : ProcessResult{.exit_code = -1};
  }

  json::value json_of(Arguments arguments) const {
    arguments.push_back("--json");
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const Result<json::value> value = parse_json(end.out);
    EXPECT_TRUE(value.ok()) << end.out;
    return value.ok() ? value.value() : json::value();
  }

  // The one line of a refusal with this exit code.
  std::string refusal(const Arguments& arguments, int exit_code) const {
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, exit_code) << end.err;
    EXPECT_EQ(end.out, "");
    return end.err;
  }

  std::string file(std::string_view name, std::string_view bytes) const { return put(folder_ / name, bytes).string(); }
  std::string read(std::string_view name) const { return contents(folder_ / name); }

  const TestFolder folder_;
};

double number(const json::value& object, std::string_view key) { return object.at(key).to_number<double>(); }

class BenchCommand : public ProgramRunner {
 protected:
  // A peer that prints `answer` with the values of its options, and writes its arguments down.
  std::string peer_script(std::string_view answer = "[{\"n_prompt\":$p,\"n_gen\":$n,\"n_depth\":$d,\"avg_ts\":10.0}]") {
    const std::string path = file("peer.sh", fmt::format(R"(#!/bin/sh
echo "$@" >> calls
while [ $# -gt 0 ]; do
  case "$1" in -p) p=$2;; -n) n=$2;; -d) d=$2;; -c) c=$2;; -npp) npp=$2;; -ntg) ntg=$2;; -npl) npl=$2;; esac
  shift
done
cat <<END
{}
END
)",
                                                         answer));
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
};

TEST_F(BenchCommand, json_has_an_entry_for_each_model_depth_and_test) {
  const json::value list = json_of({"bench", kModel, kHybrid, "-p", "8,0", "-n", "4", "-d", "0,40", "-r", "3"});
  ASSERT_EQ(list.as_array().size(), 8u);
  std::vector<std::string> tests;
  for (const json::value& entry : list.as_array()) {
    tests.push_back(fmt::format("{}-{}-{}-{}", entry.at("model").as_string() == kModel ? "a" : "b",
                                number(entry, "n_prompt"), number(entry, "n_gen"), number(entry, "depth")));
    EXPECT_TRUE(entry.at("backend").is_string());
    EXPECT_GT(number(entry, "tokens_per_second"), 0);
    EXPECT_GE(number(entry, "spread"), 0);
    EXPECT_GT(number(entry, "bandwidth_share"), 0);
    EXPECT_GT(number(entry, "peak_bytes_per_second"), 1e8);
    EXPECT_EQ(entry.at("samples").as_array().size(), 3u);
    EXPECT_FALSE(entry.as_object().contains("ratio"));
  }
  EXPECT_EQ(tests, (std::vector<std::string>{"a-8-0-0", "a-0-4-0", "a-8-0-40", "a-0-4-40", "b-8-0-0", "b-0-4-0",
                                             "b-8-0-40", "b-0-4-40"}));
}

TEST_F(BenchCommand, figures_follow_from_the_samples_and_the_graphs_cost) {
  const json::value list = json_of({"bench", kModel, "-p", "16", "-n", "0", "-r", "3", "-t", "1"});
  const json::value& entry = list.at(0);
  std::vector<double> samples;
  for (const json::value& sample : entry.at("samples").as_array()) samples.push_back(sample.to_number<double>());
  std::ranges::sort(samples);
  EXPECT_DOUBLE_EQ(number(entry, "tokens_per_second"), samples[1]);
  EXPECT_DOUBLE_EQ(number(entry, "spread"), (samples[2] - samples[0]) / samples[1]);
  EXPECT_DOUBLE_EQ(number(entry, "bandwidth_share"),
                   samples[1] * number(entry, "bytes_per_token") / number(entry, "peak_bytes_per_second"));
  EXPECT_EQ(number(entry, "n_threads"), 1);
  const ProcessResult graph = zinc({"graph", kModel, "--json", "--tokens", "16", "--kv", "f16"});
  const json::value total = parse_json(graph.out).value().at("totals");
  EXPECT_NEAR(number(entry, "flops_per_token") * 16, number(total, "flops"), 1);
}

TEST_F(BenchCommand, bytes_per_token_grow_with_depth) {
  const json::value list = json_of({"bench", kModel, "-p", "0", "-n", "2", "-d", "0,64", "-r", "1"});
  EXPECT_GT(number(list.at(1), "bytes_per_token"), number(list.at(0), "bytes_per_token"));
}

TEST_F(BenchCommand, prints_a_markdown_table_by_default) {
  const ProcessResult plain = zinc({"bench", kModel, "-p", "8", "-n", "4", "-d", "32", "-r", "1"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_TRUE(contains_all(plain.out,
                           {"| model |", "|---|", "| qwen3-q8_0.gguf |", "| pp8 @ d32 |", "| tg4 @ d32 |", "reads "}));
  EXPECT_EQ(plain.out.find("ratio"), std::string::npos);
  EXPECT_TRUE(contains_all(zinc({"bench", kModel, "-p", "8", "-n", "0", "-r", "1", "--markdown"}).out, {"| pp8 |"}));
}

TEST_F(BenchCommand, peer_runs_are_interleaved_and_the_ratio_is_of_medians) {
  const json::value list = json_of(
      {"bench", kModel, "-p", "8", "-n", "4", "-d", "16", "-r", "2", "-t", "1", "--against", peer_script() + " -fa 1"});
  ASSERT_EQ(list.as_array().size(), 2u);
  for (const json::value& entry : list.as_array()) {
    EXPECT_EQ(number(entry.at("peer"), "tokens_per_second"), 10);
    EXPECT_EQ(number(entry.at("peer"), "spread"), 0);
    EXPECT_DOUBLE_EQ(number(entry, "ratio"), number(entry, "tokens_per_second") / 10);
  }
  const std::string prompt = "-fa 1 -m " + kModel + " -p 8 -n 0 -d 16 -r 1 -t 1 -o json\n";
  const std::string made = "-fa 1 -m " + kModel + " -p 0 -n 4 -d 16 -r 1 -t 1 -o json\n";
  EXPECT_EQ(read("calls"), prompt + made + prompt + made);
  const ProcessResult table = zinc({"bench", kModel, "-p", "8", "-n", "0", "-r", "1", "--against", peer_script()});
  EXPECT_TRUE(contains_all(table.out, {"peer tok/s", "| ratio |", "| 10.00 | 0.0 % |"}));
}

TEST_F(BenchCommand, failing_or_malformed_peer_output_is_reported) {
  const auto against = [&](const std::string& peer) {
    return refusal({"bench", kModel, "-p", "8", "-n", "0", "-r", "1", "--against", peer}, 1);
  };
  EXPECT_TRUE(contains_all(against(peer_script("not JSON")), {"peer.sh", "not llama-bench JSON (-o json)"}));
  EXPECT_TRUE(contains_all(against(peer_script("[]")), {"peer.sh", "no entry for pp8"}));
  EXPECT_TRUE(contains_all(against(peer_script("[{\"n_prompt\":8,\"avg_ts\":\"fast\"}]")), {"avg_ts"}));
  EXPECT_TRUE(contains_all(against("sh -c 'echo broken >&2; exit 3'"), {"exited with code 3", "broken"}));
  EXPECT_TRUE(contains_all(against("no-such-program-anywhere"), {"no-such-program-anywhere"}));
  EXPECT_TRUE(contains_all(against("  "), {"no program given"}));
}

TEST_F(BenchCommand, missing_files_are_reported_before_measuring) {
  const Arguments quick = {"-p", "4", "-n", "0", "-r", "1"};
  const auto refused = [&](Arguments arguments) {
    arguments.insert(arguments.end(), quick.begin(), quick.end());
    const std::string line = refusal(arguments, 1);
    EXPECT_EQ(line.find("round"), std::string::npos) << line;
    return line;
  };
  EXPECT_TRUE(contains_all(refused({"bench", kModel, "nosuch"}), {"nosuch"}));
  EXPECT_TRUE(contains_all(refused({"bench", kModel, "absent.gguf"}), {"absent.gguf"}));
  EXPECT_TRUE(contains_all(refused({"bench", kModel, file("text.gguf", "no model")}), {"text.gguf"}));
  const std::string bare = file("bare.gguf", std::string("GGUF\3\0\0\0", 8) + std::string(16, '\0'));
  EXPECT_TRUE(contains_all(refused({"bench", kModel, bare}), {"general.architecture"}));
  EXPECT_TRUE(contains_all(refused({"bench", kModel, "--against", "/no/such/bench"}), {"--against", "/no/such/bench"}));
}

TEST_F(BenchCommand, finished_measurements_are_printed_if_a_later_model_fails) {
  const std::string peer = file("peer.sh", R"(case "$*" in *qwen35*) echo broken >&2; exit 3 ;; esac
echo '[{"n_prompt":4,"avg_ts":10}]'
)");
  const ProcessResult end =
      zinc({"bench", kModel, kHybrid, "-p", "4", "-n", "0", "-r", "1", "--json", "--against", "sh " + peer});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_TRUE(contains_all(end.err, {"broken"}));
  ASSERT_TRUE(parse_json(end.out).ok()) << end.out;
  EXPECT_EQ(parse_json(end.out).value().as_array().size(), 1u);
}

TEST_F(BenchCommand, json_contains_version_and_kv_format) {
  const json::value entry = json_of({"bench", kModel, "-p", "4", "-n", "0", "-r", "1", "--kv", "f32"}).at(0);
  EXPECT_EQ(entry.at("kv_format").as_string(), "f32");
  const std::string version = zinc({"--version"}).out;
  EXPECT_EQ(version.substr(0, version.find('\n')),
            fmt::format("zinc {} ({})", std::string(entry.at("version").as_string()),
                        std::string(entry.at("commit").as_string())));
}

TEST_F(BenchCommand, a_scenario_is_a_prompt_and_an_answer_of_fixed_lengths) {
  const json::value list = json_of({"bench", kModel, "--scenario", "core", "--device", "cpu"});
  ASSERT_EQ(list.as_array().size(), 2u);
  const json::value &prefill = list.at(0), &decode = list.at(1);
  EXPECT_EQ(number(prefill, "n_prompt"), 512);
  EXPECT_EQ(number(decode, "n_gen"), 128);
  EXPECT_EQ(number(decode, "depth"), 512);
  for (const json::value& entry : list.as_array()) {
    EXPECT_EQ(entry.at("scenario").as_string(), "core");
    EXPECT_EQ(entry.at("samples").as_array().size(), 3u);
  }
  const double seconds = 512 / number(prefill, "tokens_per_second") + 128 / number(decode, "tokens_per_second");
  EXPECT_NEAR(number(prefill, "request_seconds"), seconds, 0.5 * seconds);
  EXPECT_EQ(number(prefill, "request_seconds"), number(decode, "request_seconds"));
  const ProcessResult text = zinc({"bench", kModel, "--scenario", "core", "--device", "cpu", "-r", "1"});
  EXPECT_TRUE(contains_all(
      text.out, {"| core pp512 |", "| core tg128 @ d512 |", "core: 512 prompt tokens and 128 generated in"}));
}

TEST_F(BenchCommand, each_figure_records_model_commit_compiler_machine_and_clocks) {
  const json::value a = json_of({"bench", kModel, "-p", "4", "-n", "0", "-r", "2", "--device", "cpu"}).at(0);
  const json::value b = json_of({"bench", kHybrid, "-p", "4", "-n", "0", "-r", "1", "--device", "cpu"}).at(0);
  EXPECT_EQ(a.at("model_hash").as_string().size(), 64u);
  EXPECT_NE(a.at("model_hash"), b.at("model_hash"));
  EXPECT_FALSE(a.at("compiler").as_string().empty());
  EXPECT_TRUE(a.at("processor").is_string());
  EXPECT_TRUE(a.at("driver").is_string());
  const json::array& clocks = a.at("clock_mhz").as_array();  // before, and after each round; none where it is unknown
  EXPECT_TRUE(clocks.empty() || clocks.size() == 3) << clocks.size();
  const ProcessResult text = zinc({"bench", kModel, "-p", "4", "-n", "0", "-r", "1", "--device", "cpu"});
  EXPECT_TRUE(contains_all(text.out, {std::string(a.at("model_hash").as_string().subview(0, 12)),
                                      std::string(a.at("commit").as_string()), "clock"}));
}

TEST_F(BenchCommand, kernels_of_a_step_have_times_and_bandwidth) {
  const json::value list = json_of({"bench", kModel, "--kernels", "-d", "8", "-p", "16", "-t", "1", "--device", "cpu"});
  double decode_share = 0;
  bool has_matmul = false, has_attention = false, has_prefill = false;
  for (const json::value& entry : list.as_array()) {
    const std::string name(entry.at("kernel").as_string());
    EXPECT_GE(number(entry, "seconds_per_call"), 0) << name;
    EXPECT_GT(number(entry, "calls_per_step"), 0) << name;
    has_prefill = has_prefill || number(entry, "n_tokens") == 16;
    if (number(entry, "n_tokens") != 1) continue;
    decode_share += number(entry, "step_share");
    if (name.starts_with("linear q8_0 ")) {
      has_matmul = true;
      EXPECT_GT(number(entry, "bytes_per_call"), 0);
      EXPECT_GT(number(entry, "bandwidth_share"), 0);
    }
    has_attention = has_attention || name == "attention";
  }
  EXPECT_NEAR(decode_share, 1, 1e-6);
  EXPECT_TRUE(has_matmul && has_attention && has_prefill);
  EXPECT_TRUE(contains_all(zinc({"bench", kModel, "--kernels", "--device", "cpu"}).out,
                           {"| kernel |", "| attention | cpu |", "ms per step; reads"}));
  EXPECT_TRUE(
      contains_all(refusal({"bench", kModel, "--kernels", "--device", "reference"}, 1), {"reference", "times"}));
}

TEST_F(BenchCommand, a_batch_has_the_figures_of_llama_batched_bench) {
  const json::value list = json_of({"bench", kModel, "--batch", "1,3", "-p", "16", "-n", "4,6", "-r", "3", "-t", "1"});
  std::vector<std::string> tests;
  for (const json::value& entry : list.as_array()) {
    const double n = number(entry, "n_sequences"), n_prompt = n * number(entry, "n_prompt");
    const double n_gen = n * number(entry, "n_gen"), n_kv = number(entry, "n_kv_tokens");
    tests.push_back(fmt::format("{} {} {}", n_prompt, n_gen, n_kv));
    for (const auto& [phase, n_tokens] : {std::pair{"prefill", n_prompt}, {"decode", n_gen}, {"total", n_kv}}) {
      const std::string name = phase;
      const double seconds = number(entry, name + "_seconds");
      EXPECT_GT(seconds, 0);
      EXPECT_DOUBLE_EQ(number(entry, name + "_tokens_per_second"), n_tokens / seconds);
      EXPECT_GE(number(entry, name + "_spread"), 0);
      EXPECT_EQ(entry.at(name + "_seconds_samples").as_array().size(), 3u);
    }
    EXPECT_EQ(entry.at("model").as_string(), kModel);
    EXPECT_EQ(number(entry, "n_threads"), 1);
    EXPECT_GT(number(entry, "cache_bytes"), 0);
    EXPECT_EQ(entry.at("model_hash").as_string().size(), 64u);
    EXPECT_FALSE(entry.as_object().contains("peer"));
  }
  EXPECT_EQ(tests, (std::vector<std::string>{"16 4 20", "48 12 60", "16 6 22", "48 18 66"}));
  const ProcessResult text = zinc({"bench", kModel, "--batch", "2", "-p", "16", "-n", "4", "-r", "1"});
  EXPECT_TRUE(contains_all(text.out, {"| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |",
                                      "| 16 | 4 | 2 | 40 |", "KV cache"}));
  EXPECT_EQ(text.out.find("ratio"), std::string::npos);
}

TEST_F(BenchCommand, a_batch_is_compared_with_llama_batched_bench) {
  const std::string answer = R"({"pp": $npp, "tg": $ntg, "pl": $npl, "n_kv": $c, "t_pp": 0.5, "t_tg": 2.0})";
  const Arguments batch = {"bench", kModel, "--batch", "1,2", "-p", "8", "-n", "4", "-r", "2", "-t", "1", "--against"};
  const auto against = [&](const std::string& peer) {
    Arguments arguments = batch;
    arguments.push_back(peer);
    return arguments;
  };
  const json::value list = json_of(against(peer_script("log line\n" + answer) + " -fa 1"));
  ASSERT_EQ(list.as_array().size(), 2u);
  const json::value& entry = list.at(1);
  EXPECT_EQ(number(entry.at("peer"), "prefill_tokens_per_second"), 2 * 8 / 0.5);
  EXPECT_EQ(number(entry.at("peer"), "decode_tokens_per_second"), 2 * 4 / 2.0);
  EXPECT_EQ(number(entry.at("peer"), "total_tokens_per_second"), 24 / 2.5);
  EXPECT_DOUBLE_EQ(number(entry, "decode_ratio"), number(entry, "decode_tokens_per_second") / 4);
  EXPECT_DOUBLE_EQ(number(entry, "prefill_ratio"), number(entry, "prefill_tokens_per_second") / 32);
  const auto call = [](int n_kv, int n) {
    return fmt::format("-fa 1 -m {} -c {} -npp 8 -ntg 4 -npl {} -t 1 --output-format jsonl\n", kModel, n_kv, n);
  };
  EXPECT_EQ(read("calls"), call(12, 1) + call(24, 2) + call(12, 1) + call(24, 2));
  EXPECT_TRUE(contains_all(zinc(against(peer_script(answer))).out, {"| peer S_TG | ratio |", "| 4.00 |"}));

  EXPECT_TRUE(
      contains_all(refusal(against(peer_script("[]")), 1), {"peer.sh", "--output-format jsonl", "no entry for"}));
  const std::string shared = R"({"pp": $npp, "tg": $ntg, "pl": $npl, "n_kv": 1, "t_pp": 0.5, "t_tg": 2.0})";
  EXPECT_TRUE(contains_all(refusal(against(peer_script(shared)), 1), {"n_kv is 1 instead of 12", "-pps"}));
  const std::string no_times = R"({"pp": $npp, "tg": $ntg, "pl": $npl, "n_kv": $c})";
  EXPECT_TRUE(contains_all(refusal(against(peer_script(no_times)), 1), {"'t_pp' and 't_tg'"}));
  EXPECT_TRUE(contains_all(refusal(against("no-such-program"), 1), {"no-such-program", "llama-batched-bench"}));
}

TEST_F(BenchCommand, drafts_of_a_chosen_acceptance_are_compared_with_plain_decoding) {
  const json::value list =
      json_of({"bench", kModel, "--acceptance", "1,0", "--batch", "1,2", "-p", "8", "-n", "40", "-r", "2", "-t", "1"});
  ASSERT_EQ(list.as_array().size(), 4u);
  for (const json::value& entry : list.as_array()) {
    EXPECT_EQ(entry.at("drafter"), "lookup");
    EXPECT_GT(number(entry, "plain_tokens_per_second"), 0);
    EXPECT_GT(number(entry, "speedup"), 0);
    EXPECT_EQ(entry.at("speedup_samples").as_array().size(), 2u);
    EXPECT_LE(number(entry, "n_accepted"), number(entry, "acceptance") * number(entry, "n_drafted"));
  }
  const ProcessResult text = zinc({"bench", kModel, "--acceptance", "0.5", "-p", "8", "-n", "20", "-r", "1"});
  EXPECT_TRUE(contains_all(text.out, {"| speedup |", "| lookup | 0.5 | 8 | 20 | 1 |"})) << text.out;
  EXPECT_TRUE(contains_all(refusal({"bench", kModel, "--speculate", "ngram"}, 2), {"--acceptance"}));
  EXPECT_TRUE(contains_all(refusal({"bench", kModel, "--acceptance", "0.5", "--kernels"}, 2), {"--kernels"}));
}

TEST_F(BenchCommand, a_batch_that_makes_no_sense_says_what_to_do) {
  const auto refused = [&](Arguments arguments) {
    arguments.insert(arguments.begin(), {"bench", kModel, "--batch", "2"});
    return refusal(arguments, 2);
  };
  EXPECT_TRUE(contains_all(refused({"-d", "8"}), {"-d", "set their length with -p"}));
  EXPECT_TRUE(contains_all(refused({"--kernels"}), {"--kernels", "-p and -n"}));
  EXPECT_TRUE(contains_all(refused({"--scenario", "core"}), {"--scenario", "-p and -n"}));
  EXPECT_TRUE(contains_all(refused({"-n", "0"}), {"-p and -n to at least 1"}));
  EXPECT_EQ(zinc({"bench", kModel, "--batch", "0"}).exit_code, 2);
}

TEST_F(BenchCommand, failed_requests_fail_the_run_without_a_row_of_zeros) {
  const ProcessResult dead = zinc({"bench", "serve", "http://127.0.0.1:9", "--requests", "2"});
  EXPECT_EQ(dead.exit_code, 1);
  EXPECT_EQ(dead.out, "");
  EXPECT_TRUE(contains_all(dead.err, {"127.0.0.1:9", "2 of 2 requests failed"}));
  const std::string mix = file("mix.jsonl", R"({"name": "good", "prompt_words": 3, "max_tokens": 2}
{"name": "bad", "prompt_words": 3, "max_tokens": 2, "body": {"temperature": 99}}
)");
  const ProcessResult some = zinc({"bench", "serve", kModel, "--requests", "8", "--streams", "1", "--mix", mix});
  EXPECT_EQ(some.exit_code, 1);
  EXPECT_TRUE(contains_all(some.out, {"| 8 |"}));
  EXPECT_TRUE(contains_all(some.err, {" of 8 requests failed", "temperature"}));
}

TEST_F(BenchCommand, wrong_usage_exits_with_two) {
  for (const Arguments& wrong : std::vector<Arguments>{{"-p", "x"},
                                                       {"-p", "1,-2"},
                                                       {"-n", "99999999999"},
                                                       {"-d", "1.5"},
                                                       {"-r", "0"},
                                                       {"-t", "-1"},
                                                       {"--json", "--markdown"},
                                                       {"--kv", "q9"},
                                                       {"-p", "0", "-n", "0"},
                                                       {"--scenario", "quick"},
                                                       {"--scenario", "core", "-n", "4"},
                                                       {"--kernels", "--trace", "t.json"},
                                                       {"--backend", "abacus"}}) {
    Arguments arguments = {"bench", kModel};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(zinc(arguments).exit_code, 2) << wrong[0] << " " << wrong.back();
  }
}

TEST_F(BenchCommand, invalid_measurements_are_rejected) {
  EXPECT_TRUE(contains_all(refusal({"bench", kModel, "-p", "0", "-n", "0"}, 2), {"nothing to measure"}));
  EXPECT_TRUE(contains_all(refusal({"bench", "absent.gguf"}, 1), {"absent.gguf"}));
  EXPECT_TRUE(contains_all(refusal({"bench", kModel, "--backend", "abacus"}, 2), {"abacus", "reference"}));
}

class PerplexityCommand : public ProgramRunner {
 protected:
  // Words in no order a model could know, the same each time.
  std::string text_file(int n_words = 200) const {
    std::string text;
    unsigned state = 1;
    for (int i = 0; i < n_words; ++i) {
      state = state * 1664525u + 1013904223u;
      text += fmt::format("{} ", std::vector<std::string>{"the", "sea", "is", "12", "grey,", "and"}[(state >> 16) % 6]);
      if (i % 11 == 10) text += "old\n";
    }
    return file("text.txt", text);
  }

  std::vector<int> tokens_of(const std::string& path) const {
    const json::object line{{"text", read(fs::path(path).filename().string())}, {"add_special", true}};
    file("line.json", to_json(line) + "\n");
    const Result<ProcessResult> end =
        run_process({.argv = {"sh", "-c", std::string(ZINC_PROGRAM) + " debug tokenize " + kModel + " <line.json"},
                     .folder = folder_.path()});
    std::vector<int> ids;
    const json::value line_out = parse_json(end.value().out).value();
    for (const json::value& id : line_out.at("ids").as_array()) {
      ids.push_back(id.to_number<int>());
    }
    return ids;
  }

  // Sum of -ln p over the tokens after the first.
  double nll_sum(std::span<const int> tokens) const {
    const std::string list = fmt::format("{}", fmt::join(tokens, ","));
    const ProcessResult end = zinc({"debug", "eval", kModel, "--backend", "reference", "--nll", "--tokens", list});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return number(parse_json(end.out).value(), "nll") * static_cast<double>(tokens.size() - 1);
  }
};

TEST_F(PerplexityCommand, score_of_the_second_half_of_each_window_equals_debug_eval) {
  const std::string text = text_file();
  const std::vector<int> tokens = tokens_of(text);
  constexpr size_t kWindow = 21, kHalf = kWindow / 2;
  double sum = 0;
  for (size_t w = 0; w < 2; ++w) {
    const std::span<const int> window = std::span(tokens).subspan(w * kWindow, kWindow);
    sum += nll_sum(window) - nll_sum(window.first(kHalf + 1));
  }
  const double expected = sum / (2 * (kWindow - kHalf - 1));
  const json::value report =
      json_of({"perplexity", kModel, text, "-c", "21", "--windows", "2", "--backend", "reference"});
  EXPECT_EQ(number(report, "n_windows"), 2);
  EXPECT_EQ(number(report, "n_scored"), 20);
  EXPECT_NEAR(number(report, "nll"), expected, 1e-5);
  EXPECT_NEAR(number(report, "perplexity"), std::exp(expected), 1e-3 * std::exp(expected));
  EXPECT_FALSE(report.as_object().contains("kl_mean"));
}

TEST_F(PerplexityCommand, a_model_does_not_diverge_from_its_own_baseline) {
  const std::string text = text_file();
  const json::value saved = json_of({"perplexity", kModel, text, "-c", "32", "--save-baseline", "base.bin"});
  const json::value same = json_of({"perplexity", kModel, text, "-c", "32", "--baseline", "base.bin"});
  EXPECT_EQ(same.at("nll"), saved.at("nll"));
  EXPECT_NEAR(number(same, "baseline_nll"), number(saved, "nll"), 1e-6);
  EXPECT_NEAR(number(same, "kl_mean"), 0, 1e-6);
  EXPECT_NEAR(number(same, "kl_p99"), 0, 1e-6);
  EXPECT_EQ(number(same, "top1_agreement"), 1);
}

TEST_F(PerplexityCommand, a_model_with_other_weights_diverges) {
  const std::string text = text_file();
  std::string bytes = contents(kModel);
  std::fill(bytes.end() - 2000, bytes.end(), '\0');
  const std::string other_model = file("other.gguf", bytes);
  json_of({"perplexity", kModel, text, "-c", "32", "--save-baseline", "base.bin"});
  const json::value other = json_of({"perplexity", other_model, text, "-c", "32", "--baseline", "base.bin"});
  EXPECT_GT(number(other, "kl_mean"), 1e-4);
  EXPECT_LT(number(other, "top1_agreement"), 1);
  EXPECT_NE(other.at("nll"), other.at("baseline_nll"));
  EXPECT_LE(number(other, "kl_median"), number(other, "kl_p99"));
  EXPECT_LE(number(other, "kl_p99"), number(other, "kl_max"));
  const ProcessResult plain = zinc({"perplexity", kModel, text, "-c", "32", "--baseline", "base.bin"});
  EXPECT_TRUE(contains_all(plain.out, {"perplexity ", "KL divergence mean 0.000000", "top-1 agreement 100.00 %"}));
  EXPECT_TRUE(contains_all(plain.err, {"window 1 of "}));
}

TEST_F(PerplexityCommand, baseline_of_another_model_or_text_is_rejected) {
  const std::string text = text_file();
  json_of({"perplexity", kModel, text, "-c", "32", "--windows", "2", "--save-baseline", "base.bin"});
  const auto refused = [&](const Arguments& options) {
    Arguments arguments = {"perplexity", kModel};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return refusal(arguments, 1);
  };
  EXPECT_TRUE(contains_all(refused({text, "-c", "32", "--baseline", "base.bin"}), {"2 windows of 32", "--windows"}));
  EXPECT_TRUE(contains_all(refused({text, "-c", "16", "--windows", "2", "--baseline", "base.bin"}), {"of 16", "-c"}));
  const std::string other = file("other.txt", std::string(400, 'q'));
  EXPECT_TRUE(
      contains_all(refused({other, "-c", "32", "--windows", "2", "--baseline", "base.bin"}), {"different tokens"}));
  EXPECT_TRUE(contains_all(refused({text, "-c", "32", "--baseline", "text.txt"}), {"text.txt", "not a baseline"}));
  file("cut.bin", read("base.bin").substr(0, 5000));
  EXPECT_TRUE(
      contains_all(refused({text, "-c", "32", "--windows", "2", "--baseline", "cut.bin"}), {"cut.bin", "5000 bytes"}));
}

TEST_F(PerplexityCommand, invalid_text_is_rejected_without_writing_a_baseline) {
  const std::string shorter = file("short.txt", "too short");
  EXPECT_TRUE(
      contains_all(refusal({"perplexity", kModel, shorter, "--save-baseline", "base.bin"}, 1), {"short.txt", "512"}));
  EXPECT_FALSE(fs::exists(folder_ / "base.bin"));
  EXPECT_TRUE(contains_all(refusal({"perplexity", kModel, file("empty.txt", "")}, 1), {"empty.txt"}));
  EXPECT_TRUE(contains_all(refusal({"perplexity", kModel, "absent.txt"}, 1), {"absent.txt"}));
  EXPECT_EQ(zinc({"perplexity", kModel, shorter, "-c", "2"}).exit_code, 2);
  EXPECT_EQ(zinc({"perplexity", kModel, shorter, "--baseline", "a", "--save-baseline", "b"}).exit_code, 2);
}

}  // namespace
}  // namespace zinc
