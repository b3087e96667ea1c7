// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "schedule/builder.hpp"
#include "unit/schedule/same_schedule.hpp"

namespace farandole {
namespace {

// Every word of the format.
Schedule sampler() {
  ScheduleBuilder b(Collective::kAllreduce, "sampler_2", 4, 8);
  b.scratch_slots(3);
  b.root(2);
  b.order({3, 1, 0, 2});
  b.rotation({2, 1, 4, 0});
  b.rotation({2, 2, 1, 1});
  const Expr r = b.rank();
  b.stage("first");
  b.round().send(in(r, 2), (r + 1) % 4).lane(1).receive(scratch(1, 4, 2), (r - 1) % 4);
  b.loop(3, [&](const Expr& s) {
    b.round()
        .when(r ^ s, 0, 2)
        .when(s, 1, r)
        .receive_reduce(out(s), in(s), r - 1)
        .then()
        .receive_reduce_first(out(s), scratch(0, s), r - 1)
        .always()
        .copy(out(0, 2), in(0, 2));
    b.loop(2, [&](const Expr& t) {
      b.round()
          .reduce(out(s * t), in(s * t), scratch(min(s, t), s * t))
          .signal(-1 + r)
          .await(max(t, 1));
    });
  });
  b.stage("last_2", 4, 8);
  b.round();
  return std::move(b).build();
}

constexpr const char* kSamplerText = R"(farandole schedule 1
collective allreduce
algorithm sampler_2
ranks 4
root 2
chunks 8
scratch 3
lanes 2
order 3 1 0 2
rotation 2 1 4 0
rotation 2 2 1 1
stage first
round
  send in[r, 2] to (r + 1) % 4
  receive scratch[1, 2 as 4] from (r - 1) % 4 lane 1
end
loop 3
  round
    when 0 <= r ^ s < 2 and 1 <= s < r: receive out[s] = in[s] + incoming from r - 1
    when 0 <= r ^ s < 2 and 1 <= s < r: then receive out[s] = incoming + scratch[0 as s] from r - 1
    copy out[0, 2] = in[0, 2]
  end
  loop 2
    round
      reduce out[s * t] = in[s * t] + scratch[min(s, t) as s * t]
      send nothing to -1 + r
      receive nothing from max(t, 1)
    end
  end
end
stage last_2 ring 4 stride 8
round
end
)";

TEST(ScheduleText, SaysEverythingAndReadsBack) {
  EXPECT_EQ(to_text(sampler()), kSamplerText);
  const Result<Schedule> back = parse_schedule(kSamplerText);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(same_schedule(*back, sampler()));
}

TEST(ScheduleText, AllowsCommentsBlanksAndFreeSpacing) {
  std::string loose = "# by hand\r\n\n";
  for (const char c : std::string(kSamplerText))
    loose += c == '\n' ? " \r\n\t# note\n\n" : std::string(1, c);
  const Result<Schedule> back = parse_schedule(loose);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(same_schedule(*back, sampler()));
}

std::string fault_of(const std::string& text) {
  const Result<Schedule> schedule = parse_schedule(text);
  if (schedule) return "accepted";
  EXPECT_EQ(schedule.error().kind, ErrorKind::kInvalidArgument);
  return schedule.error().message;
}

// Replaces line `number` (from 1) of the sampler.
std::string with_line(int number, const std::string& line) {
  std::string result, text = kSamplerText;
  for (int at = 1; !text.empty(); ++at) {
    const std::size_t size = text.find('\n') + 1;
    result += at == number ? line + "\n" : text.substr(0, size);
    text.erase(0, size);
  }
  return result;
}

// Goal: an error names its line, what was found and what is allowed.
// Method: one wrong line of each kind in a text that is right otherwise.
TEST(ScheduleText, ErrorsNameTheLine) {
  EXPECT_EQ(fault_of(""), "schedule, line 0: expected \"farandole\", found the end");
  EXPECT_EQ(fault_of(with_line(1, "farandole schedule 2")),
            "schedule, line 1: expected a number from 1 to 1, found \"2\"");
  EXPECT_EQ(fault_of(with_line(2, "collective collect")),
            "schedule, line 2: expected a collective instead of \"collect\", found the end of the "
            "line");
  EXPECT_EQ(fault_of(with_line(4, "ranks 0")),
            "schedule, line 4: expected a number from 1 to 2147483648, found \"0\"");
  EXPECT_EQ(fault_of(with_line(4, "ranks 99999999999999999999")),
            "schedule, line 4: expected a number from 1 to 2147483648, found "
            "\"99999999999999999999\"");
  EXPECT_EQ(fault_of(with_line(5, "root 4")),
            "schedule, line 5: expected a number from 0 to 3, found \"4\"");
  EXPECT_EQ(fault_of(with_line(8, "lanes 2 3")),
            "schedule, line 8: expected the end of the line, found \"3\"");
  EXPECT_EQ(fault_of(with_line(12, "rounds")),
            "schedule, line 12: expected \"round\", \"loop\" or \"stage\", found \"rounds\"");
  EXPECT_EQ(fault_of(with_line(12, "stage first ring 0")),
            "schedule, line 12: expected a number from 1 to 2147483648, found \"0\"");
  EXPECT_EQ(fault_of(with_line(14, "send in[r + ] to 1")),
            "schedule, line 14: expected a number, r, the counter of a loop around it, min, max "
            "or \"(\", found \"] to 1\"");
  EXPECT_EQ(fault_of(with_line(14, "send in[s] to 1")),
            "schedule, line 14: expected a number, r, the counter of a loop around it, min, max "
            "or \"(\", found \"s] to 1\"");
  EXPECT_EQ(fault_of(with_line(14, "send in[0] to 1 lane 2")),
            "schedule, line 14: expected a number from 0 to 1, found \"2\"");
  EXPECT_EQ(fault_of(with_line(14, "send in[0 to 1")),
            "schedule, line 14: expected \"]\", found \"to 1\"");
  EXPECT_EQ(fault_of(with_line(19, "when 0 <= r: copy out[0] = in[0]")),
            "schedule, line 19: expected \"<\", found \": copy out[0] = in[0]\"");
  EXPECT_EQ(fault_of(with_line(21, "\x01\xff")),
            "schedule, line 21: expected \"send\", \"receive\", \"copy\", \"reduce\" or \"end\", "
            "found \"??\"");
  EXPECT_EQ(fault_of(std::string(kSamplerText) + "loop 2\nround\nend\n"),
            "schedule, line 36: expected the \"end\" of a loop, found the end");
  EXPECT_EQ(fault_of(std::string(kSamplerText) + "round\n"),
            "schedule, line 34: expected the \"end\" of a round, found the end");
}

// Goal: the limits hold where a hostile text would exhaust the stack or memory.
TEST(ScheduleText, RefusesWhatIsTooDeepOrTooLarge) {
  const auto copies = [](int count, const std::string& text) {
    std::string result;
    for (int i = 0; i < count; ++i) result += text;
    return result;
  };
  const std::string head = with_line(12, "").substr(0, with_line(12, "").find("lanes 2\n") + 8);
  const auto index = [&](const std::string& expr) {
    return fault_of(head + "round\nsend in[" + expr + "] to 1\nend\n");
  };
  EXPECT_EQ(index(copies(32, "(") + "r" + copies(32, ")")), "accepted");
  EXPECT_NE(index(copies(100'000, "(") + "r").find("32 nested parentheses"), std::string::npos);
  EXPECT_NE(index(copies(100'000, "min(r, ")).find("32 nested parentheses"), std::string::npos);
  EXPECT_EQ(index(copies(15, "r - (") + "r" + copies(15, ")")), "accepted");
  EXPECT_NE(index(copies(16, "r - (") + "r" + copies(16, ")")).find("simpler expression"),
            std::string::npos);
  EXPECT_EQ(index(copies(127, "r + ") + "r"), "accepted");
  EXPECT_NE(index(copies(100'000, "r + ") + "r").find("simpler expression"), std::string::npos);
  EXPECT_EQ(fault_of(head + copies(4, "loop 2\n") + copies(4, "end\n")), "accepted");
  EXPECT_NE(fault_of(head + copies(5, "loop 2\n")).find("4 nested loops"), std::string::npos);
  EXPECT_NE(fault_of(head + copies(600'000, "round\nend\n").substr(0, 4'000'000)).find("rounds"),
            std::string::npos);
  EXPECT_NE(fault_of(head + "round\n" + copies(150'000, "send nothing to 1\n")).find("actions"),
            std::string::npos);
  EXPECT_NE(fault_of(head + "round\n" + "when 0 <= r < 1" + copies(8, " and 0 <= r < 1"))
                .find("8 conditions"),
            std::string::npos);
  EXPECT_NE(fault_of(copies(5 << 20, "\n")).find("bytes"), std::string::npos);
}

// Goal: no text crashes the reader, and what it accepts is stable.
// Method: random damage to the sampler, with a printed seed: bytes, words and lines changed,
// removed, doubled or moved. Accepted texts must survive a round trip, and verify() must answer.
TEST(ScheduleText, SurvivesDamagedTexts) {
  constexpr unsigned kSeed = 4711;
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const std::string words[] = {"round\n",
                               "end\n",
                               "loop 3\n",
                               "out[",
                               "]",
                               "(",
                               ")",
                               "r",
                               "s",
                               " % ",
                               " / ",
                               "0",
                               "-1",
                               "9223372036854775807",
                               "then ",
                               "\n",
                               "as",
                               "scratch[0 as r]",
                               " lane 1",
                               "nothing",
                               "when 0 <= r < 2: "};
  int accepted = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = kSamplerText;
    for (std::size_t damage = 0; damage <= below(4); ++damage) {
      const std::size_t at = below(text.size()), size = below(12);
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, size);
          break;
        case 2:
          text.insert(below(text.size()), text.substr(at, size));
          break;
        case 3:
          text.insert(at, words[below(std::size(words))]);
          break;
        case 4:
          text.replace(at, 1, std::to_string(below(5)));
          break;
      }
    }
    const Result<Schedule> schedule = parse_schedule(text);
    if (!schedule) {
      EXPECT_EQ(schedule.error().message.rfind("schedule, line ", 0), 0u);
      continue;
    }
    ++accepted;
    const Result<Schedule> again = parse_schedule(to_text(*schedule));
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(to_text(*again), to_text(*schedule));
    const Result<VerifiedSchedule> verified = verify(*schedule);
    EXPECT_FALSE(verified) << "the sampler sends more than it receives";
  }
  std::cout << accepted << " of 6000 damaged texts are still schedules\n";
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 5900);
}

}  // namespace
}  // namespace farandole
