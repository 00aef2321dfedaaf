#include "base/trace.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

using namespace std::chrono_literals;

class TraceTest : public testing::Test {
 protected:
  json::value written(const Trace& trace) {
    AtomicFile file = std::move(AtomicFile::create(folder_ / "trace.json").value());
    EXPECT_TRUE(trace.write(file).ok());
    EXPECT_TRUE(file.commit().ok());
    return parse_json(contents(folder_ / "trace.json")).value();
  }
  // The events of this phase ("X": spans), in the order of the file.
  static std::vector<json::object> events_of(const json::value& trace, std::string_view phase) {
    std::vector<json::object> found;
    for (const json::value& event : trace.at("traceEvents").as_array()) {
      if (event.at("ph").as_string() == phase) found.push_back(event.as_object());
    }
    return found;
  }
  Trace::Time at(int us) const { return start_ + std::chrono::microseconds(us); }

  const TestFolder folder_;
  const Trace::Time start_ = Trace::Clock::now() + 1s;
};

TEST_F(TraceTest, enclosing_spans_come_before_the_spans_inside_them) {
  Trace trace;
  const Trace::Track track = trace.add_track("model", "device");
  trace.add_kernel(track, trace.intern("gemv"), at(0), at(4), trace.intern(R"({"layer":3})"));
  trace.add_span(track, "step 1", at(0), at(10));
  trace.add_span(track, "step 0", at(-10), at(0));
  const std::vector<json::object> spans = events_of(written(trace), "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("name"), "step 0");
  EXPECT_EQ(spans[1].at("name"), "step 1");
  EXPECT_EQ(spans[2].at("name"), "gemv");
  EXPECT_EQ(spans[2].at("args").at("layer"), 3);
  EXPECT_DOUBLE_EQ(spans[2].at("dur").to_number<double>(), 4);
  EXPECT_NEAR(spans[2].at("ts").to_number<double>() - spans[0].at("ts").to_number<double>(), 10, 1e-6);
}

TEST_F(TraceTest, tracks_of_one_group_share_a_process_and_have_names) {
  Trace trace;
  const Trace::Track host = trace.add_track("a \"model\"", "host"), device = trace.add_track("a \"model\"", "device");
  EXPECT_EQ(trace.add_track("a \"model\"", "host"), host);
  trace.add_instant(host, "x", at(0));
  trace.add_counter(device, "pages", at(0), R"({"in use":2})");
  const json::value all = written(trace);
  const json::object instant = events_of(all, "i").at(0), counter = events_of(all, "C").at(0);
  EXPECT_EQ(instant.at("pid"), counter.at("pid"));
  EXPECT_NE(instant.at("tid"), counter.at("tid"));
  EXPECT_EQ(counter.at("args").at("in use"), 2);
  std::vector<std::string> names;
  for (const json::object& event : events_of(all, "M")) {
    if (event.at("name") == "thread_name") names.emplace_back(event.at("args").at("name").as_string());
    if (event.at("name") == "process_name") {
      EXPECT_EQ(event.at("args").at("name"), "a \"model\"");
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"host", "device"}));
}

TEST_F(TraceTest, a_full_trace_says_so_and_counts_what_it_drops) {
  Trace trace(/*max_events=*/10);
  const Trace::Track track = trace.add_track("model", "device");
  const Trace::TextId name = trace.intern("gemv"), none = trace.intern("");
  for (int i = 0; i < 20; ++i) trace.add_kernel(track, name, at(i), at(i + 1), none);
  for (int i = 0; i < 20; ++i) trace.add_span(track, "step", at(i), at(i + 1));
  const json::value all = written(trace);
  int n_kernels = 0;
  for (const json::object& span : events_of(all, "X")) n_kernels += span.at("cat") == "kernel" ? 1 : 0;
  EXPECT_EQ(n_kernels, 5);  // half of the limit
  EXPECT_LE(events_of(all, "X").size(), 10u);
  EXPECT_GT(events_of(all, "X").size(), 8u);
  std::vector<std::string> notes;
  for (const json::object& note : events_of(all, "i")) notes.emplace_back(note.at("name").as_string());
  EXPECT_EQ(notes, (std::vector<std::string>{"trace full: later events are not recorded",
                                             "trace full: later kernels are not recorded"}));
  EXPECT_EQ(all.at("otherData").at("dropped_events"), 40 - static_cast<int>(events_of(all, "X").size()));
}

TEST_F(TraceTest, texts_are_limited_too) {
  Trace trace(Trace::kMaxEvents, /*max_text_bytes=*/10'000);
  const Trace::Track track = trace.add_track("model", "scheduler");
  for (int i = 0; i < 1000; ++i)
    trace.add_instant(track, "rows", at(i), "{\"rows\":\"" + std::to_string(i) + std::string(100, 'x') + "\"}");
  const json::value all = written(trace);
  EXPECT_LT(events_of(all, "i").size(), 50u);
  EXPECT_GT(all.at("otherData").at("dropped_events").to_number<int>(), 950);
}

}  // namespace
}  // namespace zinc
