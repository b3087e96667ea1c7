// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// The small types that everything is built from.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/ticks.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole {
namespace {

using namespace std::chrono_literals;

// Goal: ticks are time, whatever counts them. Method: a stretch told by both clocks, the steady one
// read before and after the other, so that its time is at most, or at least, as long.
TEST(TickRate, TellsTheTimeOfTheClock) {
  const TickRate rate;
  const auto before = Clock::now();
  const std::uint64_t first = Ticks::now();
  const auto inside = Clock::now();
  std::this_thread::sleep_for(20ms);
  const std::chrono::nanoseconds least = Clock::now() - inside;
  const std::uint64_t last = Ticks::now();
  const std::chrono::nanoseconds most = Clock::now() - before;
  ASSERT_GT(last, first);
  const auto told = static_cast<double>(rate.nanoseconds(last - first));
  EXPECT_GE(told, 0.9 * static_cast<double>(least.count()));
  EXPECT_LE(told, 1.1 * static_cast<double>(most.count()));
}

// Goal: a deadline tells what is left, in the form that poll() takes.
// Method: never, long past, and far ahead, with bounds below and above.
TEST(Deadline, TellsWhatIsLeft) {
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::never().remaining_ms(123), 123);
  const Deadline past = Deadline::after(-1h);
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.remaining_ms(123), 0);
  const Deadline ahead = Deadline::after(1h);
  EXPECT_FALSE(ahead.passed());
  EXPECT_EQ(ahead.remaining_ms(123), 123);
  EXPECT_GT(ahead.remaining_ms(100'000'000), 3'000'000);
  EXPECT_EQ(Deadline::after(0ms).remaining_ms(5), 0);
  EXPECT_TRUE(Deadline::after(0ms).passed());
}

// Goal: every enumerator has a name of its own that is read back, and nothing else is.
// Method: go through all of them.
template <class Enum>
void names_are_sound(int count, std::optional<Enum> (*parse)(std::string_view)) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const Enum value = static_cast<Enum>(i);
    EXPECT_TRUE(names.insert(name(value)).second) << name(value);
    EXPECT_EQ(parse(name(value)), value);
  }
  for (const char* other : {"", "Sum", "float", "sum ", "float32x"}) EXPECT_FALSE(parse(other));
}
TEST(Names, AreReadBack) {
  names_are_sound<DType>(kDTypeCount, parse_dtype);
  names_are_sound<Reduction>(kReductionCount, parse_reduction);
  names_are_sound<Collective>(kCollectiveCount, parse_collective);
}

// Goal: element sizes are those of the types that the names promise.
// Method: the number of bits in the name.
TEST(Names, AgreeWithSizes) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const std::string text(name(static_cast<DType>(i)));
    const std::string digits = text.substr(text.find_first_of("0123456789"));
    EXPECT_EQ(8 * size_of(static_cast<DType>(i)).value(), std::stoul(digits)) << text;
  }
  EXPECT_EQ(size_of(DType::kBool), Bytes{1});
}

// Goal: ranks, counts and bytes do not mix, and compute within their kind.
// Method: ask the compiler; a few sums.
TEST(StrongInt, DoesNotMix) {
  static_assert(!std::is_convertible_v<int, Rank>);
  static_assert(!std::is_convertible_v<Rank, int>);
  static_assert(!std::is_convertible_v<Count, Bytes>);
  EXPECT_EQ(Count{3} * size_of(DType::kFloat64), Bytes{24});
  EXPECT_EQ(Rank{2} + Rank{3} - Rank{1}, Rank{4});
  EXPECT_LT(Rank{-1}, Rank{0});
  Rank rank{5};
  EXPECT_EQ(++rank, Rank{6});
}

// Goal: a result is a value or an error, and hands out what it holds without a copy.
// Method: both, for values that cannot be copied and for none.
TEST(Result, IsAValueOrAnError) {
  Result<std::unique_ptr<int>> good = std::make_unique<int>(7);
  ASSERT_TRUE(good);
  EXPECT_EQ(**good, 7);
  const std::unique_ptr<int> taken = *std::move(good);
  EXPECT_EQ(*taken, 7);

  Result<std::unique_ptr<int>> bad = Error{ErrorKind::kTimedOut, "late", ProcessName{3, "h", 4}};
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().culprit->rank, 3);
  const Error error = std::move(bad).error();
  EXPECT_EQ(error.message, "late");

  EXPECT_TRUE(Result<void>());
  const Result<void> failed = Error{ErrorKind::kInternal, "bug"};
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::kInternal);
}

/// What is written to standard error at `setting` when each level logs its own number.
std::string logged_at(const char* setting) {
  setenv("FARANDOLE_LOG", setting, 1);
  testing::internal::CaptureStderr();
  log(LogLevel::kError, "0");
  log(LogLevel::kWarning, "1");
  log(LogLevel::kInfo, "2");
  log(LogLevel::kDebug, "3");
  unsetenv("FARANDOLE_LOG");
  return testing::internal::GetCapturedStderr();
}

// Goal: each level shows itself and what is worse; the default is warnings; a typo is no silence.
// Method: every setting, and two that are none.
TEST(Log, ShowsWhatIsAskedFor) {
  const std::string error = "farandole: error: 0\n";
  const std::string warning = error + "farandole: warning: 1\n";
  const std::string info = warning + "farandole: info: 2\n";
  const std::string debug = info + "farandole: debug: 3\n";
  EXPECT_EQ(logged_at("off"), "");
  EXPECT_EQ(logged_at("error"), error);
  EXPECT_EQ(logged_at("warning"), warning);
  EXPECT_EQ(logged_at("info"), info);
  EXPECT_EQ(logged_at("debug"), debug);
  EXPECT_EQ(logged_at(""), warning);
  EXPECT_EQ(logged_at("loud"), warning);
}

}  // namespace
}  // namespace farandole
