// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/aborts.hpp"
#include "frontend/gathering.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

using namespace std::chrono_literals;
constexpr DType kNumber = DType::kInt32;

std::vector<Rank> list(std::initializer_list<int> ranks) {
  std::vector<Rank> made;
  for (const int rank : ranks) made.push_back(Rank{rank});
  return made;
}

bool has(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::int32_t sum_of(Communicator& comm, std::int32_t value) {
  const auto outcome = comm.allreduce(&value, &value, Count{1}, kNumber);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return value;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class CreateGroup : public ::testing::TestWithParam<std::string> {};

// Goal: members alone make a communicator in the order of their list, while the others do
// something else, here nothing until the members are done.
TEST_P(CreateGroup, OnlyMembersCall) {
  Contexts contexts = make_ranks(5, GetParam());
  std::atomic<int> done{0};
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const auto ranks = list({4, 0, 3});
    if (has(ranks, world.rank())) {
      auto made = world.create_group(ranks, 7);
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->world_ranks(), ranks);
      EXPECT_EQ(ranks[std::size_t(made->rank().value())], world.rank());
      EXPECT_EQ(sum_of(*made, world.rank().value()), 7);
      auto nested = made->rank() == Rank{2}
                        ? Result<Communicator>(*made)
                        : made->create_group(list({1, 0}));  // ranks 0 and 4 of the world
      ASSERT_TRUE(nested) << nested.error().message;
      if (made->rank() != Rank{2}) {
        EXPECT_EQ(nested->world_ranks(), list({0, 4}));
        EXPECT_EQ(sum_of(*nested, 1), 2);
      }
      done.fetch_add(1);
      done.notify_all();
    } else {
      for (int seen = done.load(); seen < 3; seen = done.load()) done.wait(seen);
    }
    EXPECT_EQ(sum_of(world, 1), 5);
  });
}

// Goal: creations with different tags may run at once in one rank, overlap in any way, and mix with
// splits; every communicator is another one. Method: a thread per list and rank, random lists;
// then a collective in each, in an order of each rank's own, so that equal ids would collide.
TEST_P(CreateGroup, ManyAtOnce) {
  constexpr int kSize = 4, kGroups = 12;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::vector<Rank>> lists;
  for (int i = 0; i < kGroups; ++i) {
    auto ranks = list({0, 1, 2, 3});
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(1 + random() % kSize);
    lists.push_back(std::move(ranks));
  }
  Contexts contexts = make_ranks(kSize, GetParam());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<std::optional<Communicator>> made(kGroups);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!has(lists[i], world.rank())) continue;
      threads.emplace_back([&, i] {
        auto one = world.create_group(lists[i], static_cast<int>(i));
        ASSERT_TRUE(one) << one.error().message;
        made[i] = *std::move(one);
      });
    }
    auto parts = world.split(0, 0);
    ASSERT_TRUE(parts);
    for (std::thread& thread : threads) thread.join();
    std::vector<std::int32_t> sums(kGroups);
    std::vector<Request> running;
    for (std::size_t k = 0; k < made.size(); ++k) {
      const std::size_t i = (k + static_cast<std::size_t>(world.rank().value()) * 5) % kGroups;
      if (!made[i]) continue;
      sums[i] = static_cast<std::int32_t>(i) + 1;
      auto request = made[i]->start({.collective = Collective::kAllreduce,
                                     .in = &sums[i],
                                     .out = &sums[i],
                                     .count = Count{1},
                                     .dtype = kNumber});
      ASSERT_TRUE(request);
      running.push_back(*std::move(request));
    }
    for (Request& request : running) {
      const auto ended = request.wait();
      EXPECT_TRUE(ended) << ended.error().message;
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      const auto expected = made[i] ? std::ssize(lists[i]) * (static_cast<int>(i) + 1) : 0;
      EXPECT_EQ(sums[i], expected);
    }
    EXPECT_EQ(sum_of(**parts, 1), kSize);
  });
}

// Goal: one tag serves call after call, however far one member is ahead of another.
TEST_P(CreateGroup, OneTagAgainAndAgain) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    if (world.rank() == Rank{1}) return;
    for (int i = 0; i < 50; ++i) {
      auto made = world.create_group(list({2, 0}));
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(sum_of(*made, i), 2 * i);
    }
  });
}

// Goal: in a world with a dead rank, whose collectives fail, the living make a communicator of
// their own; a list with the dead rank fails and names it, on all, whether it died before or during
// the call.
TEST_P(CreateGroup, AmongTheLiving) {
  Contexts contexts = make_ranks(4, GetParam());
  std::atomic<int> left{0};
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    if (world.rank() == Rank{2}) {
      context.shutdown();
      return;
    }
    const auto with = world.create_group(list({0, 1, 2, 3}), 1);
    ASSERT_FALSE(with);
    EXPECT_EQ(with.error().kind, ErrorKind::kRankFailed);
    ASSERT_TRUE(with.error().culprit);
    EXPECT_EQ(with.error().culprit->rank, 2);
    EXPECT_TRUE(contains(with.error().message, "rank 2")) << with.error().message;
    std::int32_t value = 1;
    EXPECT_FALSE(world.allreduce(&value, &value, Count{1}, kNumber));
    for (int i = 0; i < 3; ++i) {
      auto made = world.create_group(list({3, 1, 0}), 1);
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(sum_of(*made, 1), 3);
    }
    left.fetch_add(1);
  });
  EXPECT_EQ(left.load(), 3);
}

// Goal: at the deadline all who came get the same verdict: who did not. Who is elsewhere with the
// same tag is said so. What is left of it disturbs no later call.
TEST_P(CreateGroup, TheDeadlineNamesWhoDidNotCome) {
  for (const int absent : {0, 1}) {
    Contexts contexts = make_ranks(3, GetParam());
    std::atomic<int> ended{0};
    run_ranks(contexts, [&](Context&, Communicator& world) {
      const auto ranks = list({0, 1, 2});
      EXPECT_EQ(sum_of(world, 1), 3);  // so that both begin at about the same time
      if (world.rank() == Rank{absent}) {
        for (int seen = ended.load(); seen < 2; seen = ended.load()) ended.wait(seen);
      } else {
        const auto made = world.create_group(ranks, 5, 500ms);
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().kind, ErrorKind::kTimedOut);
        const std::string missing = "rank " + std::to_string(absent) + " did not come";
        EXPECT_TRUE(contains(made.error().message, missing)) << made.error().message;
        EXPECT_TRUE(contains(made.error().message, "tag 5")) << made.error().message;
        ended.fetch_add(1);
        ended.notify_all();
      }
      // The absent rank may be so quick that it takes part in the call that the others gave up.
      for (bool whole = false; !whole;) {
        auto made = world.create_group(ranks, 5);
        ASSERT_TRUE(made) << made.error().message;
        std::int32_t value = 1;
        const auto summed = made->allreduce(&value, &value, Count{1}, kNumber);
        whole = static_cast<bool>(summed);
        ASSERT_TRUE(whole || summed.error().kind == ErrorKind::kAborted);
        EXPECT_EQ(value, whole ? 3 : 1);
      }
    });
  }
}

// Goal: mistakes that this rank can see are named; nothing is sent.
TEST_P(CreateGroup, BadLists) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const Rank other{1 - world.rank().value()};
    for (const auto& [ranks, part] :
         {std::pair(list({}), "without this rank"), std::pair(std::vector{other}, "without this"),
          std::pair(list({0, 1, 0}), "a list with 0"), std::pair(list({0, 1, 2}), "a list with 2"),
          std::pair(list({0, -1, 1}), "a list with -1")}) {
      const auto made = world.create_group(ranks);
      ASSERT_FALSE(made);
      EXPECT_EQ(made.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_TRUE(contains(made.error().message, part)) << made.error().message;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, CreateGroup, ::testing::Values("inproc", "shm", "tcp"),
                         [](const auto& transport) { return transport.param; });

// Goal: no two first members pick one number, none picks one of split()'s or one with the highest
// bit, and a rank that has used up its share is refused.
TEST(Gathering, NumbersAreApart) {
  for (const std::uint32_t size : {1U, 2U, 3U, 8U, 9U, 27'600U}) {
    std::uint32_t count_max = kGroupNumbers / std::bit_ceil(size) - 1;
    std::set<std::uint32_t> numbers;
    const std::set<std::uint32_t> ranks = {0, size / 2, size - 1};
    const std::set<std::uint32_t> counts = {0, 1, count_max / 2, count_max - 1, count_max};
    for (const std::uint32_t rank : ranks) {
      const Rank first{static_cast<std::int32_t>(rank)};
      for (const std::uint32_t count : counts) {
        const auto number = group_number(first, size, count);
        ASSERT_TRUE(number) << rank << " of " << size << ", " << count;
        EXPECT_GE(*number, kGroupNumbers);
        EXPECT_LT(*number, 2 * kGroupNumbers);
        numbers.insert(*number);
      }
      EXPECT_FALSE(group_number(first, size, count_max + 1));
    }
    EXPECT_EQ(numbers.size(), ranks.size() * counts.size()) << size;
  }
}

// Goal: whatever comes as a message, only the words of this protocol are taken, and cut ones change
// nothing.
TEST(Gathering, MalformedMessages) {
  Gathering gathering;
  std::string answer;
  EXPECT_FALSE(gathering.notice(Rank{1}, "cycle 7", answer));
  std::vector<std::string> sent;
  const Members members = {{Rank{0}, 0, "h", "", 1, {}}, {Rank{1}, 0, "h", "", 2, {}}};
  const GroupKey key{3, 0, 0, {1, 0}};
  const auto late = gathering.gather(Rank{0}, members, key, Deadline::after(1ms),
                                     [&](std::string_view message) { sent.emplace_back(message); });
  ASSERT_FALSE(late);
  ASSERT_EQ(sent.size(), 2u) << "joins and withdraws";
  for (const std::string& whole : sent) {
    for (std::size_t length = 6; length <= whole.size(); ++length) {
      EXPECT_TRUE(gathering.notice(Rank{1}, whole.substr(0, length), answer));
      EXPECT_TRUE(gathering.notice(Rank{7}, whole.substr(0, length), answer));
    }
  }
  EXPECT_EQ(answer, "");
}

/// The messages of Gathering objects, some of which get lost.
struct Wire {
  std::vector<Gathering*> ends;
  std::function<bool(const std::string&)> lose;
  void flood(Rank from, std::string_view message) {
    if (lose(std::string(message))) return;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      if (static_cast<int>(rank) == from.value()) continue;
      std::string answer;
      ends[rank]->notice(from, message, answer);
      if (!answer.empty()) flood(Rank{static_cast<int>(rank)}, answer);
    }
  }
};

// Goal: who gave up is not said not to have come. Method: a member with little patience, and one
// with more, wait for a third.
TEST(Gathering, WhoGaveUpHadCome) {
  Gathering gathering;
  std::string joins, withdraws, answer;
  const Members members = {
      {Rank{0}, 0, "h", "", 1, {}}, {Rank{1}, 0, "h", "", 2, {}}, {Rank{2}, 0, "h", "", 3, {}}};
  const GroupKey key{0, 0, 0, {0, 1, 2}};
  {
    Gathering impatient;
    std::vector<std::string> sent;
    const auto late = impatient.gather(Rank{1}, members, key, Deadline::after(1ms),
                                       [&](std::string_view text) { sent.emplace_back(text); });
    ASSERT_FALSE(late);
    EXPECT_TRUE(contains(late.error().message, "ranks 0, 2 did not")) << late.error().message;
    joins = sent.front();
    withdraws = sent.back();
  }
  const auto late =
      gathering.gather(Rank{0}, members, key, Deadline::after(1ms), [&](std::string_view) {
        gathering.notice(Rank{1}, joins, answer);
        gathering.notice(Rank{1}, withdraws, answer);
      });
  ASSERT_FALSE(late);
  EXPECT_TRUE(contains(late.error().message, "rank 2 did not come")) << late.error().message;
}

// Goal: of several that are gone the first is named, of which the others may have heard and left.
TEST(Gathering, TheCulpritIsNamed) {
  const Members members = {
      {Rank{0}, 0, "h", "", 1, {}}, {Rank{1}, 0, "h", "", 2, {}}, {Rank{2}, 0, "h", "", 3, {}}};
  for (const auto& ranks : {std::vector<std::int32_t>{2, 1, 0}, {0, 1, 2}}) {
    for (const int culprit : {1, 2}) {
      Gathering gathering;
      gathering.departed({Rank{culprit}, false, "died", ""});
      gathering.departed({Rank{3 - culprit}, true, "shut down", ""});
      gathering.departed({Rank{culprit}, false, "died", ""});
      const auto lost = gathering.gather(Rank{0}, members, {0, 0, 0, ranks}, Deadline::after(60s),
                                         [](std::string_view) {});
      ASSERT_FALSE(lost);
      ASSERT_TRUE(lost.error().culprit);
      EXPECT_EQ(lost.error().culprit->rank, culprit) << lost.error().message;
    }
  }
}

// Goal: what was made for a call that had ended is aborted, and names who had ended it. Method: the
// withdrawal comes when the first member has answered.
TEST(Gathering, AnswersThatCameTooLateAreAborted) {
  const Members members = {{Rank{0}, 0, "h", "", 1, {}}, {Rank{1}, 0, "h", "", 2, {}}};
  const GroupKey key{0, 0, 0, {0, 1}};
  Gathering first, other;
  std::vector<std::string> sent;
  ASSERT_FALSE(other.gather(Rank{1}, members, key, Deadline::after(1ms),
                            [&](std::string_view text) { sent.emplace_back(text); }));
  std::string answer;
  first.notice(Rank{1}, sent.front(), answer);
  const auto number =
      first.gather(Rank{0}, members, key, Deadline::after(60s), [](std::string_view) {});
  ASSERT_TRUE(number) << number.error().message;
  EXPECT_EQ(answer, "");
  EXPECT_TRUE(first.notice(Rank{1}, sent.back(), answer));
  const auto abort = decode_abort(answer);
  ASSERT_TRUE(abort);
  EXPECT_EQ(abort->communicator, *number);
  EXPECT_EQ(abort->first, Rank{0});
  EXPECT_EQ(abort->by, Rank{1});
}

// Goal: a lost message delays a creation and does not end it; both ends get one number.
// Method: of each kind of message the first is lost.
TEST(Gathering, LostMessagesAreRepeated) {
  Gathering zero, one;
  std::mutex mutex;
  std::set<char> lost;
  Wire wire{{&zero, &one}, [&](const std::string& message) {
              const std::lock_guard lock(mutex);
              return lost.insert(message[6]).second;
            }};
  const Members members = {{Rank{0}, 0, "h", "", 1, {}}, {Rank{1}, 0, "h", "", 2, {}}};
  const GroupKey key{3, 0, 0, {0, 1}};
  std::array<std::uint32_t, 2> numbers{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto got = (rank == 0 ? zero : one)
                           .gather(Rank{rank}, members, key, Deadline::after(60s),
                                   [&](std::string_view text) { wire.flood(Rank{rank}, text); });
      ASSERT_TRUE(got) << got.error().message;
      numbers[static_cast<std::size_t>(rank)] = *got;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_GE(numbers[0], kGroupNumbers);
  EXPECT_GE(lost.size(), 2u);
}

}  // namespace
}  // namespace farandole::testing
