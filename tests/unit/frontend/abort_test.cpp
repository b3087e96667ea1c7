// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/aborts.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

constexpr DType kNumber = DType::kInt32;

std::int32_t sum_of(Communicator& comm, std::int32_t value) {
  const auto outcome = comm.allreduce(&value, &value, Count{1}, kNumber);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return value;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// That it says who aborted what and why.
void expect_abort(const Error& error, int by, const std::string& reason) {
  EXPECT_EQ(error.kind, ErrorKind::kAborted) << error.message;
  ASSERT_TRUE(error.culprit);
  EXPECT_EQ(error.culprit->rank, by);
  EXPECT_TRUE(contains(error.message, "rank " + std::to_string(by) + " (")) << error.message;
  EXPECT_TRUE(contains(error.message, "aborted communicator")) << error.message;
  EXPECT_TRUE(contains(error.message, reason)) << error.message;
}

Communicator whole(Communicator& world) {
  auto made = world.split(0, 0);
  EXPECT_TRUE(made) << made.error().message;
  return **made;
}

class AbortGroup : public ::testing::TestWithParam<std::string> {};

// Goal: what is in flight on the communicator ends on every member, with an error that names who
// aborted it and why; later calls give the very same one; the world and another communicator go on
// as if nothing had been, again and again. Method: one rank stays away and aborts, once short and
// once long messages are under way.
TEST_P(AbortGroup, EndsOneCommunicatorAndNoOther) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    Communicator other = whole(world);
    for (int round = 0; round < 12; ++round) {
      Communicator comm = whole(world);
      const std::size_t count = round % 2 == 0 ? 1 : 300'000;
      const int by = round % 4;
      const std::string reason = "reason " + std::to_string(round);
      std::vector<std::int32_t> in(count, 1), out(count);
      EXPECT_EQ(sum_of(comm, 1), 4);
      EXPECT_EQ(sum_of(world, 1), 4);  // what is not in flight any more anywhere has gone well
      std::string first;
      if (world.rank() == Rank{by}) {
        ASSERT_TRUE(comm.abort(reason));
      } else {
        const auto ended = comm.allreduce(in.data(), out.data(), Count{count}, kNumber);
        ASSERT_FALSE(ended);
        expect_abort(ended.error(), by, reason);
        first = ended.error().message;
      }
      const auto again = comm.allgather(in.data(), out.data(), Count{1}, kNumber);
      ASSERT_FALSE(again);
      expect_abort(again.error(), by, reason);
      const bool same = first.empty() || again.error().message == first;
      EXPECT_TRUE(same) << again.error().message << first;
      const auto sent =
          comm.send(in.data(), Count{1}, kNumber, Rank{(world.rank().value() + 1) % 4});
      ASSERT_FALSE(sent);
      EXPECT_EQ(sent.error().message, again.error().message);
      EXPECT_TRUE(comm.abort("too late"));
      EXPECT_EQ(comm.split(0, 0).error().message, again.error().message);
      EXPECT_EQ(sum_of(other, round), 4 * round);
      EXPECT_EQ(sum_of(world, 1), 4);
      EXPECT_TRUE(comm.free());
      EXPECT_EQ(comm.barrier().error().kind, ErrorKind::kInvalidArgument);
    }
  });
}

// Goal: who does not know the communicator yet, or waits for a message there, hears it as well.
TEST_P(AbortGroup, EarlyAbortsAndMessages) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    for (int round = 0; round < 20; ++round) {
      Communicator comm = whole(world);
      const bool mine = world.rank() == Rank{round % 3};
      ASSERT_TRUE(!mine || comm.abort("at once"));
      std::int32_t value = 0;
      const auto ended = comm.recv(&value, Count{1}, kNumber, Rank{(world.rank().value() + 1) % 3});
      ASSERT_FALSE(ended);
      expect_abort(ended.error(), round % 3, "at once");
    }
    EXPECT_EQ(sum_of(world, 1), 3);
  });
}

// Goal: the world can be aborted, by two ranks at once, and its living members make another one.
TEST_P(AbortGroup, AfterTheWorldOthersAreMade) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    ASSERT_TRUE(world.rank() == Rank{2} || world.abort("both"));
    const auto ended = world.barrier();
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().kind, ErrorKind::kAborted);
    EXPECT_EQ(world.barrier().error().message, ended.error().message);
    const std::array ranks = {Rank{2}, Rank{0}, Rank{1}};
    auto made = world.create_group(ranks);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(sum_of(*made, 1), 3);
  });
}

INSTANTIATE_TEST_SUITE_P(All, AbortGroup, ::testing::Values("inproc", "shm", "tcp"),
                         [](const auto& transport) { return transport.param; });

// Goal: a cut message is none; of two about one communicator the first counts; the oldest go.
TEST(Aborts, AreKeptByNumberAndFirstRank) {
  const Abort one{7, Rank{2}, Rank{3}, "why"};
  const std::string message = encode(one);
  const auto read = decode_abort(message);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->communicator, 7u);
  EXPECT_EQ(read->first, Rank{2});
  EXPECT_EQ(read->by, Rank{3});
  EXPECT_EQ(read->reason, "why");
  for (std::size_t length = 0; length < message.size(); ++length) {
    EXPECT_FALSE(decode_abort(message.substr(0, length)));
  }
  EXPECT_FALSE(decode_abort(message + "x"));
  Aborts aborts;
  EXPECT_TRUE(aborts.add(one));
  EXPECT_FALSE(aborts.add({7, Rank{2}, Rank{0}, "later"}));
  EXPECT_TRUE(aborts.add({7, Rank{0}, Rank{0}, "another"}));
  EXPECT_EQ(aborts.find(7, Rank{2})->reason, "why");
  EXPECT_EQ(aborts.find(7, Rank{1}), nullptr);
  for (std::uint32_t i = 0; i < Aborts::kMax; ++i) aborts.add({100 + i, Rank{0}, Rank{0}, ""});
  EXPECT_EQ(aborts.find(7, Rank{2}), nullptr);
}

}  // namespace
}  // namespace farandole::testing
