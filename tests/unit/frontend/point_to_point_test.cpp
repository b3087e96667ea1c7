// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

using Data = std::vector<std::int32_t>;
constexpr DType kInt = DType::kInt32;

Data unique(int rank, std::size_t count, int round = 0) {
  Data data(count + 1);
  std::iota(data.begin(), data.end(), rank * 1'000'000 + round * 10'000);
  data.back() = -7;
  return data;
}

class PointToPoint : public ::testing::TestWithParam<std::string> {};

// Goal: messages of every size go round a ring, and between all pairs at once, zero elements and
// messages to oneself included.
TEST_P(PointToPoint, MessagesArrive) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const int p = world.size(), rank = world.rank().value();
    const Rank right{(rank + 1) % p}, left{(rank + p - 1) % p};
    for (const std::size_t n : {0u, 1u, 100u, 5'000u, 300'001u}) {
      const Data mine = unique(rank, n);
      Data got(n + 1, -7);
      ASSERT_TRUE(world.batch(std::array{Message::send(mine.data(), Count{n}, kInt, right),
                                         Message::receive(got.data(), Count{n}, kInt, left)}));
      EXPECT_EQ(got, unique(left.value(), n));
      std::vector<Data> all(std::size_t(p), Data(n + 1, -7));
      std::vector<Message> messages;
      for (int peer = 0; peer < p; ++peer) {
        messages.push_back(Message::send(mine.data(), Count{n}, kInt, Rank{peer}));
        messages.push_back(
            Message::receive(all[std::size_t(peer)].data(), Count{n}, kInt, Rank{peer}));
      }
      const auto outcome = world.batch(messages);
      ASSERT_TRUE(outcome) << outcome.error().message;
      for (int peer = 0; peer < p; ++peer) EXPECT_EQ(all[std::size_t(peer)], unique(peer, n));
    }
    ASSERT_TRUE(world.batch({}));
  });
}

// Goal: messages match in program order per pair and direction, whatever collectives some ranks
// run in between, and ranks without messages count nothing.
// Method: ranks 0 and 1 stream messages both ways, waiting in reverse; rank 2 only takes part in
// the collectives.
TEST_P(PointToPoint, OrderHoldsPerPairAndDirection) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    constexpr int kRounds = 50;
    const int rank = world.rank().value();
    std::vector<Data> sent, got;
    std::vector<Request> requests;
    const auto begin = [&](const Message& message) {
      auto request = world.start(std::array{message});
      ASSERT_TRUE(request) << request.error().message;
      requests.push_back(*std::move(request));
    };
    for (int round = 0; round < kRounds; ++round) {
      const auto n = static_cast<std::size_t>(1 + round * 37 % 4000);
      sent.push_back(unique(rank, n, round));
      got.emplace_back(n + 1, -7);
    }
    for (int round = 0; round < kRounds && rank < 2; ++round) {
      Data &out = got[std::size_t(round)], &in = sent[std::size_t(round)];
      const Count n{out.size() - 1};
      begin(Message::send(in.data(), n, kInt, Rank{1 - rank}));
      begin(Message::receive(out.data(), n, kInt, Rank{1 - rank}));
      if (round % 10 == 3) {
        ASSERT_TRUE(world.barrier());
      }
    }
    for (int i = 0; i < 5 && rank == 2; ++i) ASSERT_TRUE(world.barrier());
    while (!requests.empty()) {
      const auto outcome = requests.back().wait();
      ASSERT_TRUE(outcome) << outcome.error().message;
      requests.pop_back();
    }
    for (int round = 0; round < kRounds && rank < 2; ++round) {
      const Data& out = got[std::size_t(round)];
      EXPECT_EQ(out, unique(1 - rank, out.size() - 1, round)) << round;
    }
    ASSERT_TRUE(world.barrier());
  });
}

// Goal: a message of another length or type raises at its receiver, in words; the other messages
// of the batch and all later ones arrive.
TEST_P(PointToPoint, MismatchPoisonsNothing) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    for (const std::size_t n : {8u, 100'000u}) {
      Data one = unique(3, n), two(n + 1, -7);
      if (world.rank() == Rank{0}) {
        ASSERT_TRUE(world.send(one.data(), Count{n}, kInt, Rank{1}));
        ASSERT_TRUE(world.send(one.data(), Count{n}, kInt, Rank{1}));
        ASSERT_TRUE(world.send(one.data(), Count{n}, kInt, Rank{1}));
        continue;
      }
      const auto wrong = world.recv(two.data(), Count{n - 1}, kInt, Rank{0}, {.name = "halo"});
      ASSERT_FALSE(wrong);
      EXPECT_EQ(wrong.error().kind, ErrorKind::kMismatch);
      for (const std::string& part :
           {std::string("recv from rank 0 'halo'"), "int32[" + std::to_string(n) + "]",
            "int32[" + std::to_string(n - 1) + "]"}) {
        EXPECT_NE(wrong.error().message.find(part), std::string::npos) << wrong.error().message;
      }
      const auto batch =
          world.batch(std::array{Message::receive(two.data(), Count{n}, DType::kFloat32, Rank{0}),
                                 Message::receive(one.data(), Count{n}, kInt, Rank{0})});
      ASSERT_FALSE(batch);
      EXPECT_EQ(batch.error().kind, ErrorKind::kMismatch) << batch.error().message;
      EXPECT_EQ(one, unique(3, n));
    }
    ASSERT_TRUE(world.barrier());
  });
}

// Goal: arguments that are wrong here are refused here, by name, and count nothing.
TEST_P(PointToPoint, BadArgumentsAreNamed) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    Data data(8);
    const Rank other{1 - world.rank().value()}, self = world.rank();
    const auto refused = [](const Result<void>& result, const char* word) {
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
    };
    refused(world.send(data.data(), Count{8}, kInt, Rank{2}), "'dest' is 2, allowed is a rank");
    refused(world.recv(data.data(), Count{8}, kInt, Rank{-1}), "'source' is -1");
    refused(world.send(nullptr, Count{8}, kInt, other), "'data' is null");
    refused(world.send(data.data(), Count{~std::size_t{0}}, kInt, other), "'count'");
    refused(world.send(data.data(), Count{8}, kInt, self), "'dest' is this rank itself");
    refused(world.recv(data.data(), Count{8}, kInt, self), "'source' is this rank itself");
    const auto own = world.batch(std::array{Message::send(data.data(), Count{4}, kInt, self),
                                            Message::receive(&data[4], Count{3}, kInt, self)});
    ASSERT_FALSE(own);
    EXPECT_EQ(own.error().kind, ErrorKind::kMismatch);
    ASSERT_TRUE(world.batch(std::array{Message::send(data.data(), Count{4}, kInt, other),
                                       Message::receive(&data[4], Count{4}, kInt, other)}));
  });
}

// Goal: a receive that nobody answers ends at its deadline and says whom it waits for.
TEST_P(PointToPoint, DeadlineEndsTheWait) {
  setenv("FARANDOLE_OPERATION_TIMEOUT", "0.3", 1);
  Contexts contexts = make_ranks(2, GetParam());
  unsetenv("FARANDOLE_OPERATION_TIMEOUT");
  run_ranks(contexts, [](Context&, Communicator& world) {
    Data data(8);
    if (world.rank() == Rank{0}) return;
    const auto outcome = world.recv(data.data(), Count{8}, kInt, Rank{0}, {.name = "lonely"});
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::kTimedOut);
    EXPECT_NE(outcome.error().message.find("'lonely'"), std::string::npos);
    EXPECT_NE(outcome.error().message.find("receive from rank 0"), std::string::npos)
        << outcome.error().message;
    EXPECT_FALSE(world.barrier());  // the communicator is broken
  });
}

// Goal: what a rank sent before it left still arrives; what it never sent fails with its name;
// messages between those who stay go on.
TEST_P(PointToPoint, AfterARankLeft) {
  Contexts contexts = make_ranks(3, GetParam());
  std::atomic<bool> left{false};
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    Data data(1000);
    const Count n{data.size()};
    if (world.rank() == Rank{2}) {
      data = unique(2, 999);
      ASSERT_TRUE(world.send(data.data(), n, kInt, Rank{0}));
      context.shutdown();
      left = true;
      return;
    }
    const Rank other{1 - world.rank().value()};
    if (other == Rank{1}) {
      const auto kept = world.recv(data.data(), n, kInt, Rank{2});
      ASSERT_TRUE(kept) << kept.error().message;
      EXPECT_EQ(data, unique(2, 999));
    }
    while (!left) std::this_thread::yield();
    const auto missing = world.recv(data.data(), n, kInt, Rank{2}, {.name = "gone"});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().kind, ErrorKind::kRankFailed);
    EXPECT_NE(missing.error().message.find("shut down during recv from rank 2 'gone'"),
              std::string::npos)
        << missing.error().message;
    const auto goes_on =
        world.batch(std::array{Message::send(data.data(), Count{500}, kInt, other),
                               Message::receive(&data[500], Count{500}, kInt, other)});
    ASSERT_TRUE(goes_on) << goes_on.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(All, PointToPoint, ::testing::Values("inproc", "fault", "shm", "tcp"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace farandole::testing
