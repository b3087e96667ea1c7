// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "trace/timeline.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>

namespace farandole::coordinator {
namespace {

/// A JSON value: a text, a number, or a list or object of values.
struct Json {
  enum class Type : std::uint8_t { kText, kNumber, kList, kObject } type = Type::kNumber;
  std::string text;  // of a number, as it was written
  std::vector<Json> list;
  std::map<std::string, Json> object;

  const Json& operator[](const std::string& key) const { return object.at(key); }
  bool has(const std::string& key) const { return object.contains(key); }
  double number() const { return std::stod(text); }
};

/// Reads RFC 8259 to the letter, but for true, false and null, which a timeline has no use for.
class JsonReader {
 public:
  static std::optional<Json> read(std::string_view text) {
    JsonReader reader(text);
    Json value = reader.value();
    reader.skip_blanks();
    if (!reader.good_ || !reader.rest_.empty()) return std::nullopt;
    return value;
  }

 private:
  explicit JsonReader(std::string_view text) : rest_(text) {}

  Json value() {
    skip_blanks();
    Json value;
    if (take('"')) {
      value.type = Json::Type::kText;
      value.text = text();
    } else if (take('[')) {
      value.type = Json::Type::kList;
      if (!take_after_blanks(']')) {
        do value.list.push_back(this->value());
        while (good_ && take_after_blanks(','));
        expect(']');
      }
    } else if (take('{')) {
      value.type = Json::Type::kObject;
      if (!take_after_blanks('}')) {
        do member(value);
        while (good_ && take_after_blanks(','));
        expect('}');
      }
    } else {
      value.text = number();
    }
    return value;
  }

  void member(Json& object) {
    expect('"');
    const std::string key = text();
    expect(':');
    if (good_) good_ = object.object.emplace(key, value()).second && good_;
  }

  std::string number() {
    const std::string_view start = rest_;
    take('-');
    if (!take('0')) digits();
    if (take('.')) digits();
    if (take('e') || take('E')) {
      if (!take('-')) take('+');
      digits();
    }
    return std::string(start.substr(0, start.size() - rest_.size()));
  }

  void digits() {
    const std::size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    good_ = good_ && count > 0;
    rest_.remove_prefix(count);
  }

  std::string text() {
    std::string result;
    while (good_ && !take('"')) {
      if (rest_.empty() || static_cast<unsigned char>(rest_[0]) < 0x20) {
        good_ = false;
      } else if (take('\\')) {
        result += escaped();
      } else {
        result += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    good_ = good_ && is_utf8(result);
    return result;
  }

  std::string escaped() {
    for (const char same : {'"', '\\', '/'}) {
      if (take(same)) return {same};
    }
    unsigned code = 0;
    if (!take('u') || rest_.size() < 4 ||
        std::from_chars(rest_.data(), rest_.data() + 4, code, 16).ptr != rest_.data() + 4) {
      good_ = false;
      return {};
    }
    rest_.remove_prefix(4);
    if (code == 0xFFFD) return "\xEF\xBF\xBD";
    good_ = good_ && code < 0x80;  // nothing else needs an escape
    return {static_cast<char>(code)};
  }

  /// Decodes each character, and asks whether encoding it again would give the same bytes.
  static bool is_utf8(std::string_view text) {
    while (!text.empty()) {
      const auto lead = static_cast<unsigned char>(text[0]);
      const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 || text.size() < bytes) return false;
      unsigned code = bytes == 1 ? lead : lead & (0xFFu >> (bytes + 1));
      for (std::size_t i = 1; i < bytes; ++i) {
        if ((text[i] & 0xC0) != 0x80) return false;
        code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
      }
      const std::size_t needed = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      if (needed != bytes || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
      text.remove_prefix(bytes);
    }
    return true;
  }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool take(char wanted) {
    if (rest_.empty() || rest_[0] != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_after_blanks(char wanted) {
    skip_blanks();
    return take(wanted);
  }
  void expect(char wanted) { good_ = take_after_blanks(wanted) && good_; }

  std::string_view rest_;
  bool good_ = true;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Clock::time_point at_us(std::int64_t us) {
  return Clock::time_point(std::chrono::microseconds(us));
}

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    char folder[] = "/tmp/farandole-timeline-XXXXXX";
    folder_ = mkdtemp(folder);
    options_ = {.path = folder_ + "/trace.json", .rank = 2, .size = 4, .host = "here", .pid = 77};
  }
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Timeline> open() {
    auto timeline = Timeline::open(options_);
    EXPECT_TRUE(timeline) << timeline.error().message;
    return *std::move(timeline);
  }

  /// The file, which is whole, or the test fails.
  Json parse() const {
    const std::string text = contents(options_.path);
    const auto json = JsonReader::read(text);
    EXPECT_TRUE(json) << text.substr(text.size() - std::min<std::size_t>(text.size(), 9000));
    return json.value_or(JsonReader::read(R"({"traceEvents":[]})").value());
  }

  /// Its events but for metadata.
  static std::vector<Json> events(const Json& json, const std::string& kind = "XCi") {
    std::vector<Json> chosen;
    for (const Json& event : json["traceEvents"].list) {
      if (kind.find(event["ph"].text) != std::string::npos) chosen.push_back(event);
    }
    return chosen;
  }

  static double dropped(const Json& json, const std::string& why) {
    return json["dropped"][why].number();
  }

  std::string folder_;
  TimelineOptions options_;
};

// Goal: the checker below sees what is not JSON, since one that passes everything proves nothing.
// Method: texts that are JSON, and the same ones damaged.
TEST(JsonReader, TellsJsonFromWhatIsNot) {
  for (const char* good :
       {"[]", " {\"a\":[1,-2.5e+3,\"\\u0001\\\"x\"]} \n", "0", "[{},{\"b\":\"\"}]"}) {
    EXPECT_TRUE(JsonReader::read(good)) << good;
  }
  for (const char* bad : {"",
                          "[",
                          "[]]",
                          "[1,]",
                          "[,1]",
                          "{\"a\":}",
                          "{\"a\" 1}",
                          "{a:1}",
                          "[01]",
                          "[1.]",
                          "[\"\n\"]",
                          "[\"\\x\"]",
                          "[\"a]",
                          "{\"a\":1,\"a\":2}",
                          "[] x",
                          "[\"\xFF\"]",
                          "[\"\xC0\x80\"]",
                          "[\"\xED\xA0\x80\"]",
                          "[nan]",
                          "[1 2]"}) {
    EXPECT_FALSE(JsonReader::read(bad)) << bad;
  }
}

// Goal: the file is in the documented format.
// Method: one event of each kind, the whole text, in which ' stands for ".
TEST_F(TimelineTest, FileIsAsDocumented) {
  options_.clock_offset_ns = -1500;
  const auto timeline = open();
  timeline->instant("cycle", at_us(1'000'000));
  timeline->span("grad", Phase::kQueued, at_us(1'000'001), at_us(1'000'011));
  timeline->span("grad", Phase::kCollective, at_us(1'000'011) + std::chrono::nanoseconds(5),
                 at_us(1'000'020), "ring, 4 KiB");
  timeline->counter("cache hit rate", 0.75, at_us(1'000'030));
  EXPECT_TRUE(timeline->close());
  std::string expected =
      "{'otherData':{'format':'farandole timeline','version':1,'rank':2,'size':4,"
      "'host':'here','pid':77,'clock':'CLOCK_MONOTONIC','clock_offset_ns':-1500},\n"
      "'traceEvents':[\n"
      "{'ph':'M','name':'process_name','pid':3,'tid':1,'args':{'name':'rank 2 (here, pid 77)'}},\n"
      "{'ph':'M','name':'process_sort_index','pid':3,'args':{'sort_index':2}},\n"
      "{'ph':'M','name':'thread_name','pid':3,'tid':1,'args':{'name':'marks'}},\n"
      "{'ph':'i','s':'p','name':'cycle','pid':3,'tid':1,'ts':1000000.000},\n"
      "{'ph':'M','name':'thread_name','pid':3,'tid':4,'args':{'name':'grad'}},\n"
      "{'ph':'X','name':'queued','pid':3,'tid':4,'ts':1000001.000,'dur':10.000},\n"
      "{'ph':'X','name':'collective','pid':3,'tid':4,'ts':1000011.005,'dur':8.995,"
      "'args':{'detail':'ring, 4 KiB'}},\n"
      "{'ph':'C','name':'cache hit rate','pid':3,'tid':1,'ts':1000030.000,"
      "'args':{'value':0.75}}\n"
      "],\n"
      "'dropped':{'queue_full':0,'file_full':0}}";
  std::replace(expected.begin(), expected.end(), '\'', '"');
  std::string text = contents(options_.path);
  text.erase(text.find_last_not_of(" \n") + 1);
  EXPECT_EQ(text, expected);
}

// Goal: every phase has its name. Method: one span of each.
TEST_F(TimelineTest, PhasesHaveTheirNames) {
  const auto timeline = open();
  for (int i = 0; i <= static_cast<int>(Phase::kDone); ++i) {
    timeline->span("x", static_cast<Phase>(i), at_us(i), at_us(i + 1));
  }
  timeline->flush();
  std::vector<std::string> names;
  for (const Json& event : events(parse())) names.push_back(event["name"].text);
  EXPECT_EQ(names,
            (std::vector<std::string>{"queued", "negotiating", "waiting for group", "fused copy in",
                                      "collective", "fused copy out", "done"}));
}

// Goal: the file is whole and complete after open() and after each flush, wherever its pages end.
// Method: batches of random length, some empty, with details of random length; read it each time.
TEST_F(TimelineTest, IsWholeAfterEveryFlush) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto timeline = open();
  EXPECT_EQ(events(parse()).size(), 0u);
  std::size_t recorded = 0;
  for (int round = 0; round < 60; ++round) {
    for (auto count = random() % 60; count > 0; --count) {
      timeline->span("tensor " + std::to_string(random() % 50), Phase::kNegotiating, at_us(1),
                     at_us(2), std::string(random() % 120, 'x'));
      ++recorded;
    }
    timeline->flush();
    ASSERT_EQ(events(parse()).size(), recorded);
  }
  EXPECT_EQ(timeline->dropped(), 0u);
  // A kill may end a write between two pages, rarely, so that the test below seldom sees it.
  const std::string text = contents(options_.path);
  for (std::size_t start = 0; (start = text.find(",\n{", start)) != std::string::npos; ++start) {
    ASSERT_EQ(start / 4096, text.find("}", start) / 4096) << text.substr(start, 200);
  }
}

// Goal: a process that is killed at any moment leaves a whole file.
// Method: children that record and flush as fast as they can, killed after a random number of
// flushes, while further ones take place.
TEST_F(TimelineTest, IsWholeAfterKill) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    int flushes[2];
    ASSERT_EQ(pipe(flushes), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      auto timeline = Timeline::open(options_);
      if (!timeline) _exit(1);
      for (int i = 0;; ++i) {
        for (int j = 0; j < i % 400; ++j) {
          (*timeline)->span("tensor " + std::to_string(j), Phase::kQueued, at_us(i), at_us(i + j),
                            std::string(static_cast<std::size_t>(j % 96), 'x'));
        }
        (*timeline)->flush();
        if (write(flushes[1], "x", 1) != 1) _exit(2);
      }
    }
    char byte = 0;
    for (auto count = 1 + random() % 150; count > 0; --count) {
      ASSERT_EQ(read(flushes[0], &byte, 1), 1);
    }
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    close(flushes[0]);
    close(flushes[1]);
    ASSERT_TRUE(JsonReader::read(contents(options_.path))) << "round " << round;
  }
}

// Goal: any bytes may be a name. Method: each kind of trouble, and what a reader must see.
TEST_F(TimelineTest, NamesAreEscaped) {
  const std::string replaced = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> names = {
      {"a \"quoted\" \\ name", "a \"quoted\" \\ name"},
      {std::string("tab\tline\nnil\0bell\x07 \x1F\x7F", 20),
       std::string("tab\tline\nnil\0bell\x07 \x1F\x7F", 20)},
      {"h\xC3\xA9llo \xE2\x82\xAC \xF0\x9F\x92\x83", "h\xC3\xA9llo \xE2\x82\xAC \xF0\x9F\x92\x83"},
      {"bad \xFF\xC3", "bad " + replaced + replaced},
      {"overlong \xC0\xAF", "overlong " + replaced + replaced},
      {"surrogate \xED\xA0\x80", "surrogate " + replaced + replaced + replaced},
      {"beyond \xF4\x90\x80\x80", "beyond " + replaced + replaced + replaced + replaced},
      {std::string(255, 'n') + "\xC3\xA9 and more", std::string(255, 'n') + replaced},
      {"", ""},
  };
  options_.host = "ho\"st\n";
  const auto timeline = open();
  for (const auto& [given, seen] : names) {
    timeline->span(given, Phase::kDone, at_us(1), at_us(1), given);
    timeline->instant(given, at_us(1));
  }
  timeline->flush();
  const Json json = parse();
  EXPECT_EQ(json["otherData"]["host"].text, "ho\"st\n");
  const auto threads = events(json, "M"), marks = events(json, "i"), spans = events(json, "X");
  ASSERT_EQ(threads.size(), 3 + names.size());
  ASSERT_EQ(marks.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(threads[3 + i]["args"]["name"].text, names[i].second);
    EXPECT_EQ(marks[i]["name"].text, names[i].second);
  }
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(spans[i]["args"]["detail"].text, names[i].second);
  }
  EXPECT_EQ(spans[7]["args"]["detail"].text, std::string(kTimelineDetailBytesMax, 'n'));
  EXPECT_FALSE(spans[8].has("args"));
}

// Goal: what makes no sense does not spoil the file. Method: values and times that are none.
TEST_F(TimelineTest, OddValues) {
  const auto timeline = open();
  timeline->counter("rate", std::numeric_limits<double>::quiet_NaN(), at_us(1));
  timeline->counter("rate", std::numeric_limits<double>::infinity(), at_us(1));
  timeline->counter("rate", -1e300, at_us(1));
  timeline->span("x", Phase::kQueued, at_us(9), at_us(5));
  timeline->flush();
  const auto found = events(parse());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["args"]["value"].number(), -1e300);
  EXPECT_EQ(found[1]["dur"].text, "0.000");
}

// Goal: the file stays within its bound, says so once, and counts what it has no room for.
// Method: many times as much as fits, read after each flush.
TEST_F(TimelineTest, FileIsBounded) {
  options_.bytes_max = kTimelineBytesMin;
  const auto timeline = open();
  constexpr int kRounds = 40, kPerRound = 100;
  for (int round = 1; round <= kRounds; ++round) {
    for (int i = 0; i < kPerRound; ++i) {
      timeline->span("t" + std::to_string(round), Phase::kQueued, at_us(round), at_us(round + 1));
    }
    timeline->flush();
    const Json json = parse();
    EXPECT_LE(std::filesystem::file_size(options_.path), options_.bytes_max);
    EXPECT_EQ(static_cast<double>(events(json, "X").size()) + dropped(json, "file_full"),
              round * kPerRound);
  }
  EXPECT_TRUE(timeline->close());
  const Json json = parse();
  EXPECT_EQ(dropped(json, "file_full"), static_cast<double>(timeline->dropped()));
  EXPECT_EQ(dropped(json, "queue_full"), 0);
  const auto marks = events(json, "i");
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0]["name"].text, "timeline full");
  EXPECT_EQ(marks[0]["ts"].text, json["traceEvents"].list.back()["ts"].text);
  EXPECT_GT(std::filesystem::file_size(options_.path), options_.bytes_max - 16384);
}

// Goal: events that find the queue full are counted, never waited for.
// Method: a queue of 4, and a thread that records until an event was lost.
TEST_F(TimelineTest, FullQueueIsCounted) {
  options_.queue_events_max = 4;
  const auto timeline = open();
  constexpr int kMost = 1'000'000;
  int recorded = 0;
  for (; recorded < kMost && timeline->dropped() == 0; ++recorded) {
    timeline->instant("cycle", at_us(recorded));
  }
  EXPECT_TRUE(timeline->close());
  const Json json = parse();
  EXPECT_GT(dropped(json, "queue_full"), 0);
  EXPECT_EQ(dropped(json, "queue_full"), static_cast<double>(timeline->dropped()));
  EXPECT_EQ(static_cast<double>(events(json).size()) + dropped(json, "queue_full"), recorded);
}

// Goal: threads that record at once lose nothing and mix nothing.
// Method: each its own tensor and one that they share, in order of time, while one flushes.
TEST_F(TimelineTest, ThreadsRecordAtOnce) {
  constexpr int kThreads = 4, kEvents = 3000;
  options_.queue_events_max = 2 * kThreads * kEvents;
  const auto timeline = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEvents; ++i) {
        timeline->span("own " + std::to_string(t), Phase::kQueued, at_us(i), at_us(i + t));
        timeline->span("shared", Phase::kDone, at_us(i), at_us(i), std::to_string(t));
        if (i % 500 == 0) timeline->flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(timeline->close());
  const Json json = parse();
  std::map<std::string, std::string> names;  // of threads by number
  for (const Json& event : events(json, "M")) {
    if (event["name"].text == "thread_name") names[event["tid"].text] = event["args"]["name"].text;
  }
  EXPECT_EQ(names.size(), kThreads + 2u);
  std::map<std::string, std::vector<double>> times;
  for (const Json& event : events(json)) {
    const bool shared = event.has("args");
    const std::string& name = names.at(event["tid"].text);
    EXPECT_EQ(shared, name == "shared");
    times[shared ? event["args"]["detail"].text : name].push_back(event["ts"].number());
    if (shared) continue;
    EXPECT_EQ("own " + std::to_string(event["dur"].number()), name + ".000000");
  }
  EXPECT_EQ(times.size(), 2u * kThreads);
  for (const auto& [name, of_name] : times) {
    EXPECT_EQ(of_name.size(), static_cast<std::size_t>(kEvents)) << name;
    EXPECT_TRUE(std::is_sorted(of_name.begin(), of_name.end())) << name;
  }
}

// Goal: a program that makes up names without end does not fill the memory.
// Method: more names than are kept; the further ones share a thread.
TEST_F(TimelineTest, NamesAreBounded) {
  constexpr std::size_t kFurther = 10;
  options_.queue_events_max = kTimelineTracksMax + kFurther;
  const auto timeline = open();
  for (std::size_t i = 0; i < kTimelineTracksMax - 1 + kFurther; ++i) {
    timeline->span(std::to_string(i), Phase::kQueued, at_us(1), at_us(2));
  }
  timeline->flush();
  const Json json = parse();
  const auto spans = events(json);
  ASSERT_EQ(spans.size(), kTimelineTracksMax - 1 + kFurther);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["tid"].text == "2", i >= kTimelineTracksMax - 1) << i;
  }
  EXPECT_EQ(events(json, "M").back()["args"]["name"].text, "(further names)");
}

// Goal: a full disk ends the timeline, not the file's form, and close() says so.
// Method: a child that may not write beyond 100,000 bytes.
TEST_F(TimelineTest, FullDiskLeavesAWholeFile) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    auto timeline = Timeline::open(options_);
    if (!timeline || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    for (int i = 0; i < 10'000; ++i) {
      (*timeline)->span("x", Phase::kQueued, at_us(i), at_us(i + 1));
    }
    const auto closed = (*timeline)->close();
    const bool told = !closed && closed.error().kind == ErrorKind::kInternal &&
                      closed.error().message.find(options_.path) != std::string::npos;
    _exit(told && (*timeline)->dropped() > 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Json json = parse();
  EXPECT_GT(events(json, "X").size(), 500u);
  EXPECT_EQ(static_cast<double>(events(json, "X").size()) + dropped(json, "file_full"), 10'000);
  EXPECT_EQ(events(json, "i").size(), 1u);
}

// Goal: an older file is replaced by a whole one, and stays where a new one cannot be made.
// Method: a file with other contents; then options that make no sense.
TEST_F(TimelineTest, ReplacesAFileOrLeavesIt) {
  std::ofstream(options_.path) << std::string(9000, 'x');
  options_.bytes_max = kTimelineBytesMin - 1;
  EXPECT_FALSE(Timeline::open(options_));
  EXPECT_EQ(contents(options_.path).size(), 9000u);
  options_.bytes_max = kTimelineBytesMin;
  EXPECT_TRUE(open()->close());
  EXPECT_EQ(events(parse()).size(), 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// Goal: errors are the caller's, and name the path. Method: one of each.
TEST_F(TimelineTest, ErrorsNameThePath) {
  const auto message = [&](const TimelineOptions& options) {
    const auto timeline = Timeline::open(options);
    EXPECT_FALSE(timeline);
    EXPECT_EQ(timeline.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(timeline.error().message.find('"' + options.path + '"'), std::string::npos);
    return timeline.error().message;
  };
  std::map<std::string, TimelineOptions> wrong;
  for (const char* name :
       {"No such file", "directory", "rank 4 of 4", "rank -1 of 4", "65536", "queue"}) {
    wrong[name] = options_;
  }
  wrong["No such file"].path = folder_ + "/missing/trace.json";
  wrong["directory"].path = folder_;
  wrong["rank 4 of 4"].rank = 4;
  wrong["rank -1 of 4"].rank = -1;
  wrong["65536"].bytes_max = 65535;
  wrong["queue"].queue_events_max = 0;
  for (const auto& [part, options] : wrong) {
    EXPECT_NE(message(options).find(part), std::string::npos) << message(options);
  }
}

// Goal: what comes after close() is lost and harmless. Method: call everything after it.
TEST_F(TimelineTest, CloseIsTheEnd) {
  const auto timeline = open();
  EXPECT_TRUE(timeline->close());
  timeline->instant("late", at_us(1));
  timeline->flush();
  EXPECT_TRUE(timeline->close());
  EXPECT_EQ(timeline->dropped(), 1u);
  EXPECT_EQ(events(parse()).size(), 0u);
}

}  // namespace
}  // namespace farandole::coordinator
